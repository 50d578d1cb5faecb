"""Progress of engines in the stream of events: of the own project, once each, and again from where a client was."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cloud_access import CloudAccess
from orchestrator.service.event_stream import EventHub
from orchestrator.service.site import Site
from orchestrator.store.store import Store


@pytest.fixture
def database(tmp_path: Path) -> Path:
    with Store(tmp_path / "orch.db") as store:
        store.keep_progress("vision/old", note("before anybody listened"))
    return tmp_path / "orch.db"


def note(words: str) -> str:
    return json.dumps({"kind": "note", "words": words})


def hub_of(database: Path) -> EventHub:
    return EventHub(site=Site(location=database, project="default", access=CloudAccess()))


def list_words(text: str) -> list[str]:
    found: list[Any] = [json.loads(one) for one in re.findall(r"event: progress\ndata: (.*)", text)]
    return [one["progress"]["words"] for one in found]


async def read_until(stream: AsyncGenerator[bytes], last: str) -> list[str]:
    """Return the words of what is sent until these come."""
    text = ""
    async with asyncio.timeout(60):
        while last not in list_words(text):
            text += (await anext(stream)).decode()
    return list_words(text)


def test_progress_of_the_own_project_alone_is_sent_as_it_happens(database: Path) -> None:
    hub = hub_of(database)

    async def follow() -> list[list[str]]:
        streams = [hub.listen(None, project) for project in ("vision", "audio", "")]
        for stream in streams:
            for _ in range(2):  # the pause between two connections, and the number of the newest event
                await anext(stream)
        with Store(database) as store:
            for cluster, words in (("vision/a", "v"), ("audio/a", "a"), ("mine", "d"), ("vision/a", "end v"),
                                   ("audio/a", "end a"), ("mine", "end d")):  # fmt: skip
                store.keep_progress(cluster, note(words))
        return [await read_until(*pair) for pair in zip(streams, ("end v", "end a", "end d"), strict=True)]

    vision, audio, every = asyncio.run(follow())
    assert (vision, audio) == (["v", "end v"], ["a", "end a"])
    assert every == ["v", "a", "d", "end v", "end a", "end d"]


def test_a_number_that_is_committed_after_a_higher_one_is_sent_too(database: Path) -> None:
    hub = hub_of(database)

    def keep(number: int, words: str) -> None:
        with closing(sqlite3.connect(database)) as raw:
            raw.execute("INSERT INTO progress VALUES (?, 0, 'mine', ?)", (number, note(words)))
            raw.commit()

    async def follow() -> list[str]:
        stream = hub.listen(None)
        for _ in range(2):
            await anext(stream)
        keep(20, "later")
        found = await read_until(stream, "later")
        keep(19, "earlier")
        keep(21, "last")
        return found + await read_until(stream, "last")

    assert asyncio.run(follow()) == ["later", "earlier", "last"]


def test_a_client_that_comes_back_misses_none(database: Path) -> None:
    with Store(database) as store:
        seen = store.keep_progress("mine", note("seen"))
        store.keep_progress("mine", note("missed"))

    async def follow() -> list[str]:
        return await read_until(hub_of(database).listen(None, progress=seen), "missed")

    assert asyncio.run(follow()) == ["missed"]
