"""Conversations as text: rendering, the places of the replies that are trained on, and the control tokens in messages.

A template of Jinja runs in a separate process (trainer/data/limited_process.py), which is started once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import is_

from trainer.data.chat.message_forms import MessageForms
from trainer.data.chat.origins import OriginFinder, choose_stand_ins, list_texts, map_texts
from trainer.data.chat.replies import ReplyFinder
from trainer.data.chat.templates import (
    ChatTemplate,
    Conversation,
    Message,
    TextTooLongError,
    compile_template,
    list_strings,
)
from trainer.data.limited_process import LimitedProcess, LimitedProcessError, Limits
from trainer.data.tokens.control_tokens import ControlTokens
from trainer.errors import ConfigError, DataError

_LIMITS = Limits(memory=1 << 30, seconds=5.0)
_MOST_CHARACTERS = 4 << 20  # of one text, and 16 times the conversation
_MOST_MESSAGES = 2000  # a text is rendered for each reply


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedConversation:
    """A conversation as text.

    Attributes:
        text: As transformers renders it.
        replies: First and last character of each part that is trained on, the last one excluded.
        literal: Places of characters: a control token that contains one is text.
    """

    text: str
    replies: tuple[tuple[int, int], ...]
    literal: tuple[int, ...] = ()


class ConversationRenderer:
    """Renders conversations with a template."""

    def __init__(self, template: ChatTemplate, control: ControlTokens) -> None:
        """Compile the template.

        Raises:
            ConfigError: It is wrong, or the library `jinja2` is missing.
        """
        self._template = template
        self._open = (template, control)
        self._plain = None if template.text else open_renderer(self._open)
        self._process = self._start() if template.text else None

    def render(self, conversation: Conversation) -> RenderedConversation:
        """Return the conversation as text.

        Raises:
            DataError: The template does not render it, or not within the limits.
        """
        count = len(conversation.messages)
        if count > _MOST_MESSAGES:
            raise DataError(f"it has {count:,} messages, and a conversation may have {_MOST_MESSAGES:,}: divide it")
        if self._plain is not None:
            return self._plain(conversation)
        if self._process is None:  # it ended with an earlier conversation
            self._process = self._start()
        try:
            result: RenderedConversation = self._process.ask(conversation, _LIMITS.seconds + count**2 / 4e4)
        except LimitedProcessError as error:
            if error.ended:
                self.end()
            reason = str(error) if error.by_limit else f"its process ended ({error})"
            raise DataError(f"{self._template.name}: {reason}") from error
        return result

    def end(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.end()
            self._process = None

    def _start(self) -> LimitedProcess:
        process = LimitedProcess(open_renderer, self._open, _LIMITS)
        try:
            process.wait_for_start()
        except LimitedProcessError as error:
            process.end()
            raise ConfigError(f"chat={self._template.name}: {error}") from error
        return process


def open_renderer(opened: tuple[ChatTemplate, ControlTokens]) -> Callable[[Conversation], RenderedConversation]:
    """Return the function that renders a conversation, in the process that calls it.

    Raises:
        ConfigError: The template is wrong.
    """
    return _Renderer(*opened).convert


class _Renderer:
    """Renders conversations with a compiled template."""

    def __init__(self, template: ChatTemplate, control: ControlTokens) -> None:
        self._control = control
        self._compiled = compile_template(template)
        self._forms = MessageForms(self._try_to_render)
        self._origins = OriginFinder(render=self._try_to_render, control=control, strings=list_strings(template))

    def convert(self, conversation: Conversation) -> RenderedConversation:
        """Return the conversation as text.

        Raises:
            DataError: The template does not render it.
        """
        conversation = self._forms.fit(conversation)
        back: Mapping[int, str] = {}
        try:
            rendered = self._find_replies(conversation)
        except DataError:
            # A template may refuse control tokens in messages.
            conversation, back = self._hide_tokens(conversation)
            if not back:
                raise
            rendered = self._find_replies(conversation)
        if not self._control.texts:
            return rendered
        foreign = self._origins.find(conversation, rendered.text)
        for at, character in enumerate(rendered.text) if back else ():
            foreign[at] |= ord(character) in back
        text = rendered.text.translate(back)
        return replace(rendered, text=text, literal=self._control.list_literal(text, foreign))

    def _hide_tokens(self, conversation: Conversation) -> tuple[Conversation, Mapping[int, str]]:
        """Return the conversation with other characters in its control tokens, and the characters by the other ones."""
        texts = list_texts(conversation)
        stand_ins = choose_stand_ins("".join(token for text in texts for *_, token in self._control.find(text)), *texts)

        def hide(text: str) -> str:
            pieces: list[str] = []
            at = 0
            for first, last, token in self._control.find(text):
                pieces += [text[at:first], token.translate(stand_ins)]
                at = last
            return "".join([*pieces, text[at:]])

        return map_texts(conversation, hide), {ord(other): chr(code) for code, other in stand_ins.items()}

    def _find_replies(self, conversation: Conversation) -> RenderedConversation:
        most = _count_most(conversation)

        def render(messages: Sequence[Message], generation: bool) -> str:
            every = len(messages) == len(conversation.messages) and all(map(is_, messages, conversation.messages))
            return whole if every and not generation else self._render(conversation, messages, generation, most)

        whole = self._render(conversation, conversation.messages, False, most)
        finder = ReplyFinder(conversation.messages, render, self._control)
        replies = tuple(finder.find(whole, index) for index in conversation.trained)
        if any(last > first for (_, last), (first, _) in pairwise(replies)):
            raise DataError("it changes an earlier reply, so that its end is unknown: use another with chat=FILE")
        return RenderedConversation(text=whole, replies=replies)

    def _try_to_render(self, conversation: Conversation) -> str | None:
        try:
            return self._render(conversation, conversation.messages, False, _count_most(conversation))
        except DataError:
            return None

    def _render(self, conversation: Conversation, messages: Sequence[Message], generation: bool, most: int) -> str:
        try:
            return _make_encodable(self._compiled(conversation, messages, generation, most))
        except (MemoryError, RecursionError):
            raise
        except TextTooLongError as error:
            raise DataError(str(error)) from error
        except Exception as error:  # a template may do anything that Jinja can
            if not messages:
                return ""  # some refuse to render nothing
            raise DataError(f"{type(error).__name__}: {error}") from error


def _count_most(conversation: Conversation) -> int:
    """Return how many characters a text of the conversation may have."""
    return _MOST_CHARACTERS + 16 * len(json.dumps(conversation.messages, default=str))


def _make_encodable(text: str) -> str:
    """Replace what is no character by itself, half of a surrogate pair, which JSON can name."""
    return text.encode(errors="replace").decode()
