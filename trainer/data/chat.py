"""Chat data: conversations as text, with the places of the replies that are trained on.

A row of a .jsonl file has `messages`, or `prompt` and `completion`. The latter are text, which is taken as it is, or
messages. These are the conventional names ("Dataset formats and types", TRL's documentation,
huggingface.co/docs/trl/dataset_formats, read 2026-11).

A template turns messages into text: the tokenizer's own, a Jinja template that gets the variables and functions of
transformers (utils/chat_template_utils.py, 5.24), or else the one of `_render_plainly`. A template does not get
the date (`strftime_now`), so that the same command makes the same tokens.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, cast

from trainer.data.documents import TextChunk
from trainer.data.tokenizers import AUTO, BYTES, Span
from trainer.errors import ConfigError, DataError

PLAIN = "plain"
ASSISTANT = "assistant"
_TEMPLATE_FILE, _TOKENIZER_CONFIG = "chat_template.jinja", "tokenizer_config.json"
_SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token")

Message: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTemplate:
    """How messages become text.

    Attributes:
        name: Where the template is from, for people.
        text: The Jinja template; empty for the plain one.
        special: The text of the tokenizer's special tokens, by variable of the template.
    """

    name: str
    text: str = ""
    special: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps([self.text, dict(self.special)], sort_keys=True).encode()).hexdigest()


def find_chat_template(word: str, tokenizer: str, end: str) -> ChatTemplate:
    """Find the template of `chat=`.

    Args:
        word: `auto` for the tokenizer's own, or the plain one where it has none; `plain`; or the path of a template.
        tokenizer: The path of tokenizer.json, or `bytes`. Its own template is in a file beside it.
        end: The text of the token that ends a document.

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
        special |= {name: text for name in _SPECIAL if (text := _text_of_token(config.get(name)))}
    if word != AUTO:
        return ChatTemplate(name=word, text=_read(Path(word).expanduser()), special=special)
    if beside is not None and (beside / _TEMPLATE_FILE).is_file():
        path = beside / _TEMPLATE_FILE
        return ChatTemplate(name=str(path), text=_read(path), special=special)
    own = _choose_default(config.get("chat_template"))
    if own and beside is not None:
        return ChatTemplate(name=str(beside / _TOKENIZER_CONFIG), text=own, special=special)
    return ChatTemplate(name="the plain template", special={"eos_token": end})


class ChatReader:
    """Turns the rows of chat data into texts."""

    def __init__(self, template: ChatTemplate) -> None:
        """Compile the template.

        Raises:
            ConfigError: The template is wrong, or the library `jinja2` is missing.
        """
        self._template = template
        self._compiled = _compile(template) if template.text else None

    def read_row(self, row: Mapping[str, Any], where: str) -> Iterator[TextChunk]:
        """Yield the text of a row.

        Args:
            row: With `messages`, or `prompt` and `completion`.
            where: File and line, for messages.

        Raises:
            DataError: The row has another form, or the template refuses it.
        """
        if "messages" in row:
            yield self._convert(_check_messages(row["messages"], where), 0, where)
            return
        if "prompt" not in row or "completion" not in row:
            raise DataError(f"{where} has neither `messages` nor `prompt` and `completion`, as chat= needs")
        prompt, completion = row["prompt"], row["completion"]
        if isinstance(prompt, str) and isinstance(completion, str):
            before, reply = _make_encodable(prompt), _make_encodable(completion)
            replies = ((len(before), len(before) + len(reply)),)
            yield TextChunk((before + reply).encode(), is_last=True, replies=replies, trains_end=True)
            return
        before_it = _check_messages(prompt, where)
        yield self._convert([*before_it, *_check_messages(completion, where)], len(before_it), where)

    def _convert(self, messages: Sequence[Message], first: int, where: str) -> TextChunk:
        """Return the text of messages; the assistant's from the index `first` on are trained on."""
        whole = self._render(messages, where)
        replies = tuple(
            self._find_reply(whole, messages, index, where)
            for index, message in enumerate(messages)
            if index >= first and message["role"] == ASSISTANT
        )
        return TextChunk(whole.encode(), is_last=True, replies=replies)

    def _find_reply(self, whole: str, messages: Sequence[Message], index: int, where: str) -> Span:
        """Return the place of a reply, with the token that ends it.

        It begins where the model would begin to write: after the earlier messages and the generation prompt.
        """
        before = self._render(messages[:index], where, generation=True)
        through = self._render(messages[: index + 1], where)
        if not through.startswith(before) or not whole.startswith(before):
            raise DataError(
                f"{where}: {self._template.name} changes the text before a reply: use another with chat=FILE"
            )
        if whole.startswith(through):
            return len(before), len(through)
        # Templates of reasoning models leave the reasoning out of all replies but the last, as Qwen 3's does.
        content = str(messages[index]["content"]).strip()
        at, in_through = whole.find(content, len(before)), through.rfind(content)
        ending = through[in_through + len(content) :]
        if not content or at < 0 or in_through < 0 or not whole.startswith(ending, at + len(content)):
            raise DataError(f"{where}: {self._template.name} changes an earlier reply: use another with chat=FILE")
        return len(before), at + len(content) + len(ending)

    def _render(self, messages: Sequence[Message], where: str, *, generation: bool = False) -> str:
        special = self._template.special
        if self._compiled is None:
            return _make_encodable(_render_plainly(messages, special["eos_token"], generation=generation))
        try:
            text: str = self._compiled.render(messages=messages, add_generation_prompt=generation, **special)
        except Exception as error:  # a template may do anything that Jinja can
            if not messages:
                return ""  # some refuse to render nothing
            raise DataError(f"{where}: {self._template.name}: {type(error).__name__}: {error}") from error
        return _make_encodable(text)


def _render_plainly(messages: Sequence[Message], end: str, *, generation: bool) -> str:
    """Write each message after a line with its role, and the end token after a reply: as Zephyr's template."""
    parts = [
        f"<|{message['role']}|>\n{message['content']}{end if message['role'] == ASSISTANT else ''}"
        for message in messages
    ]
    return "\n".join([*parts, f"<|{ASSISTANT}|>\n"] if generation else parts)


def _compile(template: ChatTemplate) -> Any:
    try:
        from jinja2 import TemplateError, nodes
        from jinja2.ext import Extension, loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        raise ConfigError("chat templates need the library `jinja2`: pip install jinja2, or chat=plain") from None

    class Generation(Extension):
        """Render what is between `generation` and `endgeneration`; transformers also notes its place."""

        tags = {"generation"}  # noqa: RUF012  # as Jinja declares it

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True)).set_lineno(line)

    def refuse(message: str) -> None:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    functions: dict[str, Any] = {"raise_exception": refuse}
    environment.globals.update(functions)
    try:
        return environment.from_string(template.text)
    except TemplateError as error:
        raise ConfigError(f"chat={template.name}: not a chat template: {error}") from error


def _to_json(value: Any, **options: Any) -> str:
    """Implement the filter: Jinja's own escapes the characters of HTML."""
    chosen: dict[str, Any] = {"ensure_ascii": False, **options}
    return json.dumps(value, **chosen)


def _as_mapping(value: Any) -> Mapping[str, Any]:
    """Return a JSON object; an empty one for anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _check_messages(value: Any, where: str) -> list[Message]:
    messages = [_as_mapping(one) for one in cast("list[object]", value)] if isinstance(value, list) else []
    if not messages or not all(isinstance(one.get("role"), str) for one in messages):
        raise DataError(f"{where}: messages must be a list of {{role, content}}, with at least one")
    if not all(isinstance(one.get("content"), str) for one in messages):
        raise DataError(f"{where}: the content of a message is not text: only text can be trained on")
    return messages


def _make_encodable(text: str) -> str:
    """Replace what is no character by itself, half of a surrogate pair, which JSON can name."""
    return text.encode(errors="replace").decode()


def _choose_default(value: Any) -> str:
    """Return the template of tokenizer_config.json: a text, or of a list of named ones the one named `default`."""
    if isinstance(value, str):
        return value
    named = [_as_mapping(one) for one in cast("list[object]", value)] if isinstance(value, list) else []
    return next((str(one.get("template", "")) for one in named if one.get("name") == "default"), "")


def _text_of_token(value: Any) -> str:
    """Return the text of a special token: itself, or an object that describes it."""
    return str(_as_mapping(value).get("content", "")) if isinstance(value, dict) else str(value or "")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as a chat template: {error}") from error


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        content: Any = json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    return _as_mapping(content)
