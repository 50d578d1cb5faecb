"""Run the steps one after the other within the caps, and end everything afterwards, whatever happened."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from orchestrator.acceptance.answers import Refusal, read_refusals
from orchestrator.acceptance.budget import compute_allowed_minutes, find_cap, sum_prices
from orchestrator.acceptance.judge import find_problem, list_accounts, list_places, name_account
from orchestrator.acceptance.process import Output, Surroundings, run_orch
from orchestrator.acceptance.steps import Expectation, Request, Step

_STATUS_SECONDS = 60.0
_END_SECONDS = 900.0
_END_TRIES = 3
_UNKNOWN = "it is not known whether anything is left"


class Outcome(StrEnum):
    """How a step ended."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of a step.

    Attributes:
        why: Why it failed or was not run.
        dollars: List price of all machines that may have existed during it.
        output: Of its command; None where it was not run.
    """

    step: Step
    outcome: Outcome
    why: str = ""
    dollars: float = 0.0
    output: Output | None = None
    refusals: tuple[Refusal, ...] = ()


@dataclass(slots=True, kw_only=True)
class Run:
    """One acceptance run.

    Attributes:
        prices: US dollars an hour of each cluster; the higher of plan and record.
        report: Called with each result as it is there.
        is_stopped: Whether the user wants it to end.
        results: Of the steps, in their order.
        ending: Commands that ended what the steps left.
        accounts: Names of the accounts that were used, as far as records and listings name them.
        left: What still exists, or may exist, for people; empty when nothing does.
        started: Steady seconds.
    """

    request: Request
    steps: tuple[Step, ...]
    prices: dict[str, float]
    surroundings: Surroundings
    report: Callable[[Result], None]
    is_stopped: Callable[[], bool]
    results: list[Result] = field(default_factory=list[Result])
    ending: list[Result] = field(default_factory=list[Result])
    accounts: set[str] = field(default_factory=set[str])
    left: list[str] = field(default_factory=list[str])
    started: float = field(default_factory=time.monotonic)
    _rented: set[str] = field(default_factory=set[str])
    _slices: dict[str, str] = field(default_factory=dict[str, str])
    _ending: bool = False

    @property
    def spent(self) -> float:
        """List price of the machines so far, in US dollars; rather too high than too low."""
        return sum(result.dollars for result in (*self.results, *self.ending))

    @property
    def passed(self) -> bool:
        """Whether every step passed and nothing is left."""
        return all(result.outcome is Outcome.PASSED for result in self.results) and not self.left

    def run(self) -> None:
        """Run all steps, and end everything."""
        try:
            for number, step in enumerate(self.steps):
                result = self._run_step(step, self.steps[number:])
                self.results.append(result)
                self.report(result)
        finally:
            self._ending = True
            self._end_all()

    def _run_step(self, step: Step, rest: Sequence[Step]) -> Result:
        if why := self._find_obstacle(step, rest):
            return Result(step=step, outcome=Outcome.NOT_RUN, why=why)
        before, rented = dict(self._slices), self._rented | ({step.rents} - {""})
        allowed = compute_allowed_minutes(
            step,
            minutes_left=self._minutes_left(),
            dollars_left=self.request.max_cost - self.spent,
            hourly=sum_prices(rented, self.prices),
        )
        if allowed <= 0:
            return Result(step=step, outcome=Outcome.NOT_RUN, why="no money or time is left for it")
        if step.rents:
            self.left = [_UNKNOWN]  # until the cloud's listing proves otherwise
        output = self._run_command(step, allowed * 60)
        self._rented = rented
        self._read_status()
        self.accounts |= list_accounts(output.out, self.request.cloud)
        problem = find_problem(
            step.expects, output, folder=self.surroundings.folder, cloud=self.request.cloud, before=before,
            now=self._slices,
        )  # fmt: skip
        result = Result(
            step=step,
            outcome=Outcome.FAILED if problem else Outcome.PASSED,
            why=problem,
            dollars=sum_prices(rented, self.prices) * output.seconds / 3600,
            output=output,
            refusals=tuple(read_refusals(self.surroundings.refusals_file(step.name), step.name)),
        )
        if step.ends and not problem:
            self._rented.discard(step.ends)
        return result

    def _find_obstacle(self, step: Step, rest: Sequence[Step]) -> str:
        """Return why a step must not begin, or ""."""
        if self.is_stopped():
            return "the run was stopped"
        passed = {result.step.name for result in self.results if result.outcome is Outcome.PASSED}
        if missing := [name for name in step.needs if name not in passed]:
            return f"needs {', '.join(missing)}"
        if self._minutes_left() <= 0:
            return f"the {self.request.max_minutes:g} minutes of the run are over"
        return find_cap(rest, spent=self.spent, prices=self.prices, rented=self._rented, max_cost=self.request.max_cost)

    def _minutes_left(self) -> float:
        return self.request.max_minutes - (time.monotonic() - self.started) / 60

    def _run_command(self, step: Step, seconds: float) -> Output:
        stopped = (lambda: False) if self._ending else self.is_stopped
        return run_orch(
            self.surroundings,
            step.name,
            step.argv,
            seconds=seconds,
            interruption=step.interruption,
            is_stopped=stopped,
        )

    def _read_status(self) -> list[str] | None:
        """Read slices and prices from the record; return the names of its clusters, None where it is unreadable."""
        output = run_orch(self.surroundings, "status-read", ("status", "-o", "json"), seconds=_STATUS_SECONDS)
        try:
            clusters: list[dict[str, Any]] = json.loads(output.out)["clusters"]
        except (ValueError, KeyError, TypeError):
            return None
        self._slices = {one["name"]: one["machines"]["slice"] for one in clusters if one["machines"]}
        for one in clusters:
            machines: dict[str, Any] = one["machines"] or {}
            self.accounts |= {name_account(machines.get("account"))} - {""}
            price = float(machines.get("price_per_hour") or 0.0)
            self.prices[one["name"]] = max(price, self.prices.get(one["name"], 0.0))
        return [str(one["name"]) for one in clusters]

    def _end_all(self) -> None:
        """End every cluster on record, delete what is in the bucket, and find out what is left."""
        for number in range(_END_TRIES):
            for name in self._read_status() or ():
                self._end(f"end-{name}-{number}", ("down", name, "--yes"))
        if self._is_bucket_used():
            self._end("end-bucket", ("storage", "rm", "-r", self.request.bucket, "--yes"))
        if self.left:
            self.left = self._find_left()

    def _is_bucket_used(self) -> bool:
        outcomes = {result.step.name: result for result in self.results}
        put, deleted = outcomes.get("bucket-put"), outcomes.get("bucket-delete")
        return bool(put and put.output and not (deleted and deleted.outcome is Outcome.PASSED))

    def _end(self, name: str, words: tuple[str, ...]) -> Output:
        step = Step(name=name, argv=words, expects=Expectation(meaning="nothing is left"))
        output = self._run_command(step, _END_SECONDS)
        outcome = Outcome.PASSED if output.status == 0 else Outcome.FAILED
        dollars = sum_prices(self._rented, self.prices) * output.seconds / 3600
        refusals = tuple(read_refusals(self.surroundings.refusals_file(name), name))
        result = Result(step=step, outcome=outcome, dollars=dollars, output=output, refusals=refusals)
        self.ending.append(result)
        if outcome is Outcome.FAILED or name != "end-reap":
            self.report(result)
        return output

    def _find_left(self) -> list[str]:
        """Return what is still on record, and what the cloud still lists under our names."""
        listed = list_places(self._end("end-reap", ("reap", "--yes", "-o", "json")).out, self.request.cloud)
        recorded = self._read_status()
        if recorded is None or not listed or any(place["problem"] for place in listed):
            return [_UNKNOWN]
        slices = [
            f"{one['name']} in {one['where']}"
            for place in listed
            for one in place["slices"]
            if one["cluster"].startswith(self.request.name) and not one["ended"]
        ]
        return [f"cluster {name}" for name in recorded] + slices


def list_refusals(run: Run) -> list[Refusal]:
    """Return every refusal once, in the order in which they came."""
    every = (one for result in (*run.results, *run.ending) for one in result.refusals)
    first = dict[tuple[str, str, str], Refusal]()
    for one in every:
        first.setdefault((one.call, one.code, one.text), one)
    return list(first.values())
