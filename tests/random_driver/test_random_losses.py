"""State folders deleted, restored, copied and damaged between and during commands, on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from random_driver.loss_history import LossHistory
from support.few_zones import few_zones
from support.lanes import share_of, spread
from support.postgres import PostgresServer, postgres_server
from support.proof import report

from orch_fronts.aws.cloud import SimulatedAws
from orch_fronts.google.cloud import SimulatedGoogle

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SCENARIO = "[durations]\ncreate = 0.5\nend = 0.5\nstop = 0.5\nstart = 0.5\ndetect = 0.2\ncontact = 0\n"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as found:
        yield found


@pytest.mark.promise("P1")
@pytest.mark.promise("P2")
@pytest.mark.promise("P5")
@pytest.mark.parametrize("seed", spread(share_of(range(60), 1)))
def test_after_any_loss_no_machine_and_no_checkpoint_is_lost(seed: int, tmp_path: Path, server: PostgresServer) -> None:
    on_aws, on_server = bool(seed % 2), bool(seed // 2 % 2)
    with ExitStack() as stack:
        clouds: list[SimulatedAws | SimulatedGoogle] = []
        for name, account in (("cloud", "111122223333"), ("other", "444455556666")):
            place = tmp_path / name
            place.mkdir()
            head = f'account = "{account}"\n' if on_aws else ""
            (place / "scenario.toml").write_text(head + SCENARIO + few_zones("aws" if on_aws else "gcp"))
            clouds.append(stack.enter_context(SimulatedAws(place) if on_aws else SimulatedGoogle(place)))
        cloud, other = clouds
        store = server.new_store() if on_server else ""
        foreign = other if isinstance(other, SimulatedAws) else None
        history = LossHistory(seed, tmp_path, cloud, foreign, store)
        history.play()
    print("\n".join(history.notes))
    if on_server:
        report(
            "state folders deleted, restored, copied and damaged at random, a team on PostgreSQL",
            {"histories": 1, **history.counts},
            len(history.violations),
        )
    else:
        report(
            "state folders deleted, restored, copied and damaged at random, one person on SQLite",
            {"histories": 1, **history.counts},
            len(history.violations),
        )
    assert history.violations == [], "\n".join([*history.notes, *history.violations])
