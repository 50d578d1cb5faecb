"""Forms of chat data: what the rows of files have, as conversations.

    messages   `messages`: OpenAI's, each with `role` and `content`, which is text, a list of parts, or null beside
               `tool_calls`; `system` and `tools` may be beside them, also as JSON. An assistant's message of
               `weight` 0, or `train` false, is not trained on
    sharegpt   `conversations`: each with `from` and `value`; `system` and `tools` may be beside them
    prompt     `prompt` and `completion`, both messages, as above, or both text, which is taken as it is
    alpaca     `instruction`, `input`, which follows in a new line, and `output`; `system` and `history`, a
               list of pairs, may be beside them

A row may have the keys of several forms, as data sets have a `prompt` that repeats the question of `messages`. The form
that stands first in this list is read. A row whose other keys have text that is not in it is refused.

Sources: "Dataset formats and types", TRL's documentation (huggingface.co/docs/trl/dataset_formats, read 2026-11), for
messages, prompt and completion; LLaMA-Factory, data/README.md, for ShareGPT and Alpaca.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Any, cast

from trainer.data.chat.templates import Conversation, Message
from trainer.errors import DataError

AUTO = "auto"
ASSISTANT = "assistant"
_ROLES: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("human", "user"), "user"),
        **dict.fromkeys(("gpt", "assistant", "chatgpt", "bing", "bard", "model", "bot"), ASSISTANT),
        **dict.fromkeys(("tool", "observation", "function", "function_response", "tool_response"), "tool"),
        **dict.fromkeys(("function_call", "tool_call"), "call"),
        "system": "system",
        "developer": "developer",
    }
)
"""The role of each word in `from`; `call` is a reply that calls a tool."""
_LISTS = ("messages", "conversations", "conversation")
_KEYS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "messages": _LISTS,
        "sharegpt": _LISTS,
        "prompt": ("prompt", "completion"),
        "alpaca": ("instruction", "output"),
    }
)
"""The keys of each form, of which `messages` and `sharegpt` read the first that is filled."""
_SYSTEM = ("system", "system_prompt")
"""Keys beside messages that have the one of the role `system`."""
_TEXT_PARTS = (None, "text", "input_text", "output_text")
"""Types of parts that have a `text`, of OpenAI's two interfaces."""


@dataclass(frozen=True, slots=True)
class Completion:
    """Text that is taken as it is, and the text after it, which is trained on."""

    prompt: str
    completion: str


def find_form(row: Mapping[str, Any]) -> str:
    """Return the form of a row; "" for none."""
    for key in ("messages", "conversations", "conversation"):
        first = next(iter(_list_objects(row.get(key))), None)
        if first is not None:
            return "sharegpt" if "from" in first and "role" not in first else "messages"
    if "messages" in row:
        return "messages"
    if "prompt" in row and "completion" in row:
        return "prompt"
    return "alpaca" if "instruction" in row and "output" in row else ""


def read_conversation(row: Mapping[str, Any], form: str) -> Conversation | Completion:
    """Return the conversation of a row.

    Raises:
        DataError: The row has another form, or no text.
    """
    match form:
        case "messages":
            messages = _read_messages(next((row[key] for key in _LISTS if row.get(key)), None))
            return _converse(row, [*_read_system(row, messages), *messages], 0)
        case "sharegpt":
            return _converse(row, _read_sharegpt(row), 0)
        case "alpaca":
            return _converse(row, _read_alpaca(row), 0)
        case "prompt" if "prompt" in row and "completion" in row:
            prompt, completion = row["prompt"], row["completion"]
            if isinstance(prompt, str) and isinstance(completion, str):
                if key := next((key for key in _SYSTEM if row.get(key)), ""):
                    raise DataError(
                        f"text gets no template, so `{key}` would be lost: make `prompt` a list of messages"
                    )
                return Completion(prompt, completion)
            if isinstance(prompt, str) or isinstance(completion, str):
                raise DataError("`prompt` and `completion` are of two kinds: both must be text, or both messages")
            before = _read_messages(prompt)
            before = [*_read_system(row, before), *before]
            return _converse(row, [*before, *_read_messages(completion)], len(before))
        case _:
            raise DataError(_describe_unknown(row))


def list_unread_keys(row: Mapping[str, Any], form: str) -> list[str]:
    """Return the keys of other forms that the row has, too."""
    read = _KEYS[form] if _KEYS[form] != _LISTS else [key for key in _LISTS if row.get(key)][:1]
    return [key for key in dict.fromkeys(chain(*_KEYS.values())) if row.get(key) and key not in read]


def check_unread_keys(row: Mapping[str, Any], form: str, conversation: Conversation | Completion) -> None:
    """Refuse a row that has text under keys that are not read.

    Raises:
        DataError: The conversation does not have the text of such a key.
    """
    if isinstance(conversation, Completion):
        known = [conversation.prompt, conversation.completion]
    else:
        known = [text for message in conversation.messages for text in list_texts(message.get("content"))]
    for key in list_unread_keys(row, form):
        for text in _list_row_texts(row[key]):
            if not any(text.strip() in other for other in known):
                raise DataError(
                    f"chat data of the form `{form}` has a `{key}`, too, whose text would be lost: remove that key, or "
                    f"choose with chat_form= ({', '.join(_KEYS)})"
                )


def list_texts(content: Any) -> list[str]:
    """Return the texts of a message's content: itself, or those of its parts."""
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in _list_objects(content) if isinstance(part.get("text"), str)]


def _list_row_texts(value: Any) -> list[str]:
    """Return the texts of a key that is not read: a text, or messages of any form."""
    if isinstance(value, str):
        return [value]
    return [text for one in _list_objects(value) for text in list_texts(one.get("content", one.get("value")))]


def _describe_unknown(row: Mapping[str, Any]) -> str:
    keys = ", ".join(str(key) for key in list(row)[:8]) or "none"
    if "chosen" in row:
        return "has preferences (`chosen`), which are not trained on: write `messages`, or `prompt` and `completion`"
    return (
        "has neither `messages`, nor `conversations`, nor `instruction` and `output`, nor `prompt` and `completion`, "
        f"as chat= needs; its keys are {keys}: rename them, as with jq -c '{{prompt: .question, completion: .answer}}' "
        "FILE > ROWS.jsonl"
    )


def _converse(row: Mapping[str, Any], messages: Sequence[Message], first: int) -> Conversation:
    """Return the conversation of messages; the assistant's from the index `first` on are trained on."""
    trained = tuple(
        index
        for index, message in enumerate(messages)
        if index >= first and message["role"] == ASSISTANT and _is_trained(message, index)
    )
    tools = _parse_json(row.get("tools"))
    if not tools and row.get("functions"):
        functions = _list_objects(_parse_json(row["functions"]))
        tools = [one if one.get("type") == "function" else {"type": "function", "function": one} for one in functions]
    variables = row.get("chat_template_kwargs")
    return Conversation(
        messages=messages,
        trained=trained,
        tools=_check_objects(tools, "tools"),
        documents=_check_objects(row.get("documents"), "documents"),
        variables=cast("dict[str, Any]", variables) if isinstance(variables, dict) else {},
    )


def _is_trained(message: Message, index: int) -> bool:
    """Return what `weight` or `train` says of a message; without them it is trained on."""
    for key in ("weight", "train"):
        value = message.get(key)
        if value is not None and (not isinstance(value, (int, float)) or value not in (0, 1)):
            raise DataError(f"message {index + 1}: `{key}` is {json.dumps(value)[:40]}: it must be 0 or 1")
        if value is not None and not value:
            return False
    return True


def _read_messages(value: Any) -> list[Message]:
    messages = _list_objects(value)
    if not messages or len(messages) != len(value) or not all(isinstance(one.get("role"), str) for one in messages):
        raise DataError("messages must be a list of {role, content}, with at least one")
    return [_check_message(message, f"message {number}") for number, message in enumerate(messages, start=1)]


def _check_message(message: Message, name: str) -> Message:
    call = message.get("function_call")
    if call and not message.get("tool_calls"):
        message = {**message, "tool_calls": [{"type": "function", "function": call}], "function_call": None}
    calls: Any = message.get("tool_calls")
    if calls and (not isinstance(calls, list) or len(_list_objects(calls)) != len(cast("list[object]", calls))):
        raise DataError(f"{name}: `tool_calls` must be a list of objects")
    content = message.get("content")
    if isinstance(content, str):
        return message
    if calls and content in (None, []):
        return {**message, "content": None}
    if isinstance(content, list) and content:
        return {**message, "content": [_read_part(part, name) for part in cast("list[object]", content)]}
    kind = type(cast("object", content)).__name__
    found = "null" if content is None else "an empty list" if kind == "list" else f"of the type {kind}"
    raise DataError(f"{name}: its content is {found}, not text: only text can be trained on")


def _read_part(part: Any, name: str) -> Mapping[str, Any]:
    """Return a part of a message as templates read it."""
    entries = cast("dict[str, Any]", part) if isinstance(part, dict) else {"text": part}
    kind, text = entries.get("type"), entries.get("text")
    if kind in _TEXT_PARTS and isinstance(text, str):
        return {**entries, "type": "text"}
    if isinstance(entries.get("thinking"), str):
        return entries
    found = f"type `{str(kind)[:40]}`" if kind is not None and kind not in _TEXT_PARTS else "a kind that has no `text`"
    raise DataError(f"{name}: its content has a part of {found}: only text can be trained on")


def _read_sharegpt(row: Mapping[str, Any]) -> list[Message]:
    turns = _list_objects(next((row[key] for key in _LISTS if row.get(key)), None))
    messages: list[Message] = []
    for turn in turns:
        role, value = _ROLES.get(str(turn.get("from")).lower()), turn.get("value")
        if role is None:
            raise DataError(f"a turn is from {str(turn.get('from'))[:40]!r}: known are {', '.join(_ROLES)}")
        if not isinstance(value, str):
            raise DataError("the `value` of a turn is not text: only text can be trained on")
        message = _read_call(value) if role == "call" else {"role": role, "content": value}
        messages.append({**message, **{key: turn[key] for key in ("weight", "train") if key in turn}})
    if not messages:
        raise DataError("`conversations` must be a list of {from, value}, with at least one")
    return [*_read_system(row, messages), *messages]


def _read_call(value: str) -> Message:
    """Return a message that calls tools, or of a text that is no such call, the text."""
    try:
        content: Any = json.loads(value)
    except (ValueError, RecursionError):
        return {"role": ASSISTANT, "content": value}
    calls = _list_objects(content if isinstance(content, list) else [content])
    if not calls or not all(isinstance(call.get("name"), str) for call in calls):
        return {"role": ASSISTANT, "content": value}
    return {"role": ASSISTANT, "content": "", "tool_calls": [{"type": "function", "function": call} for call in calls]}


def _read_alpaca(row: Mapping[str, Any]) -> list[Message]:
    if not all(isinstance(row.get(key), str) for key in ("instruction", "output")):
        raise DataError("`instruction` and `output` must be text")
    if not isinstance(row.get("input") or "", str):
        raise DataError("`input` must be text")
    history: Any = row.get("history") or []
    if not isinstance(history, list) or not all(_is_pair(pair) for pair in cast("list[object]", history)):
        raise DataError("`history` must be a list of pairs of texts")
    pairs = cast("list[tuple[str, str]]", history)
    question = "\n".join(text for text in (row["instruction"], row.get("input")) if text)
    messages = [
        message
        for question, answer in [*pairs, (question, row["output"])]
        for message in ({"role": "user", "content": question}, {"role": ASSISTANT, "content": answer})
    ]
    return [*_read_system(row, messages), *messages]


def _is_pair(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(cast("list[object]", value)) == 2
        and all(isinstance(text, str) for text in cast("list[object]", value))
    )


def _read_system(row: Mapping[str, Any], messages: Sequence[Message]) -> Iterator[Message]:
    """Yield the message of the key `system`, unless the first message is the same.

    Raises:
        DataError: It is not text, or there is another one.
    """
    key = next((key for key in _SYSTEM if row.get(key)), "")
    if not key:
        return
    if not isinstance(row[key], str):
        raise DataError(f"`{key}` must be text")
    first = next((one for one in messages if one["role"] == "system"), None)
    if first is None:
        yield {"role": "system", "content": row[key]}
    elif row[key].strip() not in [text.strip() for text in list_texts(first.get("content"))]:
        raise DataError(f"`{key}` is not the message of the role `system`: one of both would be lost; remove one")


def _parse_json(value: Any) -> Any:
    """Return a value that may be written as JSON, as Parquet files have it."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value or "null")
    except (ValueError, RecursionError) as error:
        raise DataError(f"`tools` is not JSON: {error}") from error


def _check_objects(value: Any, name: str) -> list[Any] | None:
    if not value:
        return None
    if not isinstance(value, list) or len(_list_objects(value)) != len(cast("list[object]", value)):
        raise DataError(f"`{name}` must be a list of objects")
    return cast("list[object]", value)


def _list_objects(value: Any) -> list[dict[str, Any]]:
    """Return the JSON objects of a list; none of anything else."""
    return [one for one in cast("list[object]", value) if isinstance(one, dict)] if isinstance(value, list) else []
