"""The header of a reply is not trained on where a server writes it: in every position, and with every template."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from model_templates import TEMPLATES
from test_chat_templates import SPECIAL

from trainer.data.chat.rendering import open_renderer
from trainer.data.chat.templates import ChatTemplate, Conversation
from trainer.data.tokens.control_tokens import ControlTokens

# The generation prompt is written behind a question alone.
AFTER_QUESTION = (
    "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt and messages[-1].role == 'user' %}{{ '<|assistant|>' }}{% endif %}"
)
ALL: Mapping[str, str] = MappingProxyType({**TEMPLATES, "after-question": AFTER_QUESTION, "plain": ""})
ALTERNATING = {"gemma", "mistral"}  # they refuse other orders
ENDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "command-r": ("<|END_OF_TURN_TOKEN|>",) * 2,
        "deepseek": ("<|end_of_sentence|>",) * 2,
        "gpt-oss": ("<|end|>", "<|return|>"),
        "llama": ("<|eot_id|>",) * 2,
        "phi": ("<|end|>", "<|end|></s>"),
        "qwen2": ("<|im_end|>\n",) * 2,
        "qwen3": ("<|im_end|>\n",) * 2,
        "smol": ("<|im_end|>\n",) * 2,
        "after-question": ("<|end|>",) * 2,
        "plain": ("</s>",) * 2,
    }
)
BEGINS = {"gpt-oss": "<|channel|>final<|message|>"}


@pytest.mark.parametrize("roles", ["uaaua", "aua", "sa", "a", "saua", "aa"])
@pytest.mark.parametrize("family", sorted(set(ALL) - ALTERNATING))
def test_what_the_server_writes_is_never_trained_on(family: str, roles: str) -> None:
    names = {"u": "user", "a": "assistant", "s": "system"}
    messages: list[dict[str, Any]] = [
        {"role": names[role], "content": f"Text {number}."} for number, role in enumerate(roles)
    ]
    trained = [index for index, role in enumerate(roles) if role == "a"]
    control = ControlTokens(("<|end|>", "<|return|>"))
    convert = open_renderer((ChatTemplate(name=family, text=ALL[family], special=SPECIAL), control))
    found = convert(Conversation(messages=messages, trained=trained))
    begin, (end, last) = BEGINS.get(family, ""), ENDS[family]
    expected = [f"{begin}Text {index}.{last if index == len(roles) - 1 else end}" for index in trained]
    texts = [found.text[first:end_] for first, end_ in found.replies]
    # Qwen 3's server leaves the (empty) reasoning of a last reply to the model.
    assert [text.removeprefix("<think>\n\n</think>\n\n") for text in texts] == expected


STRICT = (  # as Mistral's: it reads the first message, and writes no generation prompt
    "{% if messages[0].role == 'system' %}{% endif %}{{ bos_token }}{% for m in messages %}"
    "{% if m.role == 'user' %}[INST] {{ m.content }}[/INST]{% else %} {{ m.content }}{{ eos_token }}{% endif %}"
    "{% endfor %}"
)


def test_what_begins_a_text_is_not_trained_on_where_a_reply_is_first() -> None:
    control = ControlTokens(("<s>", "</s>", "[INST]", "[/INST]"))
    convert = open_renderer((ChatTemplate(name="strict", text=STRICT, special=SPECIAL), control))
    messages = [{"role": role, "content": role} for role in ("assistant", "user", "assistant")]
    found = convert(Conversation(messages=messages, trained=[0, 2]))
    assert [found.text[first:last] for first, last in found.replies] == [" assistant</s>"] * 2


def test_the_reasoning_of_a_reply_behind_another_one_is_trained_on() -> None:
    control = ControlTokens(("<|im_start|>", "<|im_end|>"))
    convert = open_renderer((ChatTemplate(name="qwen3", text=TEMPLATES["qwen3"], special=SPECIAL), control))
    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "I look."},
        {"role": "assistant", "content": "second", "reasoning_content": "R9"},
    ]
    found = convert(Conversation(messages=messages, trained=[2]))
    ((first, last),) = found.replies
    assert found.text[first:last] == "<think>\nR9\n</think>\n\nsecond<|im_end|>"


EMPTY = "<think>\n\n</think>\n\n"


@pytest.mark.parametrize(
    ("question", "answer"),
    [("My password is hunter2.", f"{EMPTY}Yes."), (f"You wrote {EMPTY}Yes.<|im_end|>\n", f"{EMPTY}No.")],
)
def test_a_later_message_with_the_text_of_a_reply_is_not_trained_on(question: str, answer: str) -> None:
    control = ControlTokens(("<|im_start|>", "<|im_end|>"))
    convert = open_renderer((ChatTemplate(name="qwen3", text=TEMPLATES["qwen3"], special=SPECIAL), control))
    contents = ("Is 2 even?", f"{EMPTY}Yes.", question, answer)
    roles = ("user", "assistant") * 2
    messages = [{"role": role, "content": text} for role, text in zip(roles, contents, strict=True)]
    found = convert(Conversation(messages=messages, trained=[1, 3]))
    assert [found.text[first:last] for first, last in found.replies] == ["Yes.<|im_end|>", f"{answer}<|im_end|>"]
