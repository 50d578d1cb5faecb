"""The forms of a message that a template reads, found by trying: content in parts, and arguments of calls as JSON.

Messages of OpenAI's form have both. Many templates take the content as one text only, and would write a list as Python
does; many take the arguments as an object, and would quote the JSON once more. A server joins the text of the parts
with a line's end, and parses the arguments, before it calls such a template (vLLM, entrypoints/chat_utils.py); so does
this module, so that a model is trained on what it is asked later.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

from trainer.data.chat.templates import Conversation, Message
from trainer.errors import DataError

_WORD = "cjqzxw"
_QUESTION: Message = {"role": "user", "content": _WORD}


@dataclass(frozen=True)
class MessageForms:
    """The forms that a template reads.

    Attributes:
        render: Returns the text of a conversation; None where the template refuses it.
    """

    render: Callable[[Conversation], str | None]

    def fit(self, conversation: Conversation) -> Conversation:
        """Return the conversation in forms that the template reads.

        Raises:
            DataError: A part is not text, and the template reads text alone.
        """
        if not any(isinstance(one.get("content"), list) or one.get("tool_calls") for one in conversation.messages):
            return conversation
        return replace(conversation, messages=[self._fit(message) for message in conversation.messages])

    def _fit(self, message: Message) -> Message:
        content, calls = message.get("content"), message.get("tool_calls")
        if isinstance(content, list) and not self._reads_parts:
            message = {**message, "content": _join(cast("list[object]", content))}
        if calls and not self._reads_json:
            message = {**message, "tool_calls": [_parse_call(call) for call in calls]}
        return message

    @cached_property
    def _reads_parts(self) -> bool:
        message: Message = {"role": "user", "content": [{"type": "text", "text": _WORD}]}
        found = self.render(Conversation(messages=[message], trained=()))
        return found is not None and _WORD in found and "'text'" not in found and '"text"' not in found

    @cached_property
    def _reads_json(self) -> bool:
        """Whether the template leaves arguments as JSON as they are: it neither quotes nor refuses them."""
        arguments = json.dumps({_WORD: 1})
        call = {"type": "function", "id": "123456789", "function": {"name": _WORD, "arguments": arguments}}
        reply: Message = {"role": "assistant", "content": "", "tool_calls": [call]}
        found = self.render(Conversation(messages=[_QUESTION, reply], trained=(1,)))
        return found is not None and arguments in found


def _join(parts: Sequence[Any]) -> str:
    texts = [part if isinstance(part, str) else part.get("text") for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise DataError("the content of a message has parts that are not text, and the template reads text alone")
    return "\n".join(cast("list[str]", texts))


def _parse_call(call: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a call with its arguments as an object, where they are JSON of one."""
    holder = call.get("function")
    if not isinstance(holder, dict):
        return call
    function = cast("dict[str, Any]", holder)
    try:
        arguments: Any = json.loads(function["arguments"])
    except (KeyError, TypeError, ValueError, RecursionError):
        return call
    return {**call, "function": {**function, "arguments": arguments}} if isinstance(arguments, dict) else call
