"""What a dry run lists is, action by action, what the real run then does."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from support.driving import Listener, local_task

from orchestrator.engine.loop.drive import drive_cluster
from orchestrator.engine.preparation import commands
from orchestrator.engine.preparation.prepared import PreparedCommand
from orchestrator.engine.preparation.resume import prepare_resume
from orchestrator.engine.state.recorded import open_reader
from orchestrator.plan.actions import Action, SyncTree
from orchestrator.plan.compare import find_mismatches
from orchestrator.plan.dry_run import make_plan
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.task.model import Checkpoint, FileMount, Task
from orchestrator.values import Secret


def check(ready: PreparedCommand, *, follow: bool = True) -> list[Action]:
    """Plan first, then do it, and compare; returns what was done."""
    planned = make_plan(ready.desired, ready.recorded, ready.facts).actions
    done: list[Action] = []
    drive_cluster(ready, Listener(), recorder=done, follow=follow)
    if not follow:
        planned = planned[: len(done)]
    assert find_mismatches(planned, done) == []
    assert len(done) > 0
    return done


def variants(root: Path) -> Iterator[tuple[str, Task, TeardownPolicy]]:
    """Every combination of the options that change what is done."""
    (root / "data").mkdir()
    (root / "data" / "a b").write_text("data")
    (root / "bucket" / "in").mkdir(parents=True)
    (root / "bucket" / "in" / "x").write_text("x")
    work = {"workdir": str(root / "data")}
    mounts = {"file_mounts": (FileMount("~/data", str(root / "data")), FileMount("~/in", f"file://{root}/bucket/in"))}
    setup = {"setup": "echo 'set up' \"$HELLO\"", "envs": (("HELLO", "it's $HOME\n`x`"),)}
    bucket = {"checkpoint": Checkpoint(bucket=f"file://{root}/bucket")}
    for number, (a, b, c, d) in enumerate(product([{}, work], [{}, mounts], [{}, setup], [{}, bucket])):
        after = TeardownPolicy.DOWN if number % 2 else TeardownPolicy.KEEP
        yield f"v{number}", local_task(1 + number % 2, run="true", **a, **b, **c, **d), after


@pytest.mark.slow
def test_every_combination_of_options_does_what_its_preview_lists(home: Path, tmp_path: Path) -> None:
    count = 0
    for name, task, after in variants(tmp_path):
        check(commands.prepare_launch(task, cluster=name, after=after))
        with open_reader() as reader:
            still_there = reader.cluster(name) is not None
        assert still_there is (after is TeardownPolicy.KEEP)
        if still_there:
            check(commands.prepare_down(name))
        count += 1
    assert count == 16


def test_every_command_on_an_existing_cluster_does_what_its_preview_lists(home: Path, tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    task = local_task(
        2,
        run="sleep 300",
        setup="true",
        checkpoint=Checkpoint(bucket=f"file://{tmp_path}/bucket"),
        secret_names=("KEY",),
        secrets=(Secret("KEY", "hidden"),),
    )
    check(commands.prepare_launch(task, cluster="c", after=TeardownPolicy.KEEP), follow=False)
    check(commands.prepare_exec("c", "true", hosts=(1,), workdir=None))
    check(commands.prepare_cancel("c", None))
    failed = local_task(2, run="exit 4", setup="true", checkpoint=Checkpoint(bucket=f"file://{tmp_path}/bucket"))
    drive_cluster(commands.prepare_launch(failed, cluster="c", after=TeardownPolicy.KEEP), Listener())
    resumed = prepare_resume("c", after=TeardownPolicy.KEEP)
    planned = make_plan(resumed.desired, resumed.recorded, resumed.facts).actions
    done: list[Action] = []
    drive_cluster(resumed, Listener(), recorder=done)
    assert find_mismatches(planned[:-1], done[:-1]) == []  # the last one records how it ended: the plan assumes success
    check(commands.prepare_stop("c"))
    check(commands.prepare_start("c"))
    check(commands.prepare_down("c"))


def test_the_comparison_notices_a_real_difference(home: Path, tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "f").write_text("1")
    ready = commands.prepare_launch(
        local_task(1, workdir=str(tmp_path / "w"), run="true"), cluster="c", after=TeardownPolicy.DOWN
    )
    planned = make_plan(ready.desired, ready.recorded, ready.facts).actions
    assert find_mismatches(planned, planned[1:]) != []
    other = tuple(replace(one, destination="elsewhere") if isinstance(one, SyncTree) else one for one in planned)
    assert find_mismatches(planned, other) != []


def test_two_concurrent_launches_make_one_cluster_and_name_the_blocking_one(home: Path) -> None:
    endings: list[object] = []

    def launch(seconds: str) -> None:
        try:
            ready = commands.prepare_launch(
                local_task(2, run=f"sleep {seconds}"), cluster="c", after=TeardownPolicy.KEEP
            )
            endings.append(drive_cluster(ready, Listener()).status)
        except Exception as error:  # the second one is refused; its words are looked at
            endings.append(error)

    threads = [threading.Thread(target=launch, args=(seconds,)) for seconds in ("6", "7")]
    for thread in threads:
        thread.start()
        time.sleep(0.05)
    for thread in threads:
        thread.join()
    refused = [ending for ending in endings if isinstance(ending, Exception)]
    assert 0 in endings
    assert len(refused) == 1
    assert "still runs" in str(refused[0]) or "worked on" in str(refused[0])
    with open_reader() as reader:
        (cluster,) = reader.clusters()
        assert len(reader.intents(cluster)) == 1
