"""Templates render as transformers' `apply_chat_template`, and their replies are found."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from chat_tokenizers import byte_bpe
from model_templates import TEMPLATES

from trainer.data.chat.origins import map_texts
from trainer.data.chat.reader import find_chat_template
from trainer.data.chat.rendering import open_renderer
from trainer.data.chat.templates import ChatTemplate, Conversation, compile_template
from trainer.data.tokens.control_tokens import ControlTokens
from trainer.errors import DataError

TOKEN = re.compile(r"<\|\w+\|>|<\w+_of_\w+>|\[/?[A-Z_]+\]")
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "sum", "arguments": {"a": 1, "b": "é\n<&>"}}}
TOOL = {
    "type": "function",
    "function": {
        "name": "sum",
        "description": "Add <two> numbers",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": ["string", "null"]}, "c": {"enum": ["x", "y"]}},
            "required": ["a"],
        },
    },
}
ASK, ANSWER = {"role": "user", "content": "What is 1 + 2? "}, {"role": "assistant", "content": "\n3, é"}
SYSTEM = {"role": "system", "content": "Be short. /no_think"}
THOUGHT = {"role": "assistant", "content": "7", "reasoning_content": "3 + 4"}
INLINE = {"role": "assistant", "content": "<think>\nhm\n</think>\n\n5"}
CONVERSATIONS: Mapping[str, Conversation] = MappingProxyType(
    {
        "one": Conversation(messages=[ASK, ANSWER], trained=[1]),
        "several": Conversation(messages=[SYSTEM, ASK, ANSWER, ASK, ANSWER], trained=[2, 4]),
        "thoughts": Conversation(messages=[ASK, THOUGHT, ASK, INLINE, ASK, THOUGHT], trained=[1, 3, 5]),
        "tools": Conversation(
            messages=[
                SYSTEM,
                ASK,
                {"role": "assistant", "content": None, "tool_calls": [CALL]},
                {"role": "tool", "name": "sum", "content": '{"sum": 3}', "tool_call_id": "abcdefghi"},
                ANSWER,
                ASK,
                ANSWER,
            ],
            trained=[2, 4, 6],
            tools=[TOOL],
        ),
        "documents": Conversation(
            messages=[ASK, ANSWER],
            trained=[1],
            documents=[{"title": "t", "text": "x\n\ny"}, {"title": "u", "text": "é"}],
        ),
        "variables": Conversation(messages=[ASK, ANSWER], trained=[1], variables={"enable_thinking": False}),
        "wrong": Conversation(messages=[ASK, ASK, ANSWER], trained=[2]),
    }
)


@pytest.fixture(scope="module")
def library() -> Any:
    from transformers import PreTrainedTokenizerFast

    opener: Any = PreTrainedTokenizerFast
    return opener(tokenizer_object=byte_bpe(), **SPECIAL)


def outcome(render: Any) -> str:
    """Return the text, or the kind of error and its message."""
    try:
        return str(render())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("family", TEMPLATES)
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_template_renders_as_in_transformers(family: str, name: str, library: Any) -> None:
    conversation = CONVERSATIONS[name]
    messages = conversation.messages
    render = compile_template(ChatTemplate(name=family, text=TEMPLATES[family], special=SPECIAL))
    for count in range(1, len(messages) + 1):
        for generation in (False, True):
            expected = outcome(
                lambda count=count, generation=generation: library.apply_chat_template(
                    list(messages[:count]),
                    tools=conversation.tools,
                    documents=conversation.documents,
                    chat_template=TEMPLATES[family],
                    tokenize=False,
                    add_generation_prompt=generation,
                    **conversation.variables,
                )
            )
            found = outcome(
                lambda count=count, generation=generation: render(conversation, messages[:count], generation, 1_000_000)
            )
            assert found == expected


TRAINED = {
    ("several", "llama"): ["3, é<|eot_id|>"] * 2,
    ("tools", "llama"): [
        '{"name": "sum", "parameters": {"a": 1, "b": "é\\n<&>"}}<|eot_id|>',
        "3, é<|eot_id|>",
        "3, é<|eot_id|>",
    ],
    ("tools", "qwen3"): [
        '<tool_call>\n{"name": "sum", "arguments": {"a": 1, "b": "é\\n<&>"}}\n</tool_call><|im_end|>\n',
        "\n3, é<|im_end|>\n",
        "<think>\n\n</think>\n\n3, é<|im_end|>\n",
    ],
    ("thoughts", "qwen3"): ["7<|im_end|>\n", "5<|im_end|>\n", "<think>\n3 + 4\n</think>\n\n7<|im_end|>\n"],
    ("several", "mistral"): [" 3, é</s>"] * 2,
    ("several", "gpt-oss"): ["<|channel|>final<|message|>\n3, é<|end|>", "<|channel|>final<|message|>\n3, é<|return|>"],
    ("thoughts", "gpt-oss"): [
        "<|channel|>final<|message|>7<|end|>",
        "<|channel|>final<|message|><think>\nhm\n</think>\n\n5<|end|>",
        "<|channel|>analysis<|message|>3 + 4<|end|><|start|>assistant<|channel|>final<|message|>7<|return|>",
    ],
    ("documents", "command-r"): ["\n3, é<|END_OF_TURN_TOKEN|>"],
    ("one", "mistral"): [" 3, é</s>"],
    ("several", "gemma"): ["3, é<end_of_turn>\n"] * 2,
    ("one", "phi"): ["\n3, é<|end|></s>"],
    ("several", "phi"): ["\n3, é<|end|>", "\n3, é<|end|></s>"],
    ("thoughts", "deepseek"): ["7<|end_of_sentence|>", "\n\n5<|end_of_sentence|>", "7<|end_of_sentence|>"],
    ("several", "smol"): ["3, é<|im_end|>\n"] * 2,
}


@pytest.mark.parametrize(("name", "family"), TRAINED)
def test_replies_are_found(name: str, family: str) -> None:
    control = ControlTokens(("<|end|>", "<|return|>"))
    convert = open_renderer((ChatTemplate(name=family, text=TEMPLATES[family], special=SPECIAL), control))
    found = convert(CONVERSATIONS[name])
    assert [found.text[first:last] for first, last in found.replies] == TRAINED[name, family]


@pytest.mark.parametrize("family", TEMPLATES)
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_control_tokens_in_the_texts_of_a_conversation_are_text(name: str, family: str) -> None:
    control = ControlTokens((*SPECIAL.values(), *sorted(set(TOKEN.findall(TEMPLATES[family])))))
    convert = open_renderer((ChatTemplate(name=family, text=TEMPLATES[family], special=SPECIAL), control))
    conversation = replace(CONVERSATIONS[name], trained=())
    try:
        expected = control.find(convert(conversation).text)
    except DataError:
        return  # the template wants other conversations
    more = f" x{'y'.join(control.texts)}z"
    found = convert(map_texts(conversation, lambda text: text + more if " " in text else text))
    tokens = control.find(found.text, found.literal)
    assert [token for *_, token in tokens] == [token for *_, token in expected]
    assert found.literal


def test_a_template_that_leaves_calls_out_is_refused() -> None:
    convert = open_renderer((ChatTemplate(name="x", text=TEMPLATES["smol"], special=SPECIAL), ControlTokens()))
    with pytest.raises(DataError, match="does not write calls of tools"):
        convert(CONVERSATIONS["tools"])


def test_the_moment_of_a_date_is_fixed() -> None:
    template = ChatTemplate(name="x", text="{{ strftime_now('%d %b %Y %H:%M') }}", moment="2026-02-03T04:05:06")
    render = compile_template(template)
    assert render(CONVERSATIONS["one"], [], False, 100) == "03 Feb 2026 04:05"
    assert replace(template, moment="2026-02-04").digest != template.digest
    year = compile_template(ChatTemplate(name="x", text="{{ strftime_now('%Y') }}"))
    assert int(year(CONVERSATIONS["one"], [], False, 100)) >= datetime.date(2026, 1, 1).year


def test_a_tokenizer_with_several_templates_has_one_for_tools(tmp_path: Path, library: Any) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    named = [
        {"name": "tool_use", "template": "tools {{ x_token }}"},
        {"name": "default", "template": "plain {{ cls_token }}"},
    ]
    config = {"chat_template": named, "cls_token": {"content": "C"}, "extra_special_tokens": {"x_token": "X"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    found = find_chat_template("auto", str(tmp_path / "tokenizer.json"), "</s>")
    render = compile_template(found)
    assert render(CONVERSATIONS["one"], [ASK], False, 100) == "plain C"
    assert render(CONVERSATIONS["tools"], [ASK], False, 100) == "tools X"
    (tmp_path / "chat_template.jinja").write_text("own")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("own tools")
    render = compile_template(find_chat_template("auto", str(tmp_path / "tokenizer.json"), "</s>"))
    assert render(CONVERSATIONS["one"], [ASK], False, 100) == "own"
    assert render(CONVERSATIONS["tools"], [ASK], False, 100) == "own tools"
