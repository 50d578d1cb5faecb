"""Requests for output that are held: they take no thread, end with news, and are bounded."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.orch_process import Orch
from support.service_site import OUTCOMES, Reply, Served, record_run, serve

from orchestrator.documents.output_parts import MEDIUM, decode_output
from orchestrator.engine.loop.follow import LogFiles
from orchestrator.service.output_waits import MOST_OF_MEMBER
from orchestrator.store.records import ClusterRecord
from orchestrator.store.store import Store

AT = "/v1/clusters/first/logs?begin=attempt-0001/0.log:4"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(Orch(tmp_path_factory.mktemp("held"))) as site:
        yield site


@pytest.fixture(scope="module")
def first(site: Served) -> ClusterRecord:
    with Store(site.orch.state / "orch.db") as store:
        record = record_run(store, "first", "one", ended=False)
    print_on_host(site, record, b"one\n")
    return record


def print_on_host(site: Served, record: ClusterRecord, content: bytes) -> None:
    files = LogFiles(Path(site.orch.state / "logs" / record.uid / "1" / "attempt-0001"))
    files.write(0, content)
    files.close()


def ask_beside(site: Served, path: str, times: int = 1) -> tuple[list[threading.Thread], list[tuple[float, Reply]]]:
    """Send requests at the same time; return their threads, and a list that gets seconds and answer of each."""
    answers: list[tuple[float, Reply]] = []

    def ask() -> None:
        began = time.monotonic()
        reply = site.ask(path)
        answers.append((time.monotonic() - began, reply))

    threads = [threading.Thread(target=ask) for _ in range(times)]
    for thread in threads:
        thread.start()
    return threads, answers


def test_a_request_is_held_until_there_is_more_and_gets_raw_bytes(site: Served, first: ClusterRecord) -> None:
    (thread,), answers = ask_beside(site, f"{AT}&wait=20")
    time.sleep(1.5)
    assert answers == [], "nothing is new"
    print_on_host(site, first, b"\xff\x1b[31m no end")
    thread.join(15)
    ((_, reply),) = answers
    assert reply.headers["content-type"] == MEDIUM
    head, parts = decode_output(reply.body)
    assert (head["job"], head["ended"], head["complete"]) == (1, False, True)
    assert [(part.file, part.begin, bytes(part.content)) for part in parts] == [
        ("attempt-0001/0.log", 4, b"\xff\x1b[31m no end")
    ]


def test_held_requests_take_no_thread_from_others_and_are_bounded(site: Served, first: ClusterRecord) -> None:
    path = f"{AT.replace(':4', ':99')}&wait=8"
    began = time.monotonic()
    threads, answers = ask_beside(site, path, MOST_OF_MEMBER + 5)
    while len(answers) < 5 and time.monotonic() - began < 7:
        time.sleep(0.1)
    assert {reply.status for _, reply in answers} == {503}, "those that are too many"
    assert site.ask("/v1/me").status == 200
    assert len(answers) == 5, "others are answered while these are held"
    for thread in threads:
        thread.join(30)
    held = [seconds for seconds, reply in answers if reply.status == 200]
    assert len(held) == MOST_OF_MEMBER and min(held) > 7


def test_the_end_of_a_job_is_news(site: Served, first: ClusterRecord) -> None:
    (thread,), answers = ask_beside(site, f"{AT.replace(':4', ':99')}&wait=20")
    time.sleep(0.5)
    with Store(site.orch.state / "orch.db") as store:
        store.record_outcome(first, 1, OUTCOMES[0])
    thread.join(15)
    ((seconds, reply),) = answers
    assert decode_output(reply.body)[0]["ended"] and seconds < 10
