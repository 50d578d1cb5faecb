"""Saves by time (`checkpoint.minutes`): by rank 0's clock, at the same steps on every rank, with few messages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from checkpoint_toy import ToyEngine, as_world, config_of, data_of, resume

from trainer.checkpoint.save_clock import SaveClock
from trainer.checkpoint.session import Checkpoints
from trainer.environment import Run
from trainer.shape.mesh import Mesh
from trainer.team import Team

SECONDS = 900.0


@dataclass
class Clock:
    seconds: float

    def __call__(self) -> float:
        return self.seconds


def late_steps(team: Team, paces: tuple[float, ...], first: int, last: int) -> tuple[list[int], int]:
    """Return the steps at which the time had come, and the number of comparisons.

    Args:
        team: The ranks.
        paces: Seconds of a step by the clock of each rank.
        first: The first step of this start.
        last: The last step.
    """
    now = Clock(1e6 * team.world.rank)
    clock = SaveClock(seconds=SECONDS, team=team, now=now)
    late: list[int] = []
    compared = 0
    for step in range(first, last + 1):
        now.seconds += paces[team.world.rank]
        if clock.compares_at(step):
            compared += 1
            if clock.is_late(step):
                late.append(step)
                clock.restart()
    return late, compared


def test_all_ranks_save_at_the_steps_that_rank_0s_clock_says() -> None:
    paces = (3.0, 0.001, 5000.0)  # clocks of the others stand still, and run away
    found = as_world(3, lambda team: late_steps(team, paces, 1001, 2500))
    assert found[0] == found[1] == found[2]
    late, compared = found[0]
    gaps = [after - before for before, after in zip([1001, *late], late, strict=False)]
    assert len(late) == 4 and all(300 <= gap <= 302 for gap in gaps), late
    assert compared <= 12 * (len(late) + 1)


def test_slow_steps_are_saved_each_and_no_minutes_need_no_message() -> None:
    late, _ = as_world(1, lambda team: late_steps(team, (1000.0,), 1, 6))[0]
    assert late == [2, 3, 4, 5, 6]
    clock = SaveClock(seconds=0.0, team=as_world(1, lambda team: team)[0])
    assert not clock.compares_at(5)


def test_a_run_saves_by_time_alone_and_resumes_from_there(tmp_path: Path) -> None:
    place = f"file://{tmp_path}/run/checkpoints"
    config = config_of("checkpoint.every=0", "checkpoint.minutes=1e-9", "checkpoint.keep=9")

    def rank(team: Team) -> list[int]:
        run = Run(run_id="run", attempt=1, checkpoint_uri=place)
        session = Checkpoints.open(config, run, team, lambda _: None)
        saved: list[int] = []
        for step in range(1, 5):
            if session.is_due(step):
                engine = ToyEngine(config, Mesh(data=2), team.world.rank, 2, step)
                assert session.save(engine, data_of(step), wait=False)
                saved.append(session.saved)
        session.finish_save()
        team.gather(None)
        return saved

    first, second = as_world(2, rank)
    assert first == second and first[-1] == 4
    done, engines, _ = resume(place, config, Mesh(data=2), 2)
    assert done == 4
    for engine in engines:
        engine.check(4)


def test_without_minutes_only_the_number_of_steps_counts(tmp_path: Path) -> None:
    def due(team: Team, *words: str) -> list[int]:
        run = Run(run_id="run", attempt=1, checkpoint_uri=f"file://{tmp_path}/{len(words)}/checkpoints")
        session = Checkpoints.open(config_of(*words), run, team, lambda _: None)
        return [step for step in range(1, 10) if session.is_due(step)]

    assert as_world(1, lambda team: due(team, "checkpoint.every=4"))[0] == [4, 8]
    assert as_world(1, lambda team: due(team, "checkpoint.every=4", "checkpoint.minutes=600"))[0] == [4, 8]
    assert as_world(1, lambda team: due(team, "checkpoint.every=0", "checkpoint.minutes=600", "seed=1"))[0] == []
