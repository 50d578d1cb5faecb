"""Chat data: the template of `chat=`, and rows of conversations as texts with the places that are trained on.

Forms of rows are in trainer/data/chat/conversations.py, templates in trainer/data/chat/templates.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from trainer.data.chat.conversations import AUTO as ANY_FORM
from trainer.data.chat.conversations import (
    Completion,
    check_unread_keys,
    find_form,
    list_unread_keys,
    read_conversation,
)
from trainer.data.chat.notes import ChatNotes
from trainer.data.chat.rendering import ConversationRenderer
from trainer.data.chat.templates import ChatTemplate, Conversation
from trainer.data.documents import TextChunk
from trainer.data.files.local_files import open_regular_file
from trainer.data.tokens.control_tokens import ControlTokens
from trainer.data.tokens.tokenizers import AUTO, BYTES
from trainer.errors import DataError

PLAIN = "plain"
_TEMPLATE_FILE, _TOKENIZER_CONFIG = "chat_template.jinja", "tokenizer_config.json"
_MORE_TEMPLATES, _WITH_TOOLS = "additional_chat_templates", "tool_use"
_ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
_MOST_BYTES = 16 << 20  # of a template, and of tokenizer_config.json


def find_chat_template(word: str, tokenizer: str, end: str, moment: str = "") -> ChatTemplate:
    """Find the template of `chat=`.

    Args:
        word: `auto` for the tokenizer's own, or the plain one where it has none; `plain`; or the path of a template.
        tokenizer: The path of tokenizer.json, or `bytes`. Its own template is in a file beside it.
        end: The text of the token that ends a document.
        moment: What a template gets as the present, as ISO 8601 writes it.

    Raises:
        DataError: A file cannot be read.
    """
    special = {"eos_token": end}
    if word == PLAIN:
        return ChatTemplate(name="the plain template", special=special)
    config: Mapping[str, Any] = {}
    beside = None if tokenizer in (AUTO, BYTES) else Path(tokenizer).expanduser().parent
    if beside is not None and (beside / _TOKENIZER_CONFIG).is_file():
        config = _read_json(beside / _TOKENIZER_CONFIG)
        named = {f"{role}_token": config.get(f"{role}_token") for role in _ROLES}
        named |= _as_mapping(config.get("extra_special_tokens"))
        special |= {name: text for name, value in named.items() if (text := _text_of_token(value))}
    if word != AUTO:
        if not Path(word).expanduser().exists():
            raise DataError(
                f"chat={word}: no such file: name a template's file, auto for the tokenizer's own, or plain"
            )
        return ChatTemplate(name=word, text=_read(Path(word).expanduser()), special=special, moment=moment)
    if beside is not None and (beside / _TEMPLATE_FILE).is_file():
        path, other = beside / _TEMPLATE_FILE, beside / _MORE_TEMPLATES / f"{_WITH_TOOLS}.jinja"
        with_tools = _read(other) if other.is_file() else ""
        return ChatTemplate(name=str(path), text=_read(path), with_tools=with_tools, special=special, moment=moment)
    own = config.get("chat_template")
    text = _choose_named(own, "default")
    if text and beside is not None:
        with_tools = "" if isinstance(own, str) else _choose_named(own, _WITH_TOOLS)
        name = str(beside / _TOKENIZER_CONFIG)
        return ChatTemplate(name=name, text=text, with_tools=with_tools, special=special, moment=moment)
    return ChatTemplate(name="the plain template", special={"eos_token": end})


class ChatReader:
    """Turns the rows of chat data into texts."""

    def __init__(
        self,
        template: ChatTemplate,
        control: ControlTokens,
        form: str = ANY_FORM,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Compile the template.

        Args:
            template: Of the messages.
            control: Tokens that are text where messages have them.
            form: Of the rows; `auto` finds it for each row.
            report: Prints a line when a row of another form comes.

        Raises:
            ConfigError: The template is wrong, or the library `jinja2` is missing.
        """
        self._renderer = ConversationRenderer(template, control)
        self._control = control
        self._template = template.name
        self._form = form
        self._forms: set[str] = set()
        self._report = report
        self._notes = ChatNotes(template.name, self._render_text)

    def read_row(self, row: Mapping[str, Any], where: str) -> Iterator[TextChunk]:
        """Yield the text of a row.

        Args:
            row: Of a form of trainer/data/chat/conversations.py.
            where: File and line, for messages.

        Raises:
            DataError: The row has another form, or the template refuses it. The next row can be read.
        """
        form = find_form(row) if self._form == ANY_FORM else self._form
        try:
            conversation = read_conversation(row, form)
            if self._form == ANY_FORM:
                check_unread_keys(row, form, conversation)
        except DataError as error:
            raise DataError(f"{where} {error}" if not form else f"{where}: {error}") from error
        how = "as it is, without a template" if isinstance(conversation, Completion) else f"with {self._template}"
        unread = ", ".join(f"`{key}`" for key in list_unread_keys(row, form))
        self._report_form(f"`{form}`, {how}{f'; not read: {unread}' if unread else ''}", where)
        if isinstance(conversation, Completion):
            found = self._take(conversation)
        else:
            try:
                found = self._render(conversation)
            except DataError as error:
                raise DataError(f"{where}: {error}") from error
            self._notes.add_messages(conversation, found.data.decode(), where)
        self._notes.add_text(found, where)
        yield found

    def list_notes(self) -> list[str]:
        """Return what was unusual in the rows that were read."""
        return self._notes.list_lines()

    def end(self) -> None:
        """End the template's process."""
        self._renderer.end()

    def _report_form(self, form: str, where: str) -> None:
        if form not in self._forms:
            self._forms.add(form)
            self._report(f"{where}: chat data of the form {form}")

    def _render(self, conversation: Conversation) -> TextChunk:
        found = self._renderer.render(conversation)
        return TextChunk(found.text.encode(), is_last=True, replies=found.replies, literal=found.literal)

    def _render_text(self, conversation: Conversation) -> str:
        return self._renderer.render(conversation).text

    def _take(self, row: Completion) -> TextChunk:
        before, reply = (text.encode(errors="replace").decode() for text in (row.prompt, row.completion))
        text = before + reply
        replies = ((len(before), len(text)),)
        literal = self._control.list_literal(text, b"\1" * len(text))
        return TextChunk(text.encode(), is_last=True, replies=replies, trains_end=True, literal=literal)


def _as_mapping(value: Any) -> Mapping[str, Any]:
    """Return a JSON object; an empty one for anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _choose_named(value: Any, name: str) -> str:
    """Return the template of tokenizer_config.json: a text, or of a list of named ones the one of that name."""
    if isinstance(value, str):
        return value
    named = [_as_mapping(one) for one in cast("list[object]", value)] if isinstance(value, list) else []
    return next((str(one.get("template", "")) for one in named if one.get("name") == name), "")


def _text_of_token(value: Any) -> str:
    """Return the text of a special token: itself, or an object that describes it."""
    return str(_as_mapping(value).get("content", "")) if isinstance(value, dict) else str(value or "")


def _read(path: Path) -> str:
    try:
        with open_regular_file(path) as file:
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise DataError(f"it has more than {_MOST_BYTES >> 20} MiB")
        return text.decode()
    except (OSError, ValueError, DataError) as error:
        raise DataError(f"{path} cannot be read as a chat template: {error}") from error


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        content: Any = json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    return _as_mapping(content)
