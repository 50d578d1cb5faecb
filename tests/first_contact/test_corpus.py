"""The corpus has enough entries, each with its source, date and conclusion, and no text twice."""

from __future__ import annotations

import re
from collections import Counter
from datetime import date

import pytest
from first_contact_corpus import FOLDER, Entry, load_corpus

from orchestrator.providers.core.faults import Kind

CORPUS = load_corpus()
LEAST = 150
NEXT = {"next place", "next region", "next market", "retry", "wait", "stop"}
STATES = {"creating", "ready", "failed", "ending", "preempted"}
BOOT = {"apt_lock", "booting", "startup_failed", "preempted", "capacity"}
KINDS = {kind.name.lower() for kind in Kind}
ANSWERS = {"tpu", "compute", "operation", "compute-operation", "refresh", "ec2", "query", "json", "s3"}


def test_corpus_is_large_enough() -> None:
    assert len(CORPUS) >= LEAST
    assert sum(entry.form in ANSWERS for entry in CORPUS) >= LEAST


def test_ids_and_texts_are_unique() -> None:
    ids = Counter(entry.id for entry in CORPUS)
    texts = Counter((" ".join(entry.text.split()), str(entry.code)) for entry in CORPUS)
    assert [name for name, count in ids.items() if count > 1] == []
    assert [text for text, count in texts.items() if count > 1] == []


@pytest.mark.parametrize("entry", CORPUS, ids=lambda entry: entry.id)
def test_entry_is_complete(entry: Entry) -> None:
    assert entry.text.strip() and entry.call
    assert re.match(r"https://|code index: .", entry.source)
    assert date(2010, 1, 1) <= date.fromisoformat(entry.date) <= date(2026, 12, 31)
    assert entry.next in NEXT
    allowed = KINDS if entry.form in ANSWERS else BOOT if entry.form == "text" else STATES
    assert entry.kind in allowed


def test_most_sources_have_an_address() -> None:
    without = [entry.id for entry in CORPUS if not entry.source.startswith("https://")]
    assert len(without) <= 10


def test_files_stay_readable() -> None:
    assert all(len(path.read_text(encoding="utf-8").splitlines()) <= 500 for path in FOLDER.glob("*.toml"))
