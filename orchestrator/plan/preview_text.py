"""The plan for people: what would be done, in order, in full, at a width a terminal has."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from orchestrator.plan import preview_words as words
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
from orchestrator.plan.advice_words import advice_lines
from orchestrator.plan.desired import Run
from orchestrator.plan.environment import HostEnvironment
from orchestrator.plan.imagined import Plan
from orchestrator.plan.ranks import host_words, rank_ranges
from orchestrator.plan.steps import Done, Wait, WaitFor
from orchestrator.slices import Request
from orchestrator.values import Text

_LOOKS = ("Describe", "Get")
LONG_LIST = 16  # items of a request's list that are shown without --verbose
LONG_TEXT = 240  # characters of one value, or of one word of a command, that are shown without --verbose


def render(
    plan: Plan,
    *,
    verbose: bool = False,
    width: int = 100,
    command: str = "",
    advice: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The preview as lines of about `width` columns. command: what to type to do it for real."""
    page = _Page(plan, verbose, max(40, width), command, advice)
    return "\n".join(line.rstrip() for line in page.lines()) + "\n"


@dataclass(frozen=True, slots=True)
class _Page:
    plan: Plan
    verbose: bool
    width: int
    command: str
    advice: Sequence[Mapping[str, Any]]

    def lines(self) -> Iterator[str]:
        yield from self._head()
        number = 0
        for step in self.plan.steps:
            yield ""
            if isinstance(step, Wait):
                yield from self._fill("   … ", _wait(step, self.plan.now))
                continue
            number += 1
            title, detail = self._action(step)
            yield from self._fill(f"{number:2}. ", words.one_line(title))
            yield from (f"    {line}" for line in detail)
        yield ""
        yield from self._foot(number)

    def _head(self) -> Iterator[str]:
        desired = self.plan.desired
        yield from self._fill("", f"Plan to {words.verb(desired)} cluster '{words.one_line(desired.cluster)}'")
        if not isinstance(desired, Run):
            return
        made = next((action.spec.candidate for action in self.plan.actions if isinstance(action, CreateSlice)), None)
        if made is None:
            where = f" ({host_words(ranks)})" if (ranks := words.all_ranks(self.plan)) else ""
            yield f"  machines   those it has{where}; nothing is created"
        else:
            yield from self._fill("  machines   ", words.shape(made))
            yield from self._fill("  price      ", words.price(made))
            later = desired.candidates[desired.candidates.index(made) + 1 :] if made in desired.candidates else ()
            for several in words.alike(later):
                yield from self._fill("  or else    ", words.shape(several[0]))
                if len(several) > 1:
                    places = ", ".join(one.where for one in several[1:])
                    yield from self._fill("             ", f"then in {places}")
                yield from self._fill("             ", words.price(several[0]))
        budgets = desired.budgets
        restarts = f"{budgets.preemptions} after a loss of hosts, {budgets.failures} after a failure of the program"
        yield from self._fill("  restarts   ", restarts)
        for line in words.recovery(desired):
            yield from self._fill("             ", line)
        if limits := words.limits(desired):
            yield from self._fill("  limits     ", limits)
        yield from self._fill("  afterwards ", words.afterwards(desired))
        for label, text in advice_lines(self.advice):
            yield from self._fill(f"  {label:<10} ", words.one_line(text))

    def _foot(self, actions: int) -> Iterator[str]:
        ending = self.plan.ending
        if isinstance(ending, Done):
            nothing = "Nothing to do: " if not actions else "Ends well: "
            yield from self._fill("", f"{nothing}{words.one_line(ending.message)} (exit {ending.status})")
        else:
            yield from self._fill(
                "", f"Stops there: [{ending.code}] {words.one_line(ending.what)} (exit {ending.status})"
            )
            if ending.why:
                yield from self._fill("  why:  ", words.one_line(ending.why))
            if ending.next_step:
                yield from self._fill("  next: ", words.one_line(ending.next_step))
        if actions:
            yield f"To do it: {words.one_line(self.command) or 'the same command without --dry-run'}"

    def _action(self, action: Action) -> tuple[str, Iterator[str]]:
        """Title and the lines under it."""
        match action:
            case CreateSlice(spec=spec):
                title = f"{words.making(spec)} ({words.shape(spec.candidate)})"
                return title, self._create(action)
            case EndSlice():
                return f"end '{action.name}': {action.why}", self._request(action.request)
            case StopSlice():
                return f"stop the machines of '{action.name}'", self._request(action.request)
            case StartSlice():
                return f"start the machines of '{action.name}' again", self._request(action.request)
            case ForgetSlice():
                return f"close the record of '{action.name}': {action.why}", iter(())
            case NextAttempt():
                return f"open attempt {action.attempt} ({action.cause}): {action.why}", iter(())
            case EndAttempt():
                return f"end attempt {action.attempt} ({action.cause}): {action.why}", iter(())
            case Conclude():
                return f"record the result: {action.what} (exit {action.status})", _reasons(action)
            case _:
                return self._host_action(action)

    def _host_action(self, action: HostAction) -> tuple[str, Iterator[str]]:
        where = host_words(action.ranks)
        match action:
            case SyncTree():
                amount = f"{action.files:,} file{'s' if action.files != 1 else ''}, {words.size(action.total_bytes)}"
                return f"send {action.label} to {where}: {amount}", _sync(action, self.verbose)
            case FetchMount():
                return f"bring {action.source} to {action.destination} on {where}", self._script(action.script)
            case RunSetup():
                return f"set up {where}; every host must pass", self._program(action)
            case StartJob():
                return f"start job {action.job} (attempt {action.attempt}) on {where}", self._program(action)
            case StopJob():
                grace = words.duration(action.grace)
                return f"stop job {action.job} on {where}: TERM, after {grace} KILL ({action.why})", iter(())
            case ArmTimer():
                return f"set the timer that ends {where} without orch, too", self._script(action.script)
            case CollectStacks():
                return f"collect the stacks of job {action.job} on {where} ({action.why})", iter(())

    def _create(self, action: CreateSlice) -> Iterator[str]:
        yield from self._pair("token ", action.spec.token)
        if action.spec.labels:
            labels = ", ".join(f"{key}={value.preview()}" for key, value in action.spec.labels)
            yield from self._fill("labels ", words.one_line(labels))
        yield from self._request(action.request)

    def _request(self, request: Request) -> Iterator[str]:
        for one in request.in_order:
            yield from self._one_request(one)

    def _one_request(self, request: Request) -> Iterator[str]:
        yield from self._fill("request  ", words.one_line(f"{request.service}: {request.method} {request.target}"))
        if request.why:
            yield from self._fill("because  ", words.one_line(request.why))
        # What only looks, on the way to something else, is told by its command.
        looks = bool(request.gives and request.command) and request.method.startswith(_LOOKS)
        if request.body and (self.verbose or not looks):
            shown = _json_lines(_plain(request.body, self.verbose))
            yield from (f"  {words.visible(line)}" for line in shown)
        if request.command:
            yield "same as"
            yield from (f"  {line}" for line in self._command(request.command))

    def _command(self, command: Sequence[Text]) -> Iterator[str]:
        line, whole = "", True
        for word in command:
            quoted = words.one_line(word.preview_quoted())
            if not self.verbose and len(quoted) > LONG_TEXT:
                quoted, whole = _shortened(quoted), False
            if line and len(line) + len(quoted) > self.width - 10:
                yield line + " \\"
                line = "  " + quoted
            else:
                line = f"{line} {quoted}" if line else quoted
        yield line
        if not whole:
            yield "(shortened; whole and fit to paste: orch plan -v, or -o sh)"

    def _program(self, action: RunSetup | StartJob) -> Iterator[str]:
        yield "environment"
        yield from (f"  {line}" for line in self._environment(action.environment, action.ranks))
        yield from self._script(action.script)

    def _environment(self, environment: HostEnvironment, ranks: tuple[int, ...]) -> Iterator[str]:
        if not ranks:
            return
        first, last = dict(environment.per_rank(ranks[0])), dict(environment.per_rank(ranks[-1]))
        for name, value in environment.of(ranks[0]):
            shown = words.one_line(name)
            if name not in first:
                yield from self._pair(f"{shown}=", value)
            elif first[name] == str(ranks[0]) and last[name] == str(ranks[-1]):
                yield f"{shown}={rank_ranges(ranks).replace('-', '..')}"
            else:
                yield f"{shown}={first[name] if first[name] == last[name] else first[name] + '..' + last[name]}"

    def _script(self, script: Text) -> Iterator[str]:
        yield "script"
        yield from (f"  | {line}" for line in words.visible(script.preview()).removesuffix("\n").split("\n"))

    def _pair(self, head: str, value: Text) -> Iterator[str]:
        """A value after its name; one of many lines is cut to its first and counted."""
        first, *rest = value.preview().split("\n")
        yield head + words.one_line(first)
        if not rest:
            return
        if self.verbose:
            yield from (" " * len(head) + words.one_line(line) for line in rest)
        else:
            yield f"{' ' * len(head)}… and {len(rest):,} more line{'s' if len(rest) > 1 else ''}"

    def _fill(self, head: str, value: str) -> Iterator[str]:
        room = self.width - 4
        if len(head) + len(value) <= room:
            yield head + value
            return
        yield from textwrap.wrap(
            value,
            max(room, len(head) + 20),
            initial_indent=head,
            subsequent_indent=" " * len(head),
            break_long_words=False,
            break_on_hyphens=False,
            drop_whitespace=True,
        ) or [head]


def _wait(wait: Wait, now: float) -> str:
    limit = f" (at most {words.duration(wait.until - now)})" if wait.until is not None else " (as long as it runs)"
    reason = words.one_line(wait.reason)
    match wait.on:
        case WaitFor.SLICE:
            return f"wait for the provider: {reason}{limit}"
        case WaitFor.PAUSE:
            return f"wait: {reason}{limit}"
        case WaitFor.CONTACT | WaitFor.GRACE:
            return f"wait {reason.removeprefix('waiting ')}{limit}"
        case WaitFor.JOB:
            return f"wait for the end of the program: {reason}{limit}"


def _sync(action: SyncTree, verbose: bool) -> Iterator[str]:
    yield words.one_line(f"from {action.source}")
    yield words.one_line(f"to   {action.destination}")
    if verbose:
        yield words.one_line(f"digest {action.digest}")


def _reasons(action: Conclude) -> Iterator[str]:
    if action.why:
        yield words.one_line(f"why:  {action.why}")
    if action.next_step:
        yield words.one_line(f"next: {action.next_step}")


def _shortened(text: str) -> str:
    return f"{text[:80]} … {len(text) - 80:,} more characters"


def _json_lines(value: object, width: int = 96, before: int = 0) -> list[str]:
    """As json.dumps with an indent, but what fits on a line stands on one. before: what its first line has already."""
    flat = json.dumps(value, ensure_ascii=False)
    if len(flat) <= width - before or not isinstance(value, dict | list) or not value:
        return [flat]
    if isinstance(value, dict):
        fields = cast(dict[str, object], value)
        parts = [(f"{json.dumps(key, ensure_ascii=False)}: ", item) for key, item in fields.items()]
    else:
        parts = [("", item) for item in cast(list[object], value)]
    opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
    lines = [opening]
    for number, (name, item) in enumerate(parts, 1):
        first, *rest = _json_lines(item, width - 2, len(name))
        last = "," if number < len(parts) else ""
        block = [f"  {name}{first}", *(f"  {line}" for line in rest)]
        lines += [*block[:-1], block[-1] + last]
    return [*lines, closing]


def _plain(value: object, verbose: bool) -> object:
    """A request's body as plain JSON values, as a person may see it."""
    if isinstance(value, Text):
        shown = value.preview()
        return shown if verbose or len(shown) <= LONG_TEXT else _shortened(shown)
    if isinstance(value, Mapping):
        mapping = cast(Mapping[object, object], value)
        return {str(key): _plain(item, verbose) for key, item in mapping.items()}
    if isinstance(value, list | tuple):
        items = cast(Sequence[object], value)
        if verbose or len(items) <= LONG_LIST:
            return [_plain(item, verbose) for item in items]
        hidden = f"… {len(items) - 3:,} more (all of them with --verbose) …"
        return [*(_plain(item, verbose) for item in items[:2]), hidden, _plain(items[-1], verbose)]
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
