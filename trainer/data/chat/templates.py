"""Chat templates: Jinja with the variables and functions of transformers' `apply_chat_template`.

They are those of transformers 5.24 (utils/chat_template_utils.py; tokenization_utils_base.py, `apply_chat_template`):
`messages`, `tools`, `documents`, `add_generation_prompt`, the text of special tokens, `raise_exception`,
`strftime_now`, its own `tojson`, `break` and `continue`, and blocks of `generation`. Only the moment that
`strftime_now` names is fixed, so that the same command makes the same tokens.
"""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from trainer.errors import ConfigError

Message: TypeAlias = Mapping[str, Any]
REASONING = ("reasoning_content", "thinking", "reasoning")
"""Keys of a message that have its reasoning."""
_SIMPLE_FILTERS = frozenset(
    {"trim", "upper", "lower", "title", "capitalize", "tojson", "length", "count", "first", "last", "default", "list"}
    | {"string", "items", "selectattr", "rejectattr", "select", "reject", "map", "join", "dictsort", "sort", "safe"}
)
_SIMPLE_METHODS = frozenset(
    {"strip", "lstrip", "rstrip", "split", "startswith", "endswith", "upper", "lower", "items", "keys", "values", "get"}
)
"""Filters and methods that change strings at their ends and in case only."""
_DATE_FUNCTION = "strftime_now"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTemplate:
    """How messages become text.

    Attributes:
        name: Where the template is from, for people.
        text: The Jinja template; empty for the plain one.
        with_tools: The Jinja template of conversations with tools; empty: the same.
        special: The text of the tokenizer's special tokens, by variable of the template.
        moment: What `strftime_now` formats, as ISO 8601 writes it; empty: the present.
    """

    name: str
    text: str = ""
    with_tools: str = ""
    special: Mapping[str, str] = field(default_factory=dict[str, str])
    moment: str = ""

    @property
    def uses_date(self) -> bool:
        """Whether a text may depend on the date."""
        return _DATE_FUNCTION in self.text + self.with_tools

    @property
    def digest(self) -> str:
        parts: list[Any] = [self.text, dict(self.special)]
        parts += [self.with_tools] if self.with_tools else []
        parts += [self.moment] if self.uses_date else []
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A conversation, as rows of any form have it.

    Attributes:
        messages: Each with `role`, and `content` or `tool_calls`.
        trained: Which of them are trained on.
        tools: Descriptions of the functions that may be called; None: there are none.
        documents: Texts that may be quoted; None: there are none.
        variables: Further variables of the template.
    """

    messages: Sequence[Message]
    trained: Sequence[int]
    tools: Sequence[Any] | None = None
    documents: Sequence[Any] | None = None
    variables: Mapping[str, Any] = field(default_factory=dict[str, Any])


class TextTooLongError(Exception):
    """A template makes more text than a conversation can have."""


Render: TypeAlias = Callable[[Conversation, Sequence[Message], bool, int], str]
"""`render(conversation, messages, generation, most)` returns the text of some of its messages, of `most` characters at
most, with the generation prompt or without."""


def compile_template(template: ChatTemplate) -> Render:
    """Compile a template.

    Raises:
        ConfigError: It is wrong, or the library `jinja2` is missing.
    """
    if not template.text:
        return lambda conversation, messages, generation, most: _render_plainly(
            messages, template.special["eos_token"], generation=generation
        )
    plain = _compile(template.text, template)
    with_tools = _compile(template.with_tools, template) if template.with_tools else plain

    def render(conversation: Conversation, messages: Sequence[Message], generation: bool, most: int) -> str:
        compiled = plain if conversation.tools is None else with_tools
        variables: dict[str, Any] = {
            **template.special,
            **conversation.variables,
            "messages": [complete_message(message) for message in messages],
            "tools": conversation.tools,
            "documents": conversation.documents,
            "add_generation_prompt": generation,
        }
        pieces: list[str] = []
        length = 0
        for piece in compiled.generate(**variables):
            pieces.append(piece)
            length += len(piece)
            if length > most:
                raise TextTooLongError(f"it makes more than {most:,} characters of this conversation")
        return "".join(pieces)

    return render


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateStrings:
    """The strings of a template.

    Attributes:
        sought: Those of its expressions: the keys that it reads, and the texts that it looks for or writes.
        written: All that it may write, beside what messages have.
        is_simple: It writes these strings and messages as they are, apart from space at ends, case and JSON.
    """

    sought: frozenset[str]
    written: frozenset[str]
    is_simple: bool


def list_strings(template: ChatTemplate) -> TemplateStrings:
    """Return the strings of a template."""
    if not template.text:
        written = frozenset({"<|", "|>\n", "\n", template.special["eos_token"]})
        return TemplateStrings(sought=frozenset({"function"}), written=written, is_simple=True)
    from jinja2 import nodes

    environment = _open_environment(template)
    trees: list[Any] = [environment.parse(text) for text in (template.text, template.with_tools)]
    constants = {str(node.value) for tree in trees for node in tree.find_all(nodes.Const)}
    keys = {str(node.attr) for tree in trees for node in tree.find_all(nodes.Getattr)}
    texts = {str(node.data) for tree in trees for node in tree.find_all(nodes.TemplateData)}
    filters = [node for tree in trees for node in tree.find_all(nodes.Filter)]
    called = {node.node.attr for tree in trees for node in tree.find_all(nodes.Call) if hasattr(node.node, "attr")}
    options = any(node.args or node.kwargs for node in filters if node.name == "tojson")
    simple = {node.name for node in filters} <= _SIMPLE_FILTERS and called <= _SIMPLE_METHODS and not options
    return TemplateStrings(
        sought=frozenset(constants | keys),
        written=frozenset(constants | texts | {*template.special.values()}),
        is_simple=simple,
    )


def complete_message(message: Message) -> Message:
    """Return a message without keys that are null, and with its reasoning under each name that templates read."""
    known = {key: value for key, value in message.items() if value is not None}
    reasoning = next((known[key] for key in REASONING if key in known), None)
    return known if reasoning is None else {"thinking": reasoning, **known, "reasoning_content": reasoning}


def _render_plainly(messages: Sequence[Message], end: str, *, generation: bool) -> str:
    """Write each message after a line with its role, and the end token after a reply: as Zephyr's template."""
    parts = [
        f"<|{message['role']}|>\n{_write_plainly(message)}{end if message['role'] == 'assistant' else ''}"
        for message in messages
    ]
    return "\n".join([*parts, "<|assistant|>\n"] if generation else parts)


def _write_plainly(message: Message) -> str:
    """Return the content of a message, and a line of JSON for each call of a tool."""
    calls = [json.dumps(call.get("function", call), ensure_ascii=False) for call in message.get("tool_calls") or ()]
    return "\n".join([*([message["content"]] if message.get("content") else []), *calls])


def _compile(text: str, template: ChatTemplate) -> Any:
    try:
        from jinja2 import TemplateError
    except ImportError:
        raise ConfigError("chat templates need the library `jinja2`: pip install jinja2, or chat=plain") from None
    try:
        return _open_environment(template).from_string(text)
    except TemplateError as error:
        raise ConfigError(f"not a chat template: {error}") from error


def _open_environment(template: ChatTemplate) -> Any:
    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """Render what is between `generation` and `endgeneration`; transformers also notes its place."""

        tags = {"generation"}  # noqa: RUF012  # as Jinja declares it

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            # As a call: what is assigned within is not seen behind it.
            return nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

        def _render(self, caller: Any) -> Any:
            return caller()

    def refuse(message: str) -> None:
        raise TemplateError(message)

    moment = datetime.datetime.fromisoformat(template.moment) if template.moment else None

    def format_date(layout: str) -> str:
        return (moment or datetime.datetime.now()).strftime(layout)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    functions: dict[str, Any] = {"raise_exception": refuse, _DATE_FUNCTION: format_date}
    environment.globals.update(functions)
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    """Implement the filter: Jinja's own escapes the characters of HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
