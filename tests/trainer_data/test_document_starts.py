"""The starts of documents in rows: of prepared text, of plain files, of chats and of mixtures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from data_cases import tokens_of

from trainer.commands.prepare import run
from trainer.config import Config, DataConfig, EvalConfig
from trainer.data.corpus import Corpus, open_corpus
from trainer.data.held_out import hold_out_rows
from trainer.data.index import INDEX_NAME
from trainer.data.mixture import open_training_data
from trainer.engine import DOCUMENT_START, TokenArray
from trainer.errors import DataError
from trainer.options import parse_config
from trainer.shape.mesh import RowShare

TEXTS = ("first", "2", "a third document", "é", "the last")


def masked(source: object, loss: str = "auto") -> Corpus:
    return open_corpus(DataConfig(source=str(source), loss=loss, document_mask=True), print)  # type: ignore[arg-type]  # of the tests below


def split(rows: TokenArray) -> tuple[TokenArray, list[int]]:
    """Return the rows without starts, as an engine does, and the places of the starts in the first row."""
    starts = ((rows & DOCUMENT_START) != 0) != (rows < 0)
    return np.where(starts, rows ^ DOCUMENT_START, rows), np.flatnonzero(starts[0]).tolist()


def write_texts(folder: Path) -> Path:
    lines = [json.dumps({"text": text}) for text in TEXTS]
    (folder / "texts.jsonl").write_text("\n".join(lines))
    return folder / "texts.jsonl"


def test_a_document_of_prepared_text_begins_after_the_end_of_another(tmp_path: Path) -> None:
    run([str(write_texts(tmp_path)), str(tmp_path / "tokens"), "shard_tokens=8"])
    corpus = masked(tmp_path / "tokens")
    rows = corpus.read(np.array([0]), corpus.total_tokens)
    assert rows.dtype == np.int32
    tokens, starts = split(rows)
    plain = open_corpus(DataConfig(source=str(tmp_path / "tokens")), print)
    assert tokens[0].tolist() == tokens_of(plain)
    # The first token of a row needs none: its document has the number 0 anyway.
    assert starts == np.cumsum([len(text.encode()) + 1 for text in TEXTS[:-1]]).tolist()
    assert split(corpus.read(np.array([4]), 6))[1] == [2, 4]
    assert corpus.fingerprint == plain.fingerprint  # the order of the rows is the same


def test_each_file_of_plain_text_is_a_document(tmp_path: Path) -> None:
    folder = tmp_path / "text"
    folder.mkdir()
    for number, text in enumerate(("abc", "", "defg\nh")):
        (folder / f"{number}.txt").write_text(text)
    tokens, starts = split(masked(folder).read(np.array([1]), 8))
    assert (bytes(tokens[0].tolist()), starts) == (b"bcdefg\nh", [2])


CHATS = [
    {"messages": [{"role": role, "content": f"{number}"} for role in ("user", "assistant", "user", "assistant")]}
    for number in range(30)
]


@pytest.fixture
def chats(tmp_path: Path) -> Path:
    """Conversations in which the end-of-document token also ends the earlier replies."""
    (tmp_path / "chats.jsonl").write_text("".join(f"{json.dumps(chat)}\n" for chat in CHATS))
    run([str(tmp_path / "chats.jsonl"), str(tmp_path / "tokens"), "chat=plain", "shard_tokens=99", "workers=1"])
    return tmp_path / "tokens"


def test_a_conversation_is_one_document_and_its_marks_stay(chats: Path) -> None:
    plain = open_corpus(DataConfig(source=str(chats)), print)
    stored = plain.read(np.array([0]), plain.total_tokens)[0]
    text = bytes(np.where(stored < 0, ~stored, stored).tolist())
    assert text.count(b"\0") == 2 * len(CHATS)
    expected = [at for at in range(len(text)) if text.startswith(b"<|user|>", at) and text[at - 1 : at] in (b"", b"\0")]
    assert len(expected) == len(CHATS)
    for loss in ("auto", "all"):
        corpus = masked(chats, loss)
        tokens, starts = split(corpus.read(np.array([0]), corpus.total_tokens))
        assert starts == expected
        assert tokens[0].tolist() == (stored.tolist() if loss == "auto" else list(text))


def test_chats_that_do_not_show_their_starts_are_refused(chats: Path) -> None:
    path = chats / INDEX_NAME
    path.write_text(path.read_text().replace("orch-tokens-3", "orch-tokens-2"))
    with pytest.raises(DataError, match="prepare the chat data again"):
        masked(chats)
    assert open_corpus(DataConfig(source=str(chats)), print).marked


def test_a_mixture_shows_the_starts_of_each_source_and_an_evaluation_its_own(chats: Path, tmp_path: Path) -> None:
    run([str(write_texts(tmp_path)), str(tmp_path / "text")])
    words = [
        f"data={chats},{tmp_path / 'text'}",
        "data.weights=1,1",
        "batch=16",
        "seq_len=12",
        "data.document_mask=true",
    ]
    data = open_training_data(parse_config(words), lambda _: None)
    rows = data.corpus.read(data.state.open_order().positions(0, 0, 16), 13)
    of_text = [(row >= 0).all() for row in split(rows)[0]]
    assert {bool(one) for one in of_text} == {False, True}
    for row in rows[of_text]:
        tokens, starts = split(row[None])
        assert starts == [at + 1 for at in np.flatnonzero(tokens[0, :-1] == 0)]

    config = Config(batch=2, seq_len=12, data=DataConfig(source=str(chats), document_mask=True))
    config = replace(config, eval=EvalConfig(every=1, share=0.3))
    _, held_out = hold_out_rows(config, masked(chats), print)
    assert held_out is not None
    whole = [held_out.read(batch, RowShare(first=0, count=1, total=1)) for batch in range(held_out.batches)]
    assert any(split(row[None])[1] for batch in whole for row in batch)
    assert held_out.tokens == sum(int((batch[:, 1:] >= 0).sum()) for batch in whole)
