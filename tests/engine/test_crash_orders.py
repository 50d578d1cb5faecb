"""An engine that is killed anywhere while it carries out an order: the next one ends it, and nothing is done twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from crash_matrix import Database, Place, empty_store, finish, matrix
from crash_verbs import CLUSTER, READY, STOPPED, Verb, matrix_folder, nothing_yet, recover, stopped, task, up
from support.driving import Listener
from support.simulated import SimHome

from orchestrator.engine.state.opening import open_store
from orchestrator.engine.state.recorded import open_reader
from orchestrator.engine.unattended.orders import attend_order
from orchestrator.paths import load_paths
from orchestrator.store.order_records import OrderRecord


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with matrix_folder(monkeypatch) as root:
        yield root


def ordered(verb: str, begin: Callable[[SimHome], None], alive: dict[str, str], runs: int = 1) -> Verb:
    """What an engine does after a member has asked for a verb, also when it is started again."""

    def act(home: SimHome) -> None:
        with home.points.commits():
            with open_store(load_paths(), home.services(), verb) as store:
                store.open_order(make_order(verb, store.member, home.clock.now()))
                left = store.open_orders()
            for order in left:
                attend_order(load_paths(), home.services(), order, Listener())
        if verb == "launch":
            recover(home, spot=False)

    return Verb(f"order of {verb}", begin, act, alive, runs)


def make_order(verb: str, member: str, now: float) -> OrderRecord:
    given: dict[str, dict[str, object]] = {"launch": {"task": task().to_json()}, "exec": {"command": "hostname"}}
    return OrderRecord(
        uid="asked", project="default", cluster=CLUSTER, verb=verb,
        arguments=json.dumps(given.get(verb, {})), plan="p",
        fingerprint="f", member=member, state="open", created=now,
        run_id="the-run" if verb in given else "",
    )  # fmt: skip


VERBS = (
    ordered("launch", nothing_yet, READY),
    ordered("stop", up, STOPPED),
    ordered("start", stopped, READY),
    ordered("down", up, {}),
    ordered("exec", up, READY, runs=2),  # with the launch before it
)


def finish_order(place: Place, verb: Verb, where: str) -> list[str]:
    """Continue as the next engine does, and return what is wrong then."""
    wrong = finish(place, verb, where)
    with open_reader() as reader:
        order = reader.order("asked")
        ends = [event for event in reader.all_events() if event.kind == "order" and event.before is not None]
    if (order.state, order.status) != ("ended", 0):
        wrong.append(f"{verb.name}, killed {where}: the order is {order}")
    if len(ends) != 1:
        wrong.append(f"{verb.name}, killed {where}: it ended {len(ends)} times")
    return wrong


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("database", ["SQLite", "PostgreSQL"])
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_an_order_is_carried_out_once_wherever_its_engine_is_killed(
    folder: Path, verb: Verb, database: Database
) -> None:
    with empty_store(database) as server:
        counts = matrix(Place(folder, server=server), [verb], points="distinct", then=finish_order)
    assert {"after commit open_order", "after commit end_order"} <= set(counts.names)
    assert counts.violations == [], "\n".join(counts.violations[:20])
