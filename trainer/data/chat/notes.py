"""Notes on chat data that is read: messages that the template leaves out, and conversations that train on nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

from trainer.data.chat.conversations import list_texts
from trainer.data.chat.templates import REASONING, Conversation, Message
from trainer.data.documents import TextChunk
from trainer.errors import DataError

_WORD = "cjqzxw{}w"
_MOST_SEARCHES = 100


@dataclass(slots=True)
class _Count:
    """A number of messages or conversations, and the place of the first one."""

    number: int = 0
    first: str = ""

    def add(self, where: str) -> None:
        self.number += 1
        self.first = self.first or where

    def describe(self) -> str:
        return f"{self.number:,}, the first in {self.first}"


class ChatNotes:
    """Counts what is unusual in conversations.

    Templates leave out messages of roles that they do not know. They also leave out or change parts of messages on
    purpose, such as the reasoning before an earlier reply. So a message whose content is not in the text is tried once
    more with a plain word as its content: only where that is left out, too, is the message left out.
    """

    def __init__(self, template: str, render: Callable[[Conversation], str]) -> None:
        """Begin to count.

        Args:
            template: Its name, for people.
            render: Returns the text of a conversation.
        """
        self._template = template
        self._render = render
        self._written: set[str] = set()
        self._left_out: dict[str, _Count] = {}
        self._rows = 0
        self._untrained = _Count()
        self._empty = _Count()

    def add_text(self, text: TextChunk, where: str) -> None:
        """Count a conversation."""
        self._rows += 1
        if not text.replies:
            self._untrained.add(where)
        if any(first == last for first, last in text.replies):  # of a completion; a template writes something
            self._empty.add(where)

    def add_messages(self, conversation: Conversation, text: str, where: str) -> None:
        """Count the messages that the text does not have, and the replies that are empty."""
        if any(_is_empty(conversation.messages[index]) for index in conversation.trained):
            self._empty.add(where)
        doubtful = self._list_doubtful(conversation, text)
        if not doubtful:
            return
        messages = list(conversation.messages)
        for index in doubtful:
            messages[index] = _replace_texts(messages[index], _WORD.format(index))
        try:
            tried = self._render(replace(conversation, messages=messages, trained=()))
        except DataError:
            return  # the template wants other contents
        for index in doubtful:
            role = str(messages[index]["role"])
            if _WORD.format(index) in tried:
                self._written.add(role)
            else:
                self._left_out.setdefault(role, _Count()).add(where)

    def list_lines(self) -> list[str]:
        """Return a line for each note."""
        lines: list[str] = []
        if self._left_out:
            roles = ", ".join(f"`{role}` ({count.describe()})" for role, count in self._left_out.items())
            lines.append(
                f"{self._template} leaves out messages of the roles {roles}: put their text into messages that it "
                "writes, or name another template with chat=FILE"
            )
        if self._untrained.number:
            lines.append(
                f"conversations without a reply that is trained on: {self._untrained.describe()}; "
                f"{self._rows:,} were read"
            )
        if self._empty.number:
            lines.append(f"empty replies, which train the model to say nothing: {self._empty.describe()}")
        return lines

    def _list_doubtful(self, conversation: Conversation, text: str) -> list[int]:
        """Return the messages of roles that the template is not known to write, and those that are not in the text."""
        found: list[int] = []
        at = searches = 0
        for index, message in enumerate(conversation.messages):
            content = "".join(list_texts(message.get("content"))[:1]).strip()
            if not content or message.get("tool_calls"):  # text before a call is often left out as reasoning
                continue
            place = text.find(content, at) if searches < _MOST_SEARCHES else -1
            if place >= 0:
                at = place + len(content)
            else:
                searches += 1
            if place < 0 or message["role"] not in self._written:
                found.append(index)
        return found


def _is_empty(message: Message) -> bool:
    texts = [*list_texts(message.get("content")), *(str(message.get(key) or "") for key in REASONING)]
    return not message.get("tool_calls") and not any(text.strip() for text in texts)


def _replace_texts(message: Message, word: str) -> Message:
    """Return the message with a word as each of its texts."""
    content = message["content"]
    if isinstance(content, str):
        return {**message, "content": word}
    parts = cast("list[dict[str, Any]]", content)
    return {**message, "content": [{**part, "text": word} if "text" in part else part for part in parts]}
