"""The plan as text for people: a summary of one or two screens; with `verbose` every request and script as well."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import OrchError
from orchestrator.formatting import format_amount_range, format_duration, format_rate
from orchestrator.plan import preview_format as fmt
from orchestrator.plan.actions import (
    Action,
    ArmTimer,
    CollectStacks,
    Conclude,
    CreateSlice,
    EndAttempt,
    EndSlice,
    FetchMount,
    ForgetSlice,
    HostAction,
    NextAttempt,
    RunSetup,
    StartJob,
    StartSlice,
    StopJob,
    StopSlice,
    SyncTree,
)
from orchestrator.plan.desired import Down, Run
from orchestrator.plan.dry_run import Plan
from orchestrator.plan.preview_advice import advice_lines
from orchestrator.plan.preview_details import Details, list_requests, script_of
from orchestrator.plan.ranks import format_hosts
from orchestrator.plan.steps import Done, Wait, WaitFor
from orchestrator.slices import Candidate

MOST_FALLBACKS = 3  # groups of other candidates in a summary; the rest is counted
MOST_PLACES = 6  # places of one group in a summary


def render_text(
    plan: Plan,
    *,
    verbose: bool = False,
    width: int = 100,
    command: str | None = "",
    advice: Sequence[Mapping[str, Any]] = (),
    refusal: OrchError | None = None,
) -> str:
    """Return the preview as lines of about `width` columns, ending in a newline.

    Args:
        plan: What would be done.
        verbose: Add the requests, environments and scripts under their steps.
        width: Columns; at least 40 are used.
        command: The command line that carries the plan out; "" for the same one without --dry-run,
            None to name none.
        advice: What the training needs on each kind of machine, as trainer/shape/advice.py gives it.
        refusal: Why the command would refuse this plan, if it would.
    """
    page = _Page(plan, max(40, width), verbose, advice)
    lines = [*page.head(), "", *page.steps(refusal), "", *page.foot(command, refusal)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def render_head(plan: Plan, *, width: int = 100, advice: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return the first lines of the preview: machines, price, restarts, limits and advice."""
    page = _Page(plan, max(40, width), verbose=False, advice=advice)
    return "\n".join(line.rstrip() for line in page.head()) + "\n"


@dataclass(frozen=True, slots=True)
class _Page:
    plan: Plan
    width: int
    verbose: bool
    advice: Sequence[Mapping[str, Any]]

    def head(self) -> Iterator[str]:
        desired = self.plan.desired
        verb = "take down" if isinstance(desired, Down) else fmt.name_verb(desired)
        yield from self._fill("", f"Plan to {verb} cluster '{fmt.to_one_line(desired.cluster)}'")
        if not isinstance(desired, Run):
            return
        made = next((action.spec.candidate for action in self.plan.actions if isinstance(action, CreateSlice)), None)
        if made is None:
            where = f" ({format_hosts(ranks)})" if (ranks := fmt.list_ranks(self.plan)) else ""
            yield f"  machines   the existing ones{where}; nothing is created"
        else:
            yield from self._fill("  machines   ", fmt.describe_machines(made))
            yield from self._fill("  price      ", fmt.format_price(made).removeprefix("price "))
            yield from self._estimate(made)
            if made in desired.candidates:
                yield from self._fallbacks(desired.candidates[desired.candidates.index(made) + 1 :])
        budgets = desired.budgets
        restarts = f"{budgets.preemptions} after a loss of hosts, {budgets.failures} after a failure of the program"
        yield from self._fill("  restarts   ", restarts)
        for line in fmt.describe_recovery(desired):
            yield from self._fill("             ", line)
        if limits := fmt.describe_limits(desired):
            yield from self._fill("  limits     ", limits)
        yield from self._fill("  afterwards ", fmt.describe_teardown(desired))
        for label, text in advice_lines(self.advice):
            yield from self._fill(f"  {label:<10} ", fmt.to_one_line(text))

    def _estimate(self, candidate: Candidate) -> Iterator[str]:
        """Return time and cost of the run on machines that orch chose."""
        desired = self.plan.desired
        variant = desired.find_variant(candidate) if isinstance(desired, Run) else None
        if variant is not None and variant.offer is not None:
            seconds, price = variant.offer.seconds, candidate.price_per_hour
            low, high = format_duration(seconds.low), format_duration(seconds.high)
            hours = seconds.low / 3600, seconds.high / 3600
            cost = f", {format_amount_range(price * hours[0], price * hours[1], 0)}" if price else ""
            yield from self._fill("             ", f"the run takes {low} to {high}{cost}")

    def _fallbacks(self, later: Sequence[Candidate]) -> Iterator[str]:
        groups = fmt.group_by_place(later)
        shown = groups if self.verbose or len(groups) <= MOST_FALLBACKS else groups[: MOST_FALLBACKS - 1]
        for group in shown:
            yield from self._fill("  or else    ", fmt.describe_machines(group[0]))
            if len(group) > 1:
                places = [one.where for one in group[1:]]
                cut = places if self.verbose or len(places) <= MOST_PLACES else places[: MOST_PLACES - 1]
                more = f", and {len(places) - len(cut)} more" if len(cut) < len(places) else ""
                yield from self._fill("             ", f"then in {', '.join(cut)}{more}")
            yield from self._fill("             ", fmt.format_price(group[0]))
            yield from self._estimate(group[0])
        if rest := [one for group in groups[len(shown) :] for one in group]:
            known = [one.price_per_hour for one in rest if one.price_per_hour is not None]
            most = f", up to {format_rate(max(known))}" if known else ""
            yield from self._fill("  or else    ", f"{len(rest)} more choices{most} (all of them with -v)")

    def steps(self, refusal: OrchError | None = None) -> Iterator[str]:
        """Return the numbered steps; without the result where the command would refuse them."""
        details = Details(self.width) if self.verbose else None
        number = 0
        for step in self.plan.steps:
            if isinstance(step, Wait):
                yield from self._fill("  … ", fmt.to_one_line(_describe_wait(step, self.plan.now)))
                continue
            if refusal is not None and isinstance(step, Conclude):
                continue
            number += 1
            yield from self._step(f"{number:2}. ", *_describe_action(step))
            if details is not None:
                yield from (f"    {line}" for line in details.of_action(step))
                yield ""

    def _step(self, head: str, title: str, amount: str) -> Iterator[str]:
        """Return the title and the amount, on one line in a summary, which cuts the title."""
        title, tail = fmt.to_one_line(title), f": {amount}" if amount else ""
        columns = self.width - len(head) - len(tail)
        if self.verbose:
            yield from self._fill(head, title + tail)
        else:
            yield head + (title if len(title) <= columns else title[: max(columns - 1, 10)] + "…") + tail

    def foot(self, command: str | None, refusal: OrchError | None) -> Iterator[str]:
        ending, some = self.plan.ending, bool(self.plan.actions)
        if total := _describe_total(self.plan):
            yield from self._fill("In all: ", total)
        if refusal is not None:
            yield from self._reasons("Refused: ", refusal.code, refusal.what, int(refusal.exit_status))
            yield from self._next(refusal.why, refusal.next_step)
            return
        if isinstance(ending, Done):
            start = "Result: " if some else "Nothing to do: "
            yield from self._fill(start, f"{fmt.to_one_line(ending.message)} (exit {ending.status})")
        else:
            yield from self._reasons("Stops there: ", ending.code, ending.what, ending.status)
            yield from self._next(ending.why, str(ending.next_step))
        if not some or command is None:
            return
        if not self.verbose:
            yield "Details: -v (requests, scripts), -o sh (as a script), -o json (for programs)"
        yield f"To do it: {fmt.to_one_line(command) or 'the same command without --dry-run'}"

    def _reasons(self, head: str, code: str, what: str, status: int) -> Iterator[str]:
        yield from self._fill(head, f"[{code}] {fmt.to_one_line(what)} (exit {status})")

    def _next(self, why: str, next_step: str) -> Iterator[str]:
        if why:
            yield from self._fill("  why:  ", fmt.to_one_line(why))
        if next_step:
            yield from self._fill("  next: ", fmt.to_one_line(next_step))

    def _fill(self, head: str, value: str) -> Iterator[str]:
        if len(head) + len(value) <= self.width:
            yield head + value
            return
        yield from textwrap.wrap(
            value,
            max(self.width, len(head) + 20),
            initial_indent=head,
            subsequent_indent=" " * len(head),
            break_long_words=False,
            break_on_hyphens=False,
        ) or [head]


def _describe_action(action: Action) -> tuple[str, str]:
    """Return what an action does, and how much it sends."""
    match action:
        case CreateSlice(spec=spec):
            return f"create '{spec.name}' ({_count(spec.candidate.hosts, 'host')})", _requests(action)
        case EndSlice():
            return f"end '{action.name}' ({action.why})", _requests(action)
        case StopSlice():
            return f"stop the machines of '{action.name}'", _requests(action)
        case StartSlice():
            return f"start the machines of '{action.name}' again", _requests(action)
        case ForgetSlice():
            return f"close the record of '{action.name}': {action.why}", ""
        case NextAttempt():
            return f"open attempt {action.attempt} ({action.cause}): {action.why}", ""
        case EndAttempt():
            return f"end attempt {action.attempt} ({action.cause}): {action.why}", ""
        case Conclude():
            return f"record the result: {action.what} (exit {action.status})", ""
        case _:
            return _describe_host_action(action)


def _describe_host_action(action: HostAction) -> tuple[str, str]:
    hosts = format_hosts(action.ranks)
    match action:
        case SyncTree():
            amount = f"{_count(action.files, 'file')}, {fmt.format_size(action.total_bytes)}"
            return f"send {action.label} to {hosts}", amount
        case FetchMount():
            return f"provide {action.source} at {action.destination} on {hosts}", _script_size(action)
        case RunSetup():
            return f"set up {hosts}; every host must pass", _script_size(action)
        case StartJob():
            return f"start job {action.job} (attempt {action.attempt}) on {hosts}", _script_size(action)
        case StopJob():
            grace = fmt.format_duration(action.grace)
            return f"stop job {action.job} on {hosts}: TERM, after {grace} KILL ({action.why})", ""
        case ArmTimer():
            return f"start the timer that enforces the limits on {hosts}", _script_size(action)
        case CollectStacks():
            return f"collect the stacks of job {action.job} on {hosts} ({action.why})", ""


def _describe_wait(wait: Wait, now: float) -> str:
    limit = f" (at most {fmt.format_duration(wait.until - now)})" if wait.until is not None else ""
    match wait.on:
        case WaitFor.SLICE:
            return f"wait for the provider: {wait.reason}{limit}"
        case WaitFor.PAUSE:
            return f"wait: {wait.reason}{limit}"
        case WaitFor.CONTACT | WaitFor.GRACE:
            return f"wait {wait.reason.removeprefix('waiting ')}{limit}"
        case WaitFor.JOB:
            return f"wait for the end of the program: {wait.reason}{limit}"


def _describe_total(plan: Plan) -> str:
    """Return how many requests, hosts, bytes and scripts a plan has; "" for a plan that sends nothing."""
    requests = sum(len(list_requests(action)) for action in plan.actions)
    sent = sum(action.total_bytes for action in plan.actions if isinstance(action, SyncTree))
    scripts = len({script.preview() for action in plan.actions if (script := script_of(action)) is not None})
    ranks = fmt.list_ranks(plan)
    parts = [_count(requests, "request")] if requests else []
    parts += [_count(len(ranks), "host")] if ranks else []
    parts += [f"{fmt.format_size(sent)} of files to each"] if sent else []
    parts += [_count(scripts, "script")] if scripts else []
    return ", ".join(parts)


def _requests(action: Action) -> str:
    requests = list_requests(action)
    services = ", ".join(dict.fromkeys(request.service for request in requests))
    return f"{_count(len(requests), 'request')} ({services})"


def _script_size(action: Action) -> str:
    script = script_of(action)
    return f"script of {fmt.format_size(len(script.preview().encode()))}" if script is not None else ""


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
