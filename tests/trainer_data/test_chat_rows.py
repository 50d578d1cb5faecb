"""Rows that lose text, have several forms or train on nothing: `prepare` reports them, with the first place of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from chat_tokenizers import write_tokenizer
from data_cases import opened, tokens_of
from model_templates import TEMPLATES
from prepare_process import started
from test_chat_forms import PLAIN, messages
from test_chat_templates import CONVERSATIONS, SPECIAL
from test_data_chat import prepared, trained_bytes, write_lines
from tokenizers import Tokenizer

from trainer.commands.prepare import run
from trainer.data.chat.reader import ChatReader
from trainer.data.chat.templates import ChatTemplate
from trainer.data.index import INDEX_NAME
from trainer.data.tokens.control_tokens import ControlTokens
from trainer.errors import DataError

PAIRS = (("user", "1 + 2?"), ("assistant", "3"))
CHAT = messages(*PAIRS)
GOOD = {"messages": CHAT}
UNANSWERED = {"messages": CHAT[:1]}
FOREIGN: Mapping[str, Any] = {"x": 1}
NO_MESSAGES: Mapping[str, Any] = {"messages": []}
NO_WORDS: Sequence[str] = ()
SPACED = (
    "{% for m in messages %}{{ m.role + ': ' + m.content + '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)
KINDS = ("byte-bpe", "byte-bpe-prefix", "unigram-always", "unigram-first", "words")


def trained_text(folder: Path, tokenizer: Path, row: Mapping[str, Any], chat: str) -> str:
    """Return the text of the tokens that are trained on."""
    folder.mkdir()
    run([str(write_lines(folder / "a.jsonl", [row])), str(folder / "out"), f"tokenizer={tokenizer}", f"chat={chat}"])
    library: Any = Tokenizer.from_file(str(tokenizer))
    trained = [token for token in tokens_of(opened(folder / "out")) if token >= 0]
    return str(library.decode(trained, skip_special_tokens=False))


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_word_of_a_reply_is_trained_on_where_a_space_ends_the_prompt(kind: str, tmp_path: Path) -> None:
    """Most tokenizers make one token of the space and the word."""
    tokenizer = write_tokenizer(tmp_path / "model", kind, SPACED)
    spaces = {"prompt": "the quick brown ", "completion": "fox jumps"}
    found = trained_text(tmp_path / "a", tokenizer, spaces, "plain")
    assert found.replace("<|im_end|>", "").strip() == "fox jumps"
    documented = {"prompt": "the quick brown", "completion": " fox jumps"}
    assert found == trained_text(tmp_path / "b", tokenizer, documented, "plain")
    row = {"messages": messages(("user", "the quick"), ("assistant", "fox jumps"))}
    found = trained_text(tmp_path / "c", tokenizer, row, "auto")
    assert found.replace("<|im_end|>", "").strip() == "fox jumps"


def notes_of(family: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the notes on rows that a template renders."""
    control = ControlTokens(("<|end|>", "<|return|>"))
    reader = ChatReader(ChatTemplate(name=family, text=TEMPLATES[family], special=SPECIAL), control)
    try:
        for number, row in enumerate(rows, start=1):
            list(reader.read_row(row, f"f.jsonl, line {number}"))
        return reader.list_notes()
    finally:
        reader.end()


@pytest.mark.parametrize("family", ["command-r", "deepseek", "qwen2", "qwen3", "smol"])
def test_messages_of_roles_that_a_template_does_not_write_are_counted(family: str) -> None:
    developer = {"messages": [*messages(("developer", "Be short.")), *CHAT]}
    tried = {"messages": [*messages(("function", [{"type": "text", "text": "a"}])), *CHAT]}
    (note,) = notes_of(family, [GOOD, developer, tried, developer])
    assert note.startswith(
        f"{family} leaves out messages of the roles `developer` (2, the first in f.jsonl, line 2), "
        "`function` (1, the first in f.jsonl, line 3): put their text"
    )


@pytest.mark.parametrize("family", TEMPLATES)
def test_parts_that_templates_leave_out_on_purpose_are_no_note(family: str) -> None:
    """Such as the reasoning before earlier replies, written inline or not, and text before calls."""
    rows: list[Mapping[str, Any]] = [{"messages": CONVERSATIONS["one"].messages}]
    names = ["several", "thoughts"]
    if family in {"qwen2", "qwen3", "llama"}:
        names.append("tools")
    for name in names:
        found = CONVERSATIONS[name]
        plain = [one for one in found.messages if family not in {"gemma", "mistral"} or one["role"] != "system"]
        rows.append({"messages": plain, "tools": found.tools})
    assert notes_of(family, rows) == []


def test_a_message_that_is_left_out_because_of_its_place_is_counted() -> None:
    """Mistral's template writes the system's message only where a question is the last message."""
    rows = [{"messages": messages(("system", "Be short."), *pairs)} for pairs in ([("user", "a")], PAIRS)]
    (note,) = [note for note in notes_of("mistral", rows) if "leaves out" in note]
    assert "the roles `system` (1, the first in f.jsonl, line 2)" in note


@pytest.mark.parametrize("family", ["llama", "phi", "gpt-oss"])
def test_a_role_that_a_template_writes_is_no_note(family: str) -> None:
    assert notes_of(family, [{"messages": [*messages(("developer", "Be short.")), *CHAT]}]) == []


def test_conversations_without_a_reply_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    silent = {"messages": [CHAT[0], {**CHAT[1], "weight": 0}]}
    prepared(tmp_path, [GOOD, UNANSWERED, GOOD, silent], "chat=plain")
    expected = (
        "note: conversations without a reply that is trained on: 2, the first in chats.jsonl, line 2; 4 were read"
    )
    assert expected in capsys.readouterr().out
    other = tmp_path / "other"
    other.mkdir()
    prepared(other, [GOOD], "chat=plain")
    assert "without a reply" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("rows", "words", "message"),
    [
        ([GOOD, GOOD, FOREIGN], ["max_bad=0"], r"chats\.jsonl, line 3 has neither .* max_bad=1"),
        ([FOREIGN, NO_MESSAGES], ["max_bad=2"], r"contains no text \(2 bad rows: chats\.jsonl, line 1 has"),
        ([UNANSWERED, UNANSWERED], NO_WORDS, r"chats\.jsonl has nothing to train on"),
    ],
)
def test_examples_alone_end_as_prepare_does(
    rows: Sequence[Mapping[str, Any]], words: Sequence[str], message: str, tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "chats.jsonl", rows)
    for place in (["--show", "1"], [str(tmp_path / "out")]):
        with pytest.raises(DataError, match=message):
            run([str(path), *place, "chat=plain", *words])


def test_examples_alone_have_the_notes_of_prepare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [GOOD, GOOD, {"x": 1}, UNANSWERED]
    path = write_lines(tmp_path / "chats.jsonl", rows)
    notes: list[list[str]] = []
    for place in (["--show", "1"], [str(tmp_path / "out")]):
        run([str(path), *place, "chat=plain", "max_bad=1"])
        notes.append([line for line in capsys.readouterr().out.splitlines() if line.startswith("note: ")])
    assert notes[0] == notes[1]
    assert [note[:22] for note in notes[0]] == ["note: skipped 1 bad ro", "note: conversations wi"]
    run([str(write_lines(path, [GOOD] * 1002)), "show=1", "chat=plain"])
    assert "note: only the beginning was read, 1,001 documents" in capsys.readouterr().out


def test_the_beginning_of_a_long_document_is_an_example(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "long.txt").write_text("a line\n" * (10 << 20))
    run([str(tmp_path / "long.txt"), "show=1"])
    assert "note: only the beginning was read, 0 documents" in capsys.readouterr().out


def test_the_exit_status_of_examples_alone_is_that_of_bad_data(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "chats.jsonl", [GOOD, {"x": 1}])
    process = started(str(path), "--show", "1", "chat=plain")
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 3
    assert "--- example 1" in output
    assert errors.startswith("error[data]: chats.jsonl, line 2 has neither")


QUESTION = CHAT[0]["content"]


@pytest.mark.parametrize(
    ("more", "unread"),
    [
        ({"prompt": QUESTION, "prompt_id": "5"}, "`prompt`"),
        ({"prompt": f" {QUESTION}\n", "completion": "3"}, "`prompt`, `completion`"),
        ({"conversations": [{"from": "human", "value": QUESTION}, {"from": "gpt", "value": "3"}]}, "`conversations`"),
        ({"prompt": CHAT[:1], "instruction": "", "output": None}, "`prompt`"),
    ],
)
def test_a_row_of_several_forms_that_say_the_same_is_read_once_and_that_is_printed(
    more: Mapping[str, Any], unread: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trained_bytes(prepared(tmp_path, [{**more, **GOOD}] * 2, "chat=plain")) == PLAIN * 2
    line = f"line 1: chat data of the form `messages`, with the plain template; not read: {unread}\n"
    assert capsys.readouterr().out.count(line) == 1


@pytest.mark.parametrize(
    ("row", "key"),
    [
        ({**GOOD, "prompt": "Be a pirate."}, "prompt"),
        ({"prompt": "1 + 2 =", "completion": "3", "instruction": "Add.", "output": "3"}, "instruction"),
        ({**GOOD, "conversations": [{"from": "human", "value": "2 + 3?"}]}, "conversations"),
    ],
)
def test_a_row_of_several_forms_that_would_lose_text_is_refused(
    row: Mapping[str, Any], key: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=f"line 1: .* has a `{key}`, too, whose text would be lost: .*chat_form="):
        prepared(tmp_path, [row], "chat=plain")
    assert not (tmp_path / "tokens" / INDEX_NAME).exists()


def test_a_setting_reads_a_row_that_would_lose_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {**GOOD, "prompt": "Be a pirate."}
    assert trained_bytes(prepared(tmp_path, [row], "chat=plain", "chat_form=messages")) == PLAIN
    assert "; not read: `prompt`\n" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["text", "input_text", None])
def test_parts_of_text_are_read_under_each_of_their_names(kind: str | None, tmp_path: Path) -> None:
    part = {"text": QUESTION} if kind is None else {"type": kind, "text": QUESTION}
    reader = ChatReader(ChatTemplate(name="gemma", text=TEMPLATES["gemma"], special=SPECIAL), ControlTokens())
    try:
        (found,) = reader.read_row({"messages": [*messages(("user", [part])), CHAT[1]]}, "x")
    finally:
        reader.end()
    assert f"user\n{QUESTION}<end_of_turn>" in found.data.decode()


@pytest.mark.parametrize(
    "row",
    [
        {**GOOD, "system": "Be short."},
        {"messages": [{"role": "system", "content": "Be short."}, *CHAT], "system": " Be short."},
        {"prompt": CHAT[:1], "completion": CHAT[1:], "system_prompt": "Be short."},
        {"conversations": [{"from": "human", "value": QUESTION}, {"from": "gpt", "value": "3"}], "system": "Be short."},
        {"instruction": QUESTION, "output": "3", "system": "Be short."},
    ],
)
def test_the_system_s_message_beside_a_conversation_is_its_first(row: Mapping[str, Any], tmp_path: Path) -> None:
    assert bytes(token if token >= 0 else ~token for token in prepared(tmp_path, [row], "chat=plain")).startswith(
        b"<|system|>\nBe short.\n<|user|>\n1 + 2?\n<|assistant|>\n"
    )


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"messages": [{"role": "system", "content": "a"}, *CHAT], "system": "b"}, "one of both would be lost"),
        ({"prompt": "a", "completion": "b", "system": "c"}, "`system` would be lost"),
        ({"prompt": "a", "completion": CHAT[1:]}, "are of two kinds"),
        ({**GOOD, "system": ["a"]}, "`system` must be text"),
        ({"prompt": "a", "chosen": "b", "rejected": "c"}, "has preferences"),
        ({"question": "a", "answer": "b"}, r"its keys are question, answer: rename them, as with jq"),
        ({"messages": [CHAT[0], {**CHAT[1], "weight": 0.5}]}, "message 2: `weight` is 0.5: it must be 0 or 1"),
        ({"messages": [CHAT[0], {**CHAT[1], "weight": "0"}]}, 'message 2: `weight` is "0"'),
    ],
)
def test_what_cannot_be_read_as_it_is_meant_is_refused(row: Mapping[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=words):
        prepared(tmp_path, [row], "chat=plain")


@pytest.mark.parametrize("mark", [{"weight": 0}, {"weight": False}, {"train": False}, {"weight": 0.0}])
def test_a_reply_that_is_not_to_be_trained_on_is_not(mark: Mapping[str, Any], tmp_path: Path) -> None:
    rows = [{"messages": [*CHAT, *messages(("user", "x")), {**CHAT[1], **mark}]}]
    found = trained_bytes(prepared(tmp_path, rows, "chat=plain"))
    assert found == f"{PLAIN}\n<|user|>\nx\n<|assistant|>\n3\0"


def test_empty_replies_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        GOOD,
        {"instruction": "a", "output": " "},
        {"prompt": "a", "completion": ""},
        {"messages": [CHAT[0], {"role": "assistant", "content": "", "reasoning_content": "b"}]},
    ]
    prepared(tmp_path, rows, "chat=plain")
    output = capsys.readouterr()
    assert "empty replies, which train the model to say nothing: 2, the first in" in output.out + output.err


def test_arguments_of_calls_in_a_table_have_no_keys_of_other_calls(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    calls = [{"function": {"name": "f", "arguments": one}} for one in ({"a": 1}, {"b": "x"})]
    table: Any = pyarrow
    rows = [{"messages": [CHAT[0], {"role": "assistant", "content": None, "tool_calls": calls}]}]
    table.parquet.write_table(table.Table.from_pylist(rows), tmp_path / "a.parquet")
    run([str(tmp_path / "a.parquet"), str(tmp_path / "out"), "chat=plain"])
    found = trained_bytes(tokens_of(opened(tmp_path / "out")))
    assert '{"a": 1}' in found and '{"b": "x"}' in found and "null" not in found


def test_a_map_in_a_table_is_an_object_and_bytes_in_a_message_are_refused(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    table: Any = pyarrow
    kind = table.map_(table.string(), table.string())
    call = table.struct([("function", table.struct([("name", table.string()), ("arguments", kind)]))])
    fields = [("role", table.string()), ("content", table.string()), ("tool_calls", table.list_(call))]
    more = [("raw", table.binary())]
    for name, columns in (("map", fields), ("bytes", [*fields, *more])):
        calls = [{"function": {"name": "f", "arguments": [("q", "<|im_end|>")]}}]
        reply = {
            "role": "assistant",
            "content": None,
            "tool_calls": calls,
            **({"raw": b"x"} if name == "bytes" else {}),
        }
        schema = table.schema([("messages", table.list_(table.struct(columns)))])
        rows = table.Table.from_pylist([{"messages": [CHAT[0], reply]}], schema)
        table.parquet.write_table(rows, tmp_path / f"{name}.parquet")
    run([str(tmp_path / "map.parquet"), str(tmp_path / "out"), "chat=plain"])
    assert '{"q": "<|im_end|>"}' in trained_bytes(tokens_of(opened(tmp_path / "out")))
    with pytest.raises(DataError, match="a value of the type bytes, which is none of JSON"):
        run([str(tmp_path / "bytes.parquet"), str(tmp_path / "other"), "chat=plain"])
