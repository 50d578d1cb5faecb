"""`prepare`: the same tokens for any number of workers and after any interruption; complete, or clearly not."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from data_cases import opened, tokens_of
from prepare_process import started

from trainer.checkpoint.store import open_store
from trainer.commands.prepare import HELP, run
from trainer.data.documents import TextChunk
from trainer.data.index import INDEX_NAME, PROGRESS_NAME
from trainer.data.tokens.encoding import encode_batch
from trainer.data.tokens.tokenizers import read_tokenizer
from trainer.errors import ConfigError, DataError, StorageError


@pytest.mark.promise("P33")
def test_shards_hold_each_document_in_order_with_its_end(
    tmp_path: Path, text_folder: Path, tokenizer_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tokenizers import Tokenizer

    words = [str(text_folder), str(tmp_path / "a"), f"tokenizer={tokenizer_file}", "shard_tokens=5000"]
    run([*words, "workers=1"])
    library = Tokenizer.from_file(str(tokenizer_file))
    expected: list[int] = []
    for path in sorted(text_folder.iterdir()):
        expected += [*library.encode(path.read_text()).ids, library.token_to_id("<|endoftext|>")]
    corpus = opened(tmp_path / "a")
    assert tokens_of(corpus) == expected
    assert corpus.vocab == library.get_vocab_size() == 400
    assert corpus.read(np.array([0]), 1).dtype == np.uint16
    assert (tmp_path / "a/tokenizer.json").read_bytes() == tokenizer_file.read_bytes()
    index = json.loads((tmp_path / "a" / INDEX_NAME).read_bytes())
    assert (index["documents"], index["tokens"]) == (3, len(expected))
    assert len(index["shards"]) == 3
    assert not (tmp_path / "a" / PROGRESS_NAME).exists()
    assert f"{len(expected):,} tokens of 3 documents" in capsys.readouterr().out

    run(words)
    assert "nothing to do" in capsys.readouterr().out
    assert opened(tmp_path / "a", str(tokenizer_file)).fingerprint == corpus.fingerprint
    with pytest.raises(DataError, match="another tokenizer"):
        opened(tmp_path / "a", "bytes")
    with pytest.raises(ConfigError, match="already has other tokens"):
        run([str(text_folder), str(tmp_path / "a")])


@pytest.mark.promise("P33")
def test_a_document_in_chunks_ends_once() -> None:
    tokens = read_tokenizer("bytes")
    found = encode_batch(
        tokens.open_encoder(), tokens, [TextChunk(b"on", False), TextChunk(b"e", True), TextChunk(b"two", True)]
    )
    assert (found.tokens.tobytes(), found.documents) == (b"one\0two\0", 2)


def test_every_token_of_a_tokenizer_fits_its_type(tmp_path: Path) -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    Tokenizer(WordLevel({"a": 0, "b": 9, "</s>": 300}, unk_token="a")).save(str(tmp_path / "gaps.json"))
    with pytest.raises(ConfigError, match="do not say which token ends a document: name one of its tokens with eod="):
        read_tokenizer(str(tmp_path / "gaps.json"))  # a name is no role
    found = read_tokenizer(str(tmp_path / "gaps.json"), "</s>")
    assert (found.vocab, found.eod, found.dtype) == (301, 300, "uint16")
    for vocab, dtype in ((1 << 8, "uint8"), (1 << 16, "uint16"), ((1 << 16) + 1, "int32")):
        assert replace(found, vocab=vocab).dtype == dtype
        assert vocab - 1 <= np.iinfo(dtype).max


@pytest.mark.promise("P33")
def test_killed_at_any_shard_prepare_resumes_with_the_same_result(
    tmp_path: Path, text_folder: Path, tokenizer_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One run writes all; another loses a worker, is restarted, killed, and finished by a third."""
    big = tmp_path / "text"
    for number in range(8):
        shutil.copytree(text_folder, big / str(number))
    settings = (f"tokenizer={tokenizer_file}", "shard_tokens=20000")
    run([str(big), str(tmp_path / "once"), *settings, "workers=1"])
    process = started(str(big), str(tmp_path / "killed"), *settings, "workers=2")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("shard-00000.bin")
    os.kill(worker_of(process.pid), signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors.startswith("error[failure]: an encoding process ended (status -9)")
    assert errors.count("\n") == 1

    process = started(str(big), str(tmp_path / "killed"), *settings, "workers=2")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("resuming after")
    assert process.stdout.readline().startswith("shard-")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert (tmp_path / "killed" / PROGRESS_NAME).exists()
    assert not (tmp_path / "killed" / INDEX_NAME).exists()
    with pytest.raises(DataError, match="only partly prepared: run the same"):
        opened(tmp_path / "killed")
    with pytest.raises(ConfigError, match="unfinished shards of another text"):
        run([str(big), str(tmp_path / "killed"), settings[0], "shard_tokens=30000"])

    run([str(big), str(tmp_path / "killed"), *settings, "workers=1"])
    assert capsys.readouterr().out.count("resuming after") == 1
    assert contents(tmp_path / "killed") == contents(tmp_path / "once")
    assert opened(tmp_path / "killed").fingerprint == opened(tmp_path / "once").fingerprint


def test_a_full_disk_is_one_error_line_and_prepare_resumes(tmp_path: Path, text_folder: Path) -> None:
    """A limit on file sizes simulates a full disk: the third shard is larger than the limit."""
    text = tmp_path / "text"
    text.mkdir()
    for number, size in enumerate((1000, 1000, 300_000)):
        (text / f"{number}.txt").write_text("word\n" * (size // 5))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(StorageError, match="cannot be written") as message:
            run([str(text), str(tmp_path / "tokens"), "shard_tokens=1000", "workers=1"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "\n" not in str(message.value)
    assert not (tmp_path / "tokens" / INDEX_NAME).exists()
    run([str(text), str(tmp_path / "tokens"), "shard_tokens=1000", "workers=1"])
    assert opened(tmp_path / "tokens").total_tokens == 1000 + 1000 + 300_000 + 3


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_from_a_bucket_into_a_bucket(
    request: pytest.FixtureRequest, scheme: str, tmp_path: Path, text_folder: Path, tokenizer_file: Path
) -> None:
    request.getfixturevalue("s3" if scheme == "s3" else "gcs").create_bucket("prepared-of-tests")
    bucket = f"{scheme}://prepared-of-tests"
    for path in text_folder.iterdir():
        open_store(bucket).put(f"text/{path.name}", path.read_bytes())
    settings = (f"tokenizer={tokenizer_file}", "shard_tokens=5000", "workers=1")
    run([f"{bucket}/text", f"{bucket}/tokens", *settings])
    run([str(text_folder), str(tmp_path / "tokens"), *settings])
    remote, local = opened(f"{bucket}/tokens"), opened(tmp_path / "tokens")
    assert (remote.total_tokens, remote.vocab, remote.fingerprint) == (
        local.total_tokens,
        local.vocab,
        local.fingerprint,
    )
    starts = np.array([0, 4990, local.total_tokens - 200])
    assert np.array_equal(remote.read(starts, 200), local.read(starts, 200))


def test_a_changed_shard_is_another_corpus_and_a_short_one_is_refused(tmp_path: Path, text_folder: Path) -> None:
    for name, text in {"a": "one two three", "b": "one two threw"}.items():
        (tmp_path / f"{name}.txt").write_text(text)
        run([str(tmp_path / f"{name}.txt"), str(tmp_path / name)])
    first, second = opened(tmp_path / "a"), opened(tmp_path / "b")
    assert first.total_tokens == second.total_tokens == 14
    assert first.fingerprint != second.fingerprint
    shard = tmp_path / "a/shard-00000.bin"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(DataError, match="has 13 bytes, but the index lists 14"):
        opened(tmp_path / "a")
    (tmp_path / "b" / INDEX_NAME).write_text((tmp_path / "b" / INDEX_NAME).read_text()[:-30])
    with pytest.raises(DataError, match=r"cannot be read .*prepare the text again"):
        opened(tmp_path / "b")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a"], "two places are needed"),
        (["a", "b", "tokeniser=x"], r"did you mean tokenizer=\?"),
        (["a", "tokeniser=x"], r"did you mean tokenizer=\?"),
        (["a", "b", "workers=0"], "workers=0: must be at least 1"),
        (["a", "b", "eod=</s>"], "has no named tokens"),
        (["{text}", "{text}/tokens"], "is inside"),
        (["s3://b/text", "s3://b/text/tokens"], "is inside"),
        (["{text}", "{tmp}/x", "tokenizer={tokenizer}", "eod=</s>"], "has no token '</s>'"),
    ],
)
def test_wrong_arguments_are_explained(
    tmp_path: Path, text_folder: Path, tokenizer_file: Path, words: list[str], message: str
) -> None:
    names = {"text": text_folder, "tmp": tmp_path, "tokenizer": tokenizer_file}
    with pytest.raises(ConfigError, match=message):
        run([word.format(**names) for word in words])


def test_truncation_and_padding_of_a_tokenizer_file_are_switched_off(
    tmp_path: Path, text_folder: Path, tokenizer_file: Path
) -> None:
    stored = json.loads(tokenizer_file.read_text())
    stored["truncation"] = {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0}
    stored["padding"] = {
        "strategy": {"Fixed": 9},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "<|endoftext|>",
    }
    (tmp_path / "cuts.json").write_text(json.dumps(stored))
    for name, path in (("as-is", tokenizer_file), ("cuts", tmp_path / "cuts.json")):
        run([str(text_folder), str(tmp_path / name), f"tokenizer={path}", "workers=1"])
    assert tokens_of(opened(tmp_path / "cuts")) == tokens_of(opened(tmp_path / "as-is"))


def test_a_wrong_tokenizer_file_is_explained(tmp_path: Path, text_folder: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(DataError, match=r"not a tokenizer\.json"):
        run([str(text_folder), str(tmp_path / "a"), f"tokenizer={tmp_path}/x.json"])
    with pytest.raises(DataError, match="cannot be read: No such file"):
        run([str(text_folder), str(tmp_path / "a"), f"tokenizer={tmp_path}/y.json"])


def test_empty_files_are_named_and_leave_no_folder(tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    for name in ("a.txt", "b.jsonl"):
        (tmp_path / "text" / name).touch()
    with pytest.raises(DataError, match=r"every file here is empty: a\.txt, b\.jsonl"):
        run([str(tmp_path / "text"), str(tmp_path / "tokens")])
    assert not (tmp_path / "tokens").exists()
    (tmp_path / "text/b.jsonl").write_text("\n")
    with pytest.raises(DataError, match="contains no text"):
        run([str(tmp_path / "text"), str(tmp_path / "tokens")])
    (tmp_path / "text/b.jsonl").write_text('{"text": "x"}')
    run([str(tmp_path / "text"), str(tmp_path / "tokens")])


def test_the_help_names_every_key() -> None:
    assert all(f"  {name}=" in HELP for name in ("tokenizer", "column", "eod", "shard_tokens", "workers"))


def worker_of(process: int) -> int:
    """Return the process id of one of its encoding processes."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return next(int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes())


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files that readers see; a killed writer leaves a hidden part."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")}
