"""Two servers at two addresses, one PostgreSQL and one cloud: commands crosswise, disturbed at random."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from random_driver.team_history import MEMBERS, TeamHistory
from support.lanes import share_of, spread
from support.namespaces import missing_for_namespaces, team_network
from support.postgres import PostgresServer, postgres_server
from support.proof import report
from support.slow_proxy import slow_proxy

from orch_fronts.aws.cloud import SimulatedAws
from orch_fronts.google.cloud import SimulatedGoogle

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROUND_TRIP = 0.005
WHY_NOT = missing_for_namespaces()
SCENARIO = "[durations]\ncreate = 0.5\nend = 0.5\nstop = 0.5\nstart = 0.5\ndetect = 0.2\ncontact = 0\n"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as found:
        yield found


@pytest.mark.promise("P1")
@pytest.mark.promise("P2")
@pytest.mark.parametrize("seed", spread(share_of(range(60), 2)))
def test_two_servers_lose_and_double_no_machine(seed: int, tmp_path: Path, server: PostgresServer) -> None:
    with ExitStack() as stack:
        clouds: list[SimulatedAws | SimulatedGoogle] = []
        for name, account in (("cloud", "111122223333"), ("other", "444455556666")):
            place = tmp_path / name
            place.mkdir()
            (place / "scenario.toml").write_text((f'account = "{account}"\n' if seed % 2 else "") + SCENARIO)
            clouds.append(stack.enter_context(SimulatedAws(place) if seed % 2 else SimulatedGoogle(place)))
        proxy = stack.enter_context(slow_proxy(server.port, ROUND_TRIP))
        cloud, other = clouds
        network = None if WHY_NOT else stack.enter_context(team_network(*MEMBERS))
        print("different addresses" if network is not None else f"one address: {WHY_NOT}")
        foreign = other if isinstance(other, SimulatedAws) else None
        history = TeamHistory(seed, tmp_path, cloud, foreign, server, proxy, network)
        history.play()
    print("\n".join(history.notes))
    report(
        "two servers on one PostgreSQL 5 ms away: random commands, kills, freezes, cuts and lost computers",
        {"histories": 1, "histories at two addresses": int(network is not None), **history.counts},
        len(history.violations),
    )
    assert history.violations == [], "\n".join([*history.notes, *history.violations])
