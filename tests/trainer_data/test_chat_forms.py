"""Chat data as people have it: the forms of rows, and what `prepare --show` prints of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from data_cases import opened, tokens_of
from hypothesis import example, given
from hypothesis import strategies as st
from model_templates import TEMPLATES
from prepare_process import started
from test_data_chat import prepared, trained_bytes, write_lines

from trainer.commands.prepare import run
from trainer.data.chat.reader import ChatReader
from trainer.data.chat.templates import ChatTemplate
from trainer.data.index import INDEX_NAME, PROGRESS_NAME
from trainer.data.tokens.control_tokens import ControlTokens
from trainer.errors import ConfigError, DataError

QUESTION, REPLY = "1 + 2?", "3"
PLAIN = "<|user|>\n1 + 2?\n<|assistant|>\n[3\0]"
TWICE = "<|system|>\nBe short.\n<|user|>\nhi\n<|assistant|>\n[ho\0]\n<|user|>\n1 + 2?\n<|assistant|>\n[3\0]"


def messages(*pairs: tuple[str, Any]) -> list[dict[str, Any]]:
    return [{"role": role, "content": content} for role, content in pairs]


ROWS: Sequence[tuple[str, Mapping[str, Any], str]] = (
    ("messages", {"messages": messages(("user", QUESTION), ("assistant", REPLY))}, PLAIN),
    ("messages", {"messages": messages(("user", [{"type": "text", "text": "1 + 2?"}]), ("assistant", REPLY))}, PLAIN),
    ("messages", {"conversations": messages(("user", QUESTION), ("assistant", REPLY))}, PLAIN),
    ("sharegpt", {"conversations": [{"from": "human", "value": QUESTION}, {"from": "gpt", "value": REPLY}]}, PLAIN),
    (
        "sharegpt",
        {
            "system": "Be short.",
            "conversations": [
                {"from": "human", "value": "hi"},
                {"from": "gpt", "value": "ho"},
                {"from": "user", "value": QUESTION},
                {"from": "assistant", "value": REPLY},
            ],
        },
        TWICE,
    ),
    ("alpaca", {"instruction": QUESTION, "input": "", "output": REPLY}, PLAIN),
    ("alpaca", {"instruction": "1", "input": "+ 2?", "output": REPLY}, PLAIN.replace("1 + 2?", "1\n+ 2?")),
    (
        "alpaca",
        {"instruction": QUESTION, "output": REPLY, "system": "Be short.", "history": [["hi", "ho"]]},
        TWICE,
    ),
    ("prompt", {"prompt": "1 + 2 =", "completion": " 3"}, "1 + 2 =[ 3\0]"),
    (
        "prompt",
        {"prompt": messages(("user", QUESTION)), "completion": messages(("assistant", REPLY))},
        PLAIN,
    ),
    (
        "messages",
        {
            "messages": [
                *messages(("user", "hi")),
                {"role": "assistant", "content": "ho", "weight": 0},
                *messages(("user", QUESTION), ("assistant", REPLY)),
            ]
        },
        "<|user|>\nhi\n<|assistant|>\nho\0\n<|user|>\n1 + 2?\n<|assistant|>\n[3\0]",
    ),
)


@pytest.mark.parametrize(("form", "row", "expected"), ROWS)
def test_rows_of_each_form_are_found_said_and_read(
    tmp_path: Path, form: str, row: Mapping[str, Any], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trained_bytes(prepared(tmp_path, [row], "chat=plain")) == expected
    how = "as it is, without a template" if isinstance(row.get("prompt"), str) else "with the plain template"
    assert f"chats.jsonl, line 1: chat data of the form `{form}`, {how}\n" in capsys.readouterr().out


def test_a_setting_decides_where_rows_have_several_forms(tmp_path: Path) -> None:
    both = {"instruction": QUESTION, "output": REPLY, "prompt": "1 + 2 =", "completion": " 3"}
    assert trained_bytes(prepared(tmp_path, [both], "chat=plain", "chat_form=alpaca")) == PLAIN
    (tmp_path / "tokens" / INDEX_NAME).unlink()
    with pytest.raises(DataError, match="line 1: has neither"):
        prepared(tmp_path, [{"instruction": "x", "output": "y"}], "chat=plain", "chat_form=prompt")


def rendered(family: str, row: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return the text of a row and the parts that are trained on."""
    template = ChatTemplate(name=family, text=TEMPLATES[family], special={"bos_token": "<s>", "eos_token": "</s>"})
    reader = ChatReader(template, ControlTokens())
    try:
        (found,) = reader.read_row(row, "x")
    finally:
        reader.end()
    text = found.data.decode()
    return text, [text[first:last] for first, last in found.replies]


ARGUMENTS = '{"a": 1,  "b": "é"}'
CALLED: Mapping[str, Any] = {
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "1 + 2?"}, {"type": "text", "text": "Quick."}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "sum", "arguments": ARGUMENTS}}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "3"},
        {"role": "assistant", "content": "3"},
    ],
    "tools": json.dumps([{"type": "function", "function": {"name": "sum", "parameters": {"type": "object"}}}]),
}


@pytest.mark.parametrize(
    ("family", "call", "question"),
    [
        ("llama", '{"name": "sum", "parameters": {"a": 1, "b": "é"}}<|eot_id|>', "1 + 2?\nQuick.<|eot_id|>"),
        (
            "qwen2",
            '<tool_call>\n{"name": "sum", "arguments": {"a": 1, "b": "é"}}\n</tool_call><|im_end|>\n',
            "1 + 2?\nQuick.<|",
        ),
        # It takes arguments as JSON, as they are.
        (
            "qwen3",
            f'<tool_call>\n{{"name": "sum", "arguments": {ARGUMENTS}}}\n</tool_call><|im_end|>\n',
            "1 + 2?\nQuick.<|",
        ),
    ],
)
def test_parts_and_calls_get_the_form_that_the_template_reads(family: str, call: str, question: str) -> None:
    text, trained = rendered(family, CALLED)
    assert trained[0] == call
    assert question in text
    assert "'type'" not in text


def test_a_template_that_reads_parts_gets_them() -> None:
    row = {
        "messages": [
            *messages(("user", [{"type": "text", "text": " a "}, {"type": "text", "text": "b"}])),
            *messages(("assistant", "c")),
        ]
    }
    assert "user\nab<end_of_turn>" in rendered("gemma", row)[0]


def test_calls_in_the_forms_of_sharegpt_and_of_earlier_versions_of_openai() -> None:
    earlier = {
        "messages": [
            *messages(("user", "q")),
            {"role": "assistant", "content": None, "function_call": {"name": "sum", "arguments": '{"a": 1}'}},
            *messages(("tool", "3"), ("assistant", "r")),
        ],
        "functions": [{"name": "sum"}],
    }
    shared = {
        "conversations": [
            {"from": "human", "value": "q"},
            {"from": "function_call", "value": '{"name": "sum", "arguments": {"a": 1}}'},
            {"from": "observation", "value": "3"},
            {"from": "gpt", "value": "r"},
        ],
        "tools": '[{"type": "function", "function": {"name": "sum"}}]',
    }
    assert rendered("qwen2", earlier) == rendered("qwen2", shared)
    assert rendered("qwen2", shared)[1] == [
        '<tool_call>\n{"name": "sum", "arguments": {"a": 1}}\n</tool_call><|im_end|>\n',
        "r<|im_end|>\n",
    ]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"text": "x"}, "line 7 has neither `messages`, nor `conversations`.*its keys are text"),
        ({"messages": "x"}, "line 7: messages must be a list"),
        ({"messages": [{"role": "user", "content": 5}]}, "line 7: message 1: its content is of the type int, not text"),
        ({"messages": [{"role": "assistant", "content": None}]}, "message 1: its content is null"),
        ({"messages": messages(("user", "a"), ("assistant", []))}, "message 2: its content is an empty list"),
        (
            {"messages": messages(("user", [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": "x"}]))},
            "message 1: its content has a part of type `image_url`: only text can be",
        ),
        ({"messages": messages(("user", [{"type": "file", "text": "a"}]))}, "a part of type `file`"),
        ({"messages": messages(("user", [{"type": "text", "text": 5}]))}, "a part of a kind that has no `text`"),
        ({"messages": messages(("user", [{}]))}, "a part of a kind that has no `text`"),
        ({"conversations": [{"from": "alien", "value": "x"}]}, "a turn is from 'alien': known are human"),
        ({"conversations": [{"from": "human", "value": None}]}, "`value` of a turn is not text"),
        ({"instruction": "x", "output": None}, "must be text"),
        ({"instruction": "x", "output": "y", "history": [["a"]]}, "`history` must be"),
        ({"messages": messages(("user", "a"), ("assistant", "b")), "tools": "{"}, "`tools` is not JSON"),
        ({"messages": messages(("user", "a"), ("assistant", "b")), "tools": [1]}, "`tools` must be a list"),
    ],
)
def test_a_bad_row_is_one_error_with_its_place_and_the_next_is_read(row: Mapping[str, Any], reason: str) -> None:
    reader = ChatReader(ChatTemplate(name="x", special={"eos_token": "</s>"}), ControlTokens())
    with pytest.raises(DataError, match=rf"^f\.jsonl, .*{reason}"):
        list(reader.read_row(row, "f.jsonl, line 7"))
    assert len(list(reader.read_row({"instruction": "a", "output": "b"}, "f.jsonl, line 8"))) == 1


def test_bad_rows_of_chats_are_counted_and_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row, words = {"instruction": QUESTION, "output": REPLY}, ("chat=plain", "data.max_bad=2")
    template = tmp_path / "x.jinja"
    template.write_text(
        "{% for m in messages %}{% if m.content == 'no' %}{{ raise_exception('never') }}{% endif %}"
        "[{{ m.content }}]{% endfor %}{% if add_generation_prompt %}{% endif %}"
    )
    assert trained_bytes(prepared(tmp_path, [row, {"x": 1}, row, {"messages": []}], *words)) == PLAIN * 2
    output = capsys.readouterr().out
    assert "skipped 2 bad rows: chats.jsonl, line 2 has neither" in output
    assert "chats.jsonl, line 4: messages must be a list" in output
    rows = [{"instruction": "no", "output": "x"}, row]
    with pytest.raises(DataError, match=r"line 1: .*never.*max_bad=1"):
        run([str(write_lines(tmp_path / "b.jsonl", rows)), str(tmp_path / "b"), f"chat={template}"])
    run([str(tmp_path / "b.jsonl"), str(tmp_path / "b"), f"chat={template}", "max_bad=1"])
    assert trained_bytes(tokens_of(opened(tmp_path / "b"))) == "[1 + 2?][[3]]\0"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["", "x", "user", "assistant", "gpt", "{}", "[1]"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "from", "value", "tool_calls", "function", "name", "text", "weight"]),
            inner,
        )
    ),
    max_leaves=12,
)
KEYS = ("messages", "conversations", "instruction", "input", "output", "system", "history", "prompt", "completion")


@given(row=st.dictionaries(st.sampled_from([*KEYS, "tools", "functions", "documents", "chat_template_kwargs"]), VALUES))
@example(row={"messages": [{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": None}}]}]})
def test_any_row_is_read_or_refused(row: Mapping[str, Any]) -> None:
    reader = ChatReader(ChatTemplate(name="x", special={"eos_token": "</s>"}), ControlTokens())
    try:
        list(reader.read_row(row, "f.jsonl, line 7"))
    except DataError as error:
        assert str(error).startswith("f.jsonl, line 7")


def test_show_prints_examples_with_what_is_trained_on(tmp_path: Path, tokenizer_file: Path) -> None:
    rows = [row for _, row, _ in ROWS]
    path = write_lines(tmp_path / "chats.jsonl", rows)
    process = started(str(path), "--show", "3", f"tokenizer={tokenizer_file}", "chat=auto")
    output, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (0, "")
    assert output.count("--- example") == 3
    assert output.count("⟦3<|endoftext|>⟧") == 3
    assert "<|user|>\n1 + 2?\n<|assistant|>\n⟦3" in output
    assert "\x1b" not in output
    assert sorted(tmp_path.iterdir()) == [path]  # nothing is written

    (tmp_path / "text.txt").write_text("é \x1b[31m red " * 1000)
    process = started(str(tmp_path / "text.txt"), str(tmp_path / "out"), "--show=1")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "13,001 tokens; 13,001 of them trained on" in output
    assert "⟦é \\x1b[31m red é" in output
    assert "\x1b" not in output
    assert (tmp_path / "out" / INDEX_NAME).exists()


def test_the_date_of_a_template_is_that_of_the_first_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dated = (
        "{{ strftime_now('%d.%m.%Y') }}{% for m in messages %}|{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}|{% endif %}"
    )
    (tmp_path / "x.jinja").write_text(dated)
    rows = [{"messages": messages(("user", "a"), ("assistant", "b"))}]
    words = [f"chat={tmp_path / 'x.jinja'}", "date=2026-02-03"]
    assert trained_bytes(prepared(tmp_path, rows, *words)) == "03.02.2026|a|[b]\0"
    run([str(tmp_path / "chats.jsonl"), str(tmp_path / "tokens"), *words])
    assert "nothing to do" in capsys.readouterr().out

    now = tmp_path / "now"
    run([str(tmp_path / "chats.jsonl"), str(now), words[0]])
    index = json.loads((now / INDEX_NAME).read_text())
    assert f"writes the date: {index['moment']}" in capsys.readouterr().out
    run([str(tmp_path / "chats.jsonl"), str(now), words[0]])
    assert "nothing to do" in capsys.readouterr().out
    # Interrupted on another day, it keeps the first one's date.
    again = tmp_path / "again"
    run([str(tmp_path / "chats.jsonl"), str(again), words[0], "date=2025-01-02"])
    index = json.loads((again / INDEX_NAME).read_text())
    (again / INDEX_NAME).unlink()
    progress: dict[str, Any] = {
        "made_from": index["made_from"],
        "batches": 0,
        "documents": 0,
        "shards": [],
        "moment": index["moment"],
    }
    (again / PROGRESS_NAME).write_text(json.dumps(progress))
    run([str(tmp_path / "chats.jsonl"), str(again), words[0]])
    assert bytes(token if token >= 0 else ~token for token in tokens_of(opened(again))).startswith(b"02.01.2025")
    with pytest.raises(ConfigError, match="date=tomorrow: not a date"):
        run(["a", "b", "date=tomorrow", "chat=plain"])
