"""Bills in the stream of events: members of one project see those of its slices, as they happen and afterwards."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from support.service_site import CANDIDATE

from orchestrator.cloud_access import CloudAccess
from orchestrator.service import event_stream
from orchestrator.service.event_stream import EventHub
from orchestrator.service.site import Site
from orchestrator.store.bill_records import BillRecord
from orchestrator.store.leases import Lease
from orchestrator.store.store import Store

PROJECTS = ("vision", "audio")
DAY = 86_400.0


@pytest.fixture
def database(tmp_path: Path) -> Path:
    for project in PROJECTS:
        with Store(tmp_path / "orch.db", project=project) as store:
            cluster = store.open_cluster(f"{project}-c", "v5litepod-16 on gcp")
            lease = store.acquire(f"cluster:{project}-c", "a test")
            assert isinstance(lease, Lease)
            store.write_intent(lease, cluster, 1, f"{project}-1", CANDIDATE, f"token-{project}", "request")
            store.release(lease)
    return tmp_path / "orch.db"


def import_bills(database: Path, dollars: int) -> None:
    found = [
        BillRecord(
            source="gcp", account="a", month="2026-11", token=token, part="machines", begin=day * DAY,
            until=(day + 1) * DAY, microdollars=dollars * 1_000_000,
        )
        for token in ("token-vision", "token-audio", "token-of-no-record") for day in range(20_000, 20_003)
    ]  # fmt: skip
    with Store(database) as store:
        store.import_bills(found, {("gcp", "a", "2026-11")})


def list_bills(text: str) -> list[str]:
    events = [json.loads(one) for one in re.findall(r"data: (.*)", text)]
    return [one["what"].split(":")[3] for one in events if one["kind"] == "bill"]


async def read_until(stream: AsyncGenerator[bytes], count: int) -> str:
    """Return what is sent until it has so many bills."""
    text = ""
    async with asyncio.timeout(60):
        while len(list_bills(text)) < count:
            text += (await anext(stream)).decode()
    return text


def test_bills_of_the_own_project_alone_are_sent(database: Path) -> None:
    hub = EventHub(site=Site(location=database, project="default", access=CloudAccess()))

    async def follow() -> dict[str, list[str]]:
        limits = ("vision", "audio", "none", "")
        streams = {project: hub.listen(None, project) for project in limits}
        texts = {
            project: (await anext(one) + await anext(one)).decode() for project, one in streams.items()
        }  # each listens now
        await asyncio.to_thread(import_bills, database, 1)
        for project, count in (("vision", 3), ("audio", 3), ("", 9)):
            texts[project] += await read_until(streams[project], count)
        with Store(database, project="none") as store:
            store.event("none/later", "note", "after the bills")
        async with asyncio.timeout(60):
            while "after the bills" not in texts["none"]:
                texts["none"] += (await anext(streams["none"])).decode()
        for one in streams.values():
            await one.aclose()
        again = hub.listen(0, "vision")
        texts["again"] = await read_until(again, 3)
        await again.aclose()
        return {project: list_bills(text) for project, text in texts.items()}

    found = asyncio.run(follow())
    assert found["vision"] == found["again"] == ["token-vision"] * 3
    assert found["audio"] == ["token-audio"] * 3
    assert len(found[""]) == 9 and found["none"] == []


def test_who_comes_while_events_are_read_misses_none(database: Path) -> None:
    hub = EventHub(site=Site(location=database, project="default", access=CloudAccess()))
    import_bills(database, 1)
    page = hub._read_page(0, ("vision",))
    assert page is not None and page.list_missing(["vision", ""]) == []
    assert page.list_missing(["audio", "vision", "audio"]) == ["audio"]
    assert list_bills(page.after(0, "audio").decode()) == []
    hub._add_shown(page, ["audio"])
    assert list_bills(page.after(0, "audio").decode()) == ["token-audio"] * 3
    assert list_bills(page.after(page.numbers[-1], "audio").decode()) == []


def test_who_hears_of_no_event_hears_that_the_stream_is_alive(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "ALIVE_SECONDS", 0.0)
    hub = EventHub(site=Site(location=database, project="default", access=CloudAccess()))

    async def follow() -> list[bytes]:
        streams = [hub.listen(None, project) for project in ("vision", "")]
        async with asyncio.timeout(60):
            return [[await anext(one) for _ in range(3)][-1] for one in streams]

    assert asyncio.run(follow()) == [b": alive\n\n"] * 2
