"""Caps, order and the end of a run, with a program in the place of orch whose cloud does what a test needs."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.acceptance.process import Surroundings, run_orch
from orchestrator.acceptance.report import make_report
from orchestrator.acceptance.run import Outcome, Run
from orchestrator.acceptance.steps import Expectation, Interruption, Request, Step, list_steps

# `launch` makes a cluster and prints its sleep; files `slow`, `undeletable` and `unreadable` change what it does.
PROGRAM = """
import json, pathlib, sys, time
_, verb, *words = sys.argv[1:]
file = pathlib.Path("clusters.json")
clusters = json.loads(file.read_text()) if file.exists() else []
slow = pathlib.Path("slow")
if verb == "launch":
    clusters.append(words[2])
    file.write_text(json.dumps(clusters))
    print("acceptance-program-ran for project secret-project-7", flush=True)
    time.sleep(float(slow.read_text()) if slow.exists() else 0)
elif verb == "down" and not pathlib.Path("undeletable").exists():
    file.write_text(json.dumps([one for one in clusters if one != words[0]]))
elif verb == "down":
    sys.exit("error: not now")
elif verb == "status" and not pathlib.Path("unreadable").exists():
    machines = {"slice": "s-1", "price_per_hour": 3600.0, "account": "cloud:secret-project-7"}
    print(json.dumps({"clusters": [{"name": one, "machines": machines} for one in clusters]}))
elif verb == "reap":
    slices = [{"name": f"{one}-1", "cluster": one, "where": "z", "ended": False} for one in clusters]
    print(json.dumps({"places": [{"provider": "gcp", "asked": True, "problem": None, "slices": slices,
                                  "place": "listed-project-8", "account": "cloud:listed-project-8"}]}))
"""
NAME = "acceptance-x"
REQUEST = Request(cloud="gcp", place="gcp", name=NAME, max_cost=10_000)
LAUNCH = next(step for step in list_steps(REQUEST) if step.name == "launch")
OTHER = Step(name="other", argv=("exec", NAME), expects=Expectation(meaning="nothing"), needs=("launch",))
DOWN = next(step for step in list_steps(REQUEST) if step.name == "down")

Make = Callable[..., Run]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    (tmp_path / "program.py").write_text(PROGRAM)
    launcher = (sys.executable, str(tmp_path / "program.py"))

    def make(*steps: Step, price: float = 0.0, request: Request = REQUEST, stop_after: str = "") -> Run:
        run = Run(
            request=request,
            steps=steps,
            prices={NAME: price},
            surroundings=Surroundings(launcher=launcher, folder=tmp_path, env={}),
            report=lambda result: None,
            is_stopped=lambda: stop_after in [result.step.name for result in run.results],
        )
        return run

    return make


def outcomes(run: Run) -> dict[str, Outcome]:
    run.run()
    return {result.step.name: result.outcome for result in run.results}


def report_of(run: Run) -> dict[str, Any]:
    names = dict.fromkeys(run.accounts, "<account>")
    return make_report(run, end_command="orch down", names=names, now=0.0)


def test_what_passes_is_ended_and_paid_until_its_end(make: Make) -> None:
    run = make(LAUNCH, OTHER, DOWN, price=1.0)
    assert set(outcomes(run).values()) == {Outcome.PASSED} and run.passed
    assert [result.step.name for result in run.ending] == ["end-reap"]
    seconds = sum(result.output.seconds for result in run.results if result.output)
    assert run.spent == pytest.approx(seconds, rel=0.01), "the recorded price of $1 a second, not the planned one"


def test_a_failed_step_is_a_finding_and_what_needs_it_is_not_run(make: Make, tmp_path: Path) -> None:
    wrong = replace(LAUNCH, expects=replace(LAUNCH.expects, pattern="something else"))
    run = make(wrong, OTHER, replace(OTHER, name="free", needs=()))
    assert outcomes(run) == {"launch": "failed", "other": "not run", "free": "passed"}
    assert not run.passed and run.left == []
    assert json.loads((tmp_path / "clusters.json").read_text()) == [], "its machines are ended nevertheless"


def test_machines_that_cannot_be_ended_are_reported_with_the_command(make: Make, tmp_path: Path) -> None:
    (tmp_path / "undeletable").touch()
    run = make(LAUNCH, DOWN)
    assert outcomes(run)["down"] is Outcome.FAILED and not run.passed
    assert len([result for result in run.ending if result.step.argv[0] == "down"]) == 3, "it is tried again"
    assert run.left == [f"cluster {NAME}", f"{NAME}-1 in z"]
    assert report_of(run)["left"][-1] == "orch down"


def test_what_is_left_is_unknown_when_the_record_cannot_be_read(make: Make, tmp_path: Path) -> None:
    (tmp_path / "unreadable").touch()
    run = make(LAUNCH)
    run.run()
    assert run.left == ["it is not known whether anything is left"] and not run.passed


def test_a_step_is_interrupted_before_the_price_passes_its_cap(make: Make, tmp_path: Path) -> None:
    (tmp_path / "slow").write_text("60")
    quick = replace(LAUNCH, minutes=0.01)
    run = make(quick, replace(OTHER, minutes=0.01), price=3600.0, request=replace(REQUEST, max_cost=303.0))
    assert outcomes(run) == {"launch": "failed", "other": "not run"}, "a dollar a second, and 5 min to end it"
    assert run.results[0].why == "it was interrupted: it took too long"
    assert run.spent <= run.request.max_cost and run.left == []


def test_the_rest_is_not_run_when_it_would_pass_the_cap(make: Make, tmp_path: Path) -> None:
    (tmp_path / "slow").write_text("2")
    steps = (replace(LAUNCH, minutes=0.01), replace(OTHER, minutes=5.9, most_minutes=9), replace(DOWN, minutes=0.1))
    run = make(*steps, price=3600.0, request=replace(REQUEST, max_cost=361.0))
    assert outcomes(run) == {"launch": "passed", "other": "not run", "down": "passed"}, "what ends machines still fits"
    assert "more than $361.00" in run.results[1].why
    assert run.left == [] and run.spent < 361


def test_ctrl_c_ends_the_run_and_the_machines(make: Make) -> None:
    run = make(LAUNCH, OTHER, DOWN, stop_after="launch")
    assert outcomes(run) == {"launch": "passed", "other": "not run", "down": "not run"}
    assert run.left == [] and next(result.step.argv[:2] for result in run.ending) == ("down", NAME)


def test_time_is_capped(make: Make, tmp_path: Path) -> None:
    (tmp_path / "slow").write_text("30")
    run = make(LAUNCH, OTHER, request=replace(REQUEST, max_minutes=0.02))
    assert outcomes(run) == {"launch": "failed", "other": "not run"}
    assert run.results[0].why == "it was interrupted: it took too long" and run.left == []


def test_the_report_has_each_step_and_no_name_of_the_account(make: Make) -> None:
    listed = Step(name="reap", argv=("reap",), expects=Expectation(meaning="a listing"))
    run = make(LAUNCH, OTHER, DOWN, listed)
    run.run()
    report = report_of(run)
    assert [step["name"] for step in report["steps"]] == ["launch", "other", "down", "reap"]
    first = report["steps"][0]
    assert first["argv"][:2] == ["orch", "launch"] and first["status"] == 0 and first["seconds"] >= 0
    assert first["stdout"] == ["acceptance-program-ran for project <account>"]
    assert run.accounts == {"secret-project-7", "listed-project-8"}
    assert "secret-project-7" not in json.dumps(report) and "listed-project-8" not in json.dumps(report)


def test_a_command_is_interrupted_by_what_it_prints(make: Make, tmp_path: Path) -> None:
    (tmp_path / "slow").write_text("60")
    surroundings = make().surroundings
    kill = Interruption(pattern="program-ran", signal=signal.SIGKILL)
    output = run_orch(surroundings, "one", ("launch", "f", "-c", NAME), seconds=30, interruption=kill)
    assert (output.status, output.problem) == (137, "") and output.seconds < 20
    never = replace(kill, pattern="never printed")
    (tmp_path / "slow").unlink()
    output = run_orch(surroundings, "two", ("launch", "f", "-c", NAME), seconds=30, interruption=never)
    assert output.problem == "it ended before it could be interrupted"


def test_an_error_of_ours_ends_the_machines_and_never_claims_that_nothing_is_left(make: Make, tmp_path: Path) -> None:
    run = make(LAUNCH)
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / "launch.refusals").mkdir()  # a folder cannot be read as a file
    with pytest.raises(IsADirectoryError):
        run.run()
    assert run.left == [] and json.loads((tmp_path / "clusters.json").read_text()) == []
    run = make(LAUNCH)
    (tmp_path / "output" / "end-reap.refusals").mkdir()
    with pytest.raises(IsADirectoryError):
        run.run()
    assert run.left == ["it is not known whether anything is left"], "the folder with its keys is kept"
