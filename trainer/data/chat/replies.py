"""The places of replies in the text of a conversation, found by rendering parts of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from trainer.data.chat.templates import Message
from trainer.data.tokens.control_tokens import ControlTokens
from trainer.errors import DataError

_MARK = "\uf8fe\uf8ff"  # a word of private use, which stands for a reply


_QUESTION: Message = {"role": "user", "content": "cjqzxw"}


@dataclass(frozen=True)
class ReplyFinder:
    """Finds replies.

    Attributes:
        messages: Of the conversation.
        render: Returns the text of messages, with the generation prompt or without.
        control: The control tokens.
    """

    messages: Sequence[Message]
    render: Callable[[Sequence[Message], bool], str]
    control: ControlTokens

    def find(self, whole: str, index: int) -> tuple[int, int]:
        """Return the place of a reply, with the token that ends it.

        Args:
            whole: The text of the conversation.
            index: Of the message.

        Raises:
            DataError: Its place is unknown, or the template leaves out its calls of tools.
        """
        first, last = self._find(whole, index)
        if _name_first_call(self.messages[index]) not in whole[first:last]:
            raise DataError("it does not write calls of tools: use another with chat=FILE")
        return first, self._leave_out_space(whole, first, last)

    def _leave_out_space(self, whole: str, first: int, last: int) -> int:
        """Return the end of a reply without the white space behind the token that ends it: there a model stops."""
        reply = whole[first:last]
        end = len(reply.rstrip())
        return first + end if any(place == end for _, place, _ in self.control.find(reply)) else last

    def _find(self, whole: str, index: int) -> tuple[int, int]:
        """Return the place of a reply.

        It begins where the model would begin to write: after the earlier messages and as much of the generation prompt
        as the reply has, too.
        """
        before = self.render(self.messages[:index], True) if index else self._find_beginning()
        through = self.render(self.messages[: index + 1], False)
        if before == (self.render(self.messages[:index], False) if index else ""):
            before = self._add_header(before, through)  # the template writes no generation prompt here
        if not through.startswith(before):  # DeepSeek R1 prompts with the beginning of the reasoning
            before = self._shorten_prompt(before, through, index)
        if through.startswith(before) and whole.startswith(through):
            return len(before), len(through)
        place = self._locate(whole, before, index)
        if place is not None:
            return place
        last = _find_changed_reply(whole, through, len(before), self.messages[index])
        if last is None or not through.startswith(before) or not whole.startswith(before):
            what = "an earlier reply" if whole.startswith(before) else "the text before a reply"
            raise DataError(f"it changes {what}: use another with chat=FILE")
        return len(before), last

    def _find_beginning(self) -> str:
        """Return what the template writes before a conversation that begins with a reply."""
        if before := self.render([], True):
            return before
        if self._header:  # which is looked for in the reply
            return ""
        try:  # a template that refuses to render nothing
            reply, question = (self.render([one], False) for one in (self.messages[0], _QUESTION))
        except DataError:
            return ""
        shared = _find_common_start(reply, question)
        return shared[: max((last for _, last, _ in self.control.find(shared)), default=0)]

    def _add_header(self, before: str, through: str) -> str:
        """Return the text before a reply with its header: the generation prompt, as the template writes it elsewhere.

        A template may refuse to render nothing, and then writes more than the header before the first message.
        """
        header = self._header
        at = through.find(header, len(before)) if header and through.startswith(before) else -1
        return through[: at + len(header)] if at == len(before) or (at >= 0 and not before) else before

    @cached_property
    def _header(self) -> str:
        """The generation prompt behind a question; "" where the template does not write one."""
        try:
            plain, prompted = (self.render([_QUESTION], generation) for generation in (False, True))
        except DataError:
            return ""
        return prompted[len(plain) :] if prompted.startswith(plain) else ""

    def _shorten_prompt(self, before: str, through: str, index: int) -> str:
        """Return the beginning of the prompt that the reply has, too; the prompt itself where there is none."""
        earlier = self.render(self.messages[:index], False)
        shared = _find_common_start(before, through)
        for text in _list_endings(self.messages[index]):
            at = through.find(text, len(earlier))
            if at >= 0:
                shared = shared[:at]
                break
        return shared if through.startswith(earlier) and len(shared) > len(earlier) else before

    def _locate(self, whole: str, before: str, index: int) -> tuple[int, int] | None:
        """Return the place of a reply that stands elsewhere, or ends otherwise, than when it was the last message.

        Mistral's template moves the system's message to the last question, and gpt-oss ends the last reply otherwise.
        """
        message: Message = {**self.messages[index], "content": _MARK}
        try:
            through = self.render([*self.messages[:index], message], False)
            marked = self.render([*self.messages[:index], message, *self.messages[index + 1 :]], False)
        except DataError:  # of a template that looks into replies
            return None
        if marked.count(_MARK) != 1 or through.count(_MARK) != 1:
            return None
        (start, rest), (prompt, ending) = marked.split(_MARK), through.split(_MARK)
        if len(whole) < len(start) + len(rest) or not whole.startswith(start) or not whole.endswith(rest):
            return None
        if whole.startswith(before):
            first = len(before)
        elif prompt.startswith(before) and start.endswith(prompt[len(before) :]):
            first = len(start) - len(prompt) + len(before)
        elif self._header and self._header in start:
            first = start.rfind(self._header) + len(self._header)
        else:  # a space belongs to the word behind it
            first = len(start.rstrip(" "))
        last = len(whole) - len(rest)
        count = self._measure_ending(ending, rest)
        return None if count is None else (first, last + count)

    def _measure_ending(self, ending: str, rest: str) -> int | None:
        """Return how many characters of what follows an earlier reply end it, as `ending` ends the last one."""
        if rest.startswith(ending):
            return len(ending)
        tokens, others = self.control.find(ending), self.control.find(rest)
        # Phi's template writes one more token behind the last reply.
        shared = len(_find_common_start(ending, rest))
        common = [last for _, last, _ in tokens if last <= shared]
        if common:
            return common[-1]
        return others[0][1] if tokens and others and ending == tokens[0][2] and others[0][0] == 0 else None


def _find_changed_reply(whole: str, through: str, first: int, message: Message) -> int | None:
    """Return where a reply ends that was written otherwise when it was the last one; None where that is unknown.

    Templates of reasoning models leave the reasoning out of all replies but the last, as Qwen 3's does.
    """
    content = str(message.get("content") or "").strip()
    if content:
        at, in_through = whole.find(content, first), through.rfind(content)
        ending = through[in_through + len(content) :]
        if at >= 0 and in_through >= 0 and whole.startswith(ending, at + len(content)):
            return at + len(content) + len(ending)
    # Calls of tools alone: the longest ending of the reply that follows, with the first call.
    called = _name_first_call(message)
    last = through.rfind(called, first) if called else -1
    starts = (start for start in range(first, last + 1) if whole.startswith(through[start:], first))
    return next((first + len(through) - start for start in starts), None)


def _name_first_call(message: Message) -> str:
    """Return the name of the first tool that a message calls; "" where it calls none."""
    calls = message.get("tool_calls")
    called: object = calls[0].get("function", calls[0]) if calls else None
    return str(cast("dict[str, Any]", called).get("name", "")) if isinstance(called, dict) else ""


def _list_endings(message: Message) -> Sequence[str]:
    """Return the content of a message, and its last line, which stays where reasoning before it is left out."""
    content = str(message.get("content") or "").strip()
    return [content, content.splitlines()[-1].strip()] if content else []


def _find_common_start(one: str, other: str) -> str:
    count = next((at for at, (left, right) in enumerate(zip(one, other, strict=False)) if left != right), None)
    return one[: min(len(one), len(other)) if count is None else count]
