"""A take-over that is killed at any step is completed by the same command; of two in the same moment one wins."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.lanes import share_of
from support.orch_process import Orch

from orch_fronts.google.cloud import SimulatedGoogle
from orchestrator.exits import Exit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

STRUCK = Path(__file__).parents[1] / "support" / "struck"
SCENARIO = "[durations]\ncreate = 0.2\nend = 0.2\ndetect = 0.2\ncontact = 0\n"
TASK = "name: two\nresources: {accelerators: tpu-v5e-1, infra: gcp/us-west4/us-west4-a}\nrun: echo done\n"
TAKE_OVER = ("recover", "two", "--take-over", "--yes")


class Team:
    """Installations that share nothing but a cloud and a private key; the first one has launched `two`."""

    def __init__(self, folder: Path, google: SimulatedGoogle) -> None:
        self.google = google
        self._folder = folder
        self.first = self._computer("first")
        (self.first.folder / "two.yaml").write_text(TASK)
        self.first.ok("launch", "two.yaml", "--yes")

    def _computer(self, name: str) -> Orch:
        (self._folder / name).mkdir()
        return Orch(self._folder / name, dict(self.google.env))

    def join(self, name: str) -> Orch:
        """Return another installation, whose key the hosts admit."""
        orch = self._computer(name)
        shutil.copytree(self.first.state / "keys", orch.state / "keys")
        return orch

    def living(self) -> list[str]:
        with self.google.cloud.open() as cloud:
            return [look.name for look in cloud.live()]


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Team]:
    place = tmp_path / "cloud"
    place.mkdir()
    (place / "scenario.toml").write_text(SCENARIO)
    with SimulatedGoogle(place) as google:
        yield Team(tmp_path, google)


def struck(orch: Orch, at: int = 0, together: str = "") -> Orch:
    """Return the same command line, whose commands note their points, and die at one of them."""
    more = {"PYTHONPATH": str(STRUCK), "STRUCK_LOG": str(orch.folder / "points"), "STRUCK_AT": str(at)}
    return replace(orch, more={**orch.more, **more, "STRUCK_TOGETHER": together})


def points(orch: Orch) -> list[str]:
    return (orch.folder / "points").read_text().splitlines()


def open_records(orch: Orch) -> list[tuple[str, str]]:
    """Return name and state of each cluster on record."""
    found = json.loads(orch.ok("status", "-o", "json"))["clusters"]
    return [(one["name"], one["state"]) for one in found]


@pytest.mark.promise("P5")
def test_a_take_over_that_is_killed_at_any_step_is_completed_by_the_same_command(team: Team) -> None:
    (name,) = team.living()
    whole = team.join("whole")
    struck(whole).ok(*TAKE_OVER)
    every = points(whole)
    assert {"before PATCH", "during PATCH", "after commit record_take_over"} <= {*every}, every
    killed = share_of(range(1, len(every) + 1), 4)
    for at in killed:
        orch = team.join(f"killed-{at}")
        done = struck(orch, at)(*TAKE_OVER)
        assert done.returncode == -signal.SIGKILL, (every[at - 1], done.stderr)
        assert team.living() == [name]
        again = orch(*TAKE_OVER)
        assert again.returncode == 0, (every[at - 1], again.stderr)
        assert "its hosts obey this installation alone" in again.stderr, (every[at - 1], again.stderr)
        assert open_records(orch) == [("two", "ready")], every[at - 1]
        assert "mine" in orch.ok("exec", "two", "--no-prefix", "--", "echo mine"), every[at - 1]
        assert team.living() == [name]
        orch.ok("events", "--verify")
        last = orch
    refused = whole("exec", "two", "--", "true")
    assert refused.returncode == Exit.CONFLICT and open_records(whole) == [], refused.stderr
    last.ok("down", "two")
    assert team.living() == []


@pytest.mark.promise("P5")
def test_of_two_that_take_over_at_the_same_moment_one_owns_and_the_other_says_so(team: Team, tmp_path: Path) -> None:
    together = tmp_path / "together"
    together.mkdir()
    both = [team.join(name) for name in ("bob", "carol")]
    running = [struck(orch, together=f"{together} 2").start(*TAKE_OVER) for orch in both]
    said = [process.communicate(timeout=240)[1] for process in running]
    codes = [process.returncode for process in running]
    assert sorted(codes) == [Exit.OK, Exit.CONFLICT], said
    winner, loser = both if codes[0] == Exit.OK else both[::-1]
    (message,) = [text for text, code in zip(said, codes, strict=True) if code]
    assert "error[taken-over]: the machines of 'two' were taken over by installation" in message
    assert "at the same moment" in message and "the record here is closed" not in message, message
    assert open_records(loser) == [] and open_records(winner) == [("two", "ready")]
    assert "mine" in winner.ok("exec", "two", "--no-prefix", "--", "echo mine")
    places = json.loads(winner("recover", "--all", "-o", "json").stdout)["places"]
    (one,) = [each for place in places for each in place["slices"]]
    assert (one["ours"], one["record"]) == (True, "open")
    winner.ok("down", "two")
    assert team.living() == []
