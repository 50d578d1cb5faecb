"""orch, its hosts and its database are killed, frozen and restarted at random moments, and the clock is set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from random_driver.driver import History
from support.lanes import share_of, spread
from support.postgres import PostgresServer, postgres_server
from support.proof import report

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as found:
        yield found


@pytest.mark.promise("P1")
@pytest.mark.parametrize("seed", spread(share_of(range(150), 3)))
def test_nothing_is_left_and_no_program_starts_twice(seed: int, tmp_path: Path, server: PostgresServer) -> None:
    history = History(seed, tmp_path, server if seed % 2 else None)
    history.play()
    report(
        "random kills, freezes and restarts of orch, hosts and PostgreSQL, with clock jumps, through the CLI",
        {"histories": 1, **history.counts},
        len(history.violations),
    )
    assert history.violations == [], "\n".join(history.notes)
