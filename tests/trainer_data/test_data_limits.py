"""Templates and tokenizers of anyone run within limits, and their errors name the file and the reason."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from chat_tokenizers import byte_bpe
from prepare_process import started

from trainer.data.chat.reader import ChatReader, find_chat_template
from trainer.data.limited_process import LimitedProcess, LimitedProcessError, Limits
from trainer.data.tokens.control_tokens import ControlTokens
from trainer.data.tokens.tokenizers import read_tokenizer
from trainer.errors import ConfigError, DataError

ROW = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
GOOD = "{% for m in messages %}[{{ m.content }}]{% endfor %}{% if add_generation_prompt %}{% endif %}"
ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


def reader_of(tmp_path: Path, template: str) -> ChatReader:
    path = tmp_path / "x.jinja"
    path.write_text(template)
    return ChatReader(find_chat_template(str(path), "bytes", "\0"), ControlTokens())


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ 'x'|center(9999999999) }}", "needed more than 1 GiB of memory"),
        ("{{ 'x' * 10**10 }}", "needed more than 1 GiB of memory"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "calls itself without an end"),
        ("{% for a in range(99999) %}{{ 'x' * 10000 }}{% endfor %}", r"makes more than 4,\d+,\d+ characters"),
        ("{{ messages.append(1) }}", "SecurityError"),
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
        (ENDLESS, "took more than 5 s of processor time"),
    ],
)
def test_a_template_that_takes_too_much_is_named_and_the_next_row_is_read(
    tmp_path: Path, template: str, reason: str
) -> None:
    reader = reader_of(tmp_path, "{% if messages[0].content == 'a' %}" + template + "{% endif %}" + GOOD)
    try:
        with pytest.raises(DataError, match=rf"f\.jsonl, line 3: {tmp_path}/x\.jinja: .*{reason}"):
            list(reader.read_row(ROW, "f.jsonl, line 3"))
        good = {"messages": [{"role": "user", "content": "c"}, {"role": "assistant", "content": "b"}]}
        assert [text.data for text in reader.read_row(good, "f.jsonl, line 4")] == [b"[c][b]"]
    finally:
        reader.end()


def test_a_template_that_cannot_be_compiled_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"chat=.*x\.jinja: it calls itself without an end"):
        reader_of(tmp_path, "{{ " + "(" * 20_000 + "1" + ")" * 20_000 + " }}")


def test_a_template_that_is_no_small_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "big.jinja"
    with path.open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(DataError, match="more than 16 MiB"):
        find_chat_template(str(path), "bytes", "\0")


def test_a_template_that_hangs_ends_with_its_parent(tmp_path: Path) -> None:
    (tmp_path / "x.jinja").write_text(ENDLESS)
    (tmp_path / "a.jsonl").write_text(json.dumps(ROW))
    process = started(str(tmp_path / "a.jsonl"), str(tmp_path / "out"), f"chat={tmp_path / 'x.jinja'}")
    child = wait_for_busy_child(process.pid)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    deadline = time.monotonic() + 20
    while Path(f"/proc/{child}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{child}").exists()


def wait_for_busy_child(process: int) -> int:
    """Return the id of the process's child that has used the processor for a second."""
    while True:
        for child in Path(f"/proc/{process}/task/{process}/children").read_text().split():
            if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                ticks = sum(map(int, Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[11:13]))
                if ticks > os.sysconf("SC_CLK_TCK"):
                    return int(child)
        time.sleep(0.05)


REGEX = {"type": "Split", "pattern": {"Regex": "(x+x+)+y"}, "behavior": "Isolated", "invert": False}
DEEP = '{"type":"Sequence","normalizers":[' * 100_000 + '{"type":"Lowercase"}' + "]}" * 100_000


def write_tokenizer(folder: Path, **changes: Any) -> Path:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(byte_bpe().to_str()), **changes}).replace('"DEEP"', DEEP))
    return path


def multiply(character: str, times: int) -> dict[str, Any]:
    one = {"type": "Replace", "pattern": {"String": character}, "content": character * times}
    return {"type": "Sequence", "normalizers": [one] * 4}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"normalizer": multiply("a", 1000)}, "needed more than 3 GiB of memory"),
        ({"normalizer": multiply("a", 20)}, r"makes 160,\d+ tokens of 100 characters"),
        ({"normalizer": {"type": "Replace", "pattern": {"Regex": "((("}, "content": ""}}, "unmatched parenthesis"),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAAAAAA////"}}, "PanicException"),
        ({"normalizer": "DEEP"}, "recursion limit exceeded"),
        (
            {"model": {"type": "WordLevel", "vocab": {"a": 4294967295, "<unk>": 1}, "unk_token": "<unk>"}},
            "a token of number 4294967295",
        ),
        ({"version": "9"}, "Unknown tokenizer version"),
    ],
)
def test_a_tokenizer_that_takes_too_much_is_named(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    path = write_tokenizer(tmp_path, **changes)
    with pytest.raises(DataError, match=rf"tokenizer={path}: not a tokenizer\.json.*{reason}"):
        read_tokenizer(str(path), "<|endoftext|>")


def test_a_tokenizer_that_is_no_file_or_a_huge_one_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "tokenizer.json").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(DataError, match=r"1,099,511,627,776 bytes; a tokenizer\.json has at most"):
        read_tokenizer(str(tmp_path / "tokenizer.json"))
    with pytest.raises(DataError, match="not a file"):
        read_tokenizer(str(tmp_path))
    with pytest.raises(DataError, match="not a file"):
        read_tokenizer("/dev/zero")


def test_a_text_that_a_tokenizer_cannot_encode_is_one_line(tmp_path: Path) -> None:
    path = write_tokenizer(tmp_path, pre_tokenizer=REGEX)
    (tmp_path / "a.txt").write_text("x" * 3000 + " y")
    for name, words in (("a.txt", ()), ("b.jsonl", ("chat=plain",))):
        row = {"prompt": "x" * 3000 + " y", "completion": "y"}
        (tmp_path / "b.jsonl").write_text(json.dumps(row))
        arguments = (str(tmp_path / name), str(tmp_path / f"out-{name}"), f"tokenizer={path}", "eod=<|endoftext|>")
        process = started(*arguments, *words)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 3
        assert errors.startswith(f"error[data]: tokenizer={path}: a text cannot be encoded: PanicException: Onig:")
        assert errors.count("\n") == 1


def square(_: Any) -> Any:
    def multiply_by_itself(number: Any) -> Any:
        return number * number

    return multiply_by_itself


def test_a_process_answers_within_its_limits_only() -> None:
    process = LimitedProcess(square, None, Limits(memory=256 << 20, seconds=2.0))
    try:
        assert process.ask(3) == 9
        with pytest.raises(LimitedProcessError, match="TypeError"):
            process.ask("x")
        assert process.ask(4) == 16
        with pytest.raises(LimitedProcessError, match="256 MiB of memory"):
            process.ask(_Huge())
        assert process.ask(5) == 25
    finally:
        process.end()


class _Huge:
    def __mul__(self, _: Any) -> Any:
        return len(bytes(1 << 30))


def test_a_tokenizer_that_takes_too_much_of_the_text_of_the_template_is_named(tmp_path: Path) -> None:
    path = write_tokenizer(tmp_path, normalizer=multiply("\u00a7", 3000))
    (tmp_path / "x.jinja").write_text("\u00a7" + GOOD)
    (tmp_path / "a.jsonl").write_text(json.dumps({"prompt": "a", "completion": "b"}))
    words = (f"tokenizer={path}", "eod=<|endoftext|>", f"chat={tmp_path / 'x.jinja'}")
    process = started(str(tmp_path / "a.jsonl"), str(tmp_path / "out"), *words)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 3
    assert errors.splitlines()[-1].endswith("a text cannot be encoded: it needed more than 4 GiB of memory")


@pytest.mark.parametrize(
    "texts", [[f"<|{number}|>" for number in range(60_000)], ["<" * 200_000 + ">"]], ids=["many", "long"]
)
def test_many_or_long_control_tokens_do_not_stop_a_preparation(tmp_path: Path, texts: list[str]) -> None:
    tokenizer = json.loads(byte_bpe().to_str())
    first = max(tokenizer["model"]["vocab"].values()) + 1
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{**plain, "id": first + number, "content": text} for number, text in enumerate(texts)]
    path = write_tokenizer(tmp_path, added_tokens=[*tokenizer["added_tokens"], *added])
    row = {"messages": [{"role": "user", "content": f"{'<' * 2000} {texts[0]}"}, {"role": "assistant", "content": "b"}]}
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    words = (f"tokenizer={path}", "eod=<|endoftext|>", "chat=plain")
    process = started(str(tmp_path / "a.jsonl"), str(tmp_path / "out"), *words)
    assert process.wait(timeout=60) == 0


def test_a_conversation_of_too_many_messages_is_named(tmp_path: Path) -> None:
    reader = reader_of(tmp_path, GOOD)
    try:
        with pytest.raises(DataError, match=r"line 3: it has 4,000 messages, and a conversation may have 2,000"):
            list(reader.read_row({"messages": ROW["messages"] * 2000}, "f.jsonl, line 3"))
    finally:
        reader.end()
