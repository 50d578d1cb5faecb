"""Conversations as text: rendering, the places of the replies that are trained on, and the control tokens in messages.

A template of Jinja runs in a separate process (trainer/data/limited_process.py), which is started once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import is_
from typing import Any, cast

from trainer.data.control_tokens import ControlTokens, iter_unused_characters
from trainer.data.limited_process import LimitedProcess, LimitedProcessError, Limits
from trainer.data.message_forms import MessageForms
from trainer.data.replies import ReplyFinder
from trainer.data.templates import ChatTemplate, Conversation, Message, TextTooLongError, compile_template
from trainer.errors import ConfigError, DataError

_LIMITS = Limits(memory=1 << 30, seconds=5.0)
_MOST_CHARACTERS = 4 << 20  # of one text, and 16 times the conversation
_JOINED = frozenset({"content", "text", "reasoning_content", "reasoning", "thinking"})
"""Keys of what templates write next to other text."""


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
        if self._plain is not None:
            return self._plain(conversation)
        if self._process is None:  # it ended with an earlier conversation
            self._process = self._start()
        try:
            # A text is rendered for each reply.
            result: RenderedConversation = self._process.ask(
                conversation, _LIMITS.seconds + len(conversation.messages) ** 2 / 1e4
            )
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
        self._texts = (template.text, template.with_tools)
        self._compiled = compile_template(template)
        self._forms = MessageForms(self._try_to_render)

    def convert(self, conversation: Conversation) -> RenderedConversation:
        """Return the conversation as text.

        Raises:
            DataError: The template does not render it.
        """
        conversation = self._forms.fit(conversation)
        texts = list(_iter_texts(conversation))
        control = self._control
        if not any(control.occur_in(text) or (joined and control.may_begin_at_end(text)) for text, joined in texts):
            return self._find_replies(conversation)
        unused = iter_unused_characters(*self._texts, *(text for text, _ in texts))
        found = self._convert_escaped(conversation, unused)
        # A template may look for control tokens, or refuse them. It must then treat any stand-in alike.
        plain = self._try_to_render(conversation)
        if found.text != plain and self._convert_escaped(conversation, unused) != found:
            raise DataError("it changes control tokens in a message: read them as tokens with control_tokens=keep")
        return found

    def _convert_escaped(self, conversation: Conversation, unused: Iterator[str]) -> RenderedConversation:
        """Return the conversation as text, with the places of the control tokens in its messages."""
        table: dict[str, str] = {}

        def stand_in(character: str) -> str:
            if character not in table:
                table[character] = next(unused)
            return table[character]

        control = self._control
        escaped = _map_texts(conversation, lambda text, joined: control.escape(text, stand_in, joined=joined))
        rendered = self._find_replies(escaped)
        back = str.maketrans({private: character for character, private in table.items()})
        text = rendered.text.translate(back)
        literal = tuple(at for at, character in enumerate(rendered.text) if ord(character) in back)
        # Characters that were replaced in case of what stands beside them are not of a token.
        if not any(first <= at < last for first, last, _ in control.find(text) for at in literal):
            literal = ()
        return replace(rendered, text=text, literal=literal)

    def _find_replies(self, conversation: Conversation) -> RenderedConversation:
        most = _count_most(conversation)

        def render(messages: Sequence[Message], generation: bool) -> str:
            every = len(messages) == len(conversation.messages) and all(map(is_, messages, conversation.messages))
            return whole if every and not generation else self._render(conversation, messages, generation, most)

        whole = self._render(conversation, conversation.messages, False, most)
        finder = ReplyFinder(conversation.messages, render, self._control)
        replies = tuple(finder.find(whole, index) for index in conversation.trained)
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


def _map_texts(conversation: Conversation, change: Callable[[str, bool], str]) -> Conversation:
    """Return a conversation with other texts; `change` also gets whether the text may stand next to other text."""

    def walk(value: Any, key: str) -> Any:
        if isinstance(value, str):
            return change(value, key in _JOINED)
        if isinstance(value, dict):
            entries = cast("dict[str, Any]", value)
            return {change(name, False): walk(entry, name) for name, entry in entries.items()}
        if isinstance(value, list):
            return [walk(entry, key) for entry in cast("list[object]", value)]
        return value

    return replace(
        conversation,
        messages=walk(list(conversation.messages), ""),
        tools=walk(conversation.tools, ""),
        documents=walk(conversation.documents, ""),
        variables=walk(dict(conversation.variables), ""),
    )


def _iter_texts(conversation: Conversation) -> Iterator[tuple[str, bool]]:
    found: list[tuple[str, bool]] = []

    def note(text: str, joined: bool) -> str:
        found.append((text, joined))
        return text

    _map_texts(conversation, note)
    return iter(found)


def _make_encodable(text: str) -> str:
    """Replace what is no character by itself, half of a surrogate pair, which JSON can name."""
    return text.encode(errors="replace").decode()
