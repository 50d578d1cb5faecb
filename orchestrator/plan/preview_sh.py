"""The plan as a bash script: to read, and to paste from, without orch.

Requests stand as their own command line, or as comments where they have none. Scripts are here-documents. What is
known only later is a variable that stops the script, by name, until it is set; a secret is one too. Copies and jobs
use plain tar and setsid in place of the synchronisation and the job runner that orch brings.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import cast

from orchestrator.hosts import HostAddress, ssh_argv
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
from orchestrator.plan.desired import Run
from orchestrator.plan.environment import HostEnvironment
from orchestrator.plan.imagined import Plan
from orchestrator.plan.ranks import host_words, spans
from orchestrator.plan.sh_words import Variables, bash_word, document, is_name, literal
from orchestrator.plan.steps import Done, Wait, WaitFor
from orchestrator.slices import Request
from orchestrator.values import Text

SSH = "ssh -o BatchMode=yes -o ServerAliveInterval=5 -o ServerAliveCountMax=3"


def render(plan: Plan, *, command: str = "", hosts: Sequence[HostAddress] = ()) -> str:
    """The script. hosts: addresses that are known already; the others are asked for as HOST_<rank>_SSH=user@address."""
    script = _Script(plan, command, tuple(hosts))
    return "\n".join(script.lines()) + "\n"


@dataclass(slots=True)
class _Script:
    """Writes one script. The only state is which variables were asked for already."""

    plan: Plan
    command: str
    hosts: tuple[HostAddress, ...]
    variables: Variables = field(default_factory=Variables)

    def lines(self) -> Iterator[str]:
        body = list(self._steps())
        yield "#!/usr/bin/env bash"
        yield from self._head()
        yield "set -euo pipefail"
        if self.variables.secrets:
            yield "\n# Secrets, taken from your environment."
            yield from (f': "${{{name}:?set this secret}}"' for name in self.variables.secrets)
        if early := list(self.variables.early_guards()):
            yield "\n# What has to be known before anything is asked for."
            yield from early
        if words.all_ranks(self.plan):
            yield ""
            yield from self._functions()
        yield from body
        yield ""
        yield from _comment(
            "ends: ", self.plan.ending.message if isinstance(self.plan.ending, Done) else _end(self.plan)
        )

    def _head(self) -> Iterator[str]:
        desired = self.plan.desired
        yield from _comment("What orch would do: ", f"{words.verb(desired)} cluster '{desired.cluster}'")
        yield from _comment("By orch itself: ", self.command or "the same command without --dry-run")
        for action in self.plan.actions:
            if isinstance(action, CreateSlice):
                yield from _comment("Machines: ", words.shape(action.spec.candidate))
                yield from _comment("Price: ", words.price(action.spec.candidate))
        if isinstance(desired, Run):
            if limits := words.limits(desired):
                yield from _comment("Limits: ", limits)
            yield from _comment("Afterwards: ", words.afterwards(desired))

    def _functions(self) -> Iterator[str]:
        yield "on_host() { # on_host RANK WORD...: run a command there; standard input goes with it"
        yield "  local rank=$1 target=HOST_$1_SSH"
        yield "  shift"
        yield '  case "$rank" in'
        for address in self.hosts:
            yield f'    {address.rank}) {" ".join(literal(word) for word in ssh_argv(address))} "$@" ;;'
        yield f'    *) {SSH} "${{!target:?user@address of host $rank, known after create}}" "$@" ;;'
        yield "  esac"
        yield "}"

    def _steps(self) -> Iterator[str]:
        number = 0
        for step in self.plan.steps:
            yield ""
            if isinstance(step, Wait):
                yield from self._wait(step)
                continue
            number += 1
            yield from self._action(number, step)

    def _wait(self, wait: Wait) -> Iterator[str]:
        limit = f" (at most {words.duration(wait.until - self.plan.now)})" if wait.until is not None else ""
        yield from _comment("Wait: ", wait.reason + limit)
        if wait.on is WaitFor.PAUSE and wait.until is not None:
            yield f"sleep {max(0, ceil(wait.until - self.plan.now))}"
        if wait.on is WaitFor.CONTACT:
            yield from self._ask_for_hosts()
            until = 'until on_host "$rank" true; do sleep 2; done'
            yield from _for_each(words.all_ranks(self.plan), until)
        started = [action for action in self.plan.actions if isinstance(action, StartJob)]
        if wait.on is WaitFor.JOB and started:
            follow = literal(f'cd -- {_folder(started[-1].job)} && tail --pid="$(cat pid)" -n +1 -f log')
            yield from _for_each(started[-1].ranks, f'on_host "$rank" {follow}')

    def _ask_for_hosts(self) -> Iterator[str]:
        """Name what the next steps need of the hosts, as far as it fits on a page."""
        known = {address.rank for address in self.hosts}
        unknown = [rank for rank in words.all_ranks(self.plan) if rank not in known]
        if not unknown or len(unknown) > 64:
            return
        for rank in unknown:
            yield f': "${{HOST_{rank}_SSH:?user@address of host {rank}, known after create}}"'

    def _action(self, number: int, action: Action) -> Iterator[str]:
        head = f"{number}. "
        match action:
            case CreateSlice():
                yield from _comment(head, f"{words.making(action.spec)} ({words.shape(action.spec.candidate)})")
                yield from self._request(action.request)
            case EndSlice():
                yield from _comment(head, f"end '{action.name}': {action.why}")
                yield from self._request(action.request)
            case StopSlice():
                yield from _comment(head, f"stop the machines of '{action.name}'")
                yield from self._request(action.request)
            case StartSlice():
                yield from _comment(head, f"start the machines of '{action.name}' again")
                yield from self._request(action.request)
            case ForgetSlice():
                yield from _comment(head, f"orch closes its record of '{action.name}': {action.why}")
            case NextAttempt():
                yield from _comment(head, f"orch opens attempt {action.attempt} ({action.cause}): {action.why}")
            case EndAttempt():
                yield from _comment(head, f"orch ends attempt {action.attempt} ({action.cause}): {action.why}")
            case Conclude():
                yield from _comment(head, f"orch records the result: {action.what} (exit {action.status})")
            case _:
                yield from self._host_action(number, action)

    def _host_action(self, number: int, action: HostAction) -> Iterator[str]:
        head, where = f"{number}. ", host_words(action.ranks)
        match action:
            case SyncTree():
                amount = f"{action.files:,} files, {words.size(action.total_bytes)}"
                yield from _comment(
                    head, f"send {action.label} to {where} ({amount}; orch leaves out what git ignores)"
                )
                yield from _for_each(action.ranks, *_send(action))
            case FetchMount():
                yield from _comment(head, f"bring {action.source} to {action.destination} on {where}")
                yield from self._function(f"script_{number}", action.script)
                yield from _for_each(action.ranks, f'script_{number} | on_host "$rank" bash -s')
            case RunSetup():
                yield from _comment(head, f"set up {where}; every host must pass")
                yield from self._program(number, action, "bash -s")
            case StartJob():
                yield from _comment(head, f"start job {action.job} (attempt {action.attempt}) on {where}")
                yield from self._program(number, action, literal(_start(action.job)))
            case StopJob():
                yield from _comment(head, f"stop job {action.job} on {where}: {action.why}")
                stop = literal(_stop(action.job, action.grace))
                yield from _for_each(action.ranks, f'on_host "$rank" {stop}')
            case ArmTimer():
                yield from _comment(head, f"set the timer that ends {where} without orch, too")
                yield from self._function(f"script_{number}", action.script)
                yield from _for_each(action.ranks, f'script_{number} | on_host "$rank" bash -s')
            case CollectStacks():
                yield from _comment(head, f"orch collects the stacks of job {action.job} on {where}: {action.why}")

    def _request(self, request: Request) -> Iterator[str]:
        later = {id(one) for after in request.after for one in after.in_order}
        for one in request.in_order:
            yield from self._one_request(one, waits=id(one) in later)

    def _one_request(self, request: Request, *, waits: bool) -> Iterator[str]:
        """waits: what it tells is there only when an earlier request has taken effect."""
        yield from _comment("request: ", f"{request.service}: {request.method} {request.target}")
        if request.why:
            yield from _comment("because: ", request.why)
        if not request.command:
            if request.body:
                yield from _comment("", json.dumps(_plain(request.body), indent=2))
            yield from _comment("", "it has no command line of its own: orch sends it")
            return
        command = " ".join(bash_word(word, self.variables) for word in request.command)
        yield from self.variables.guards()
        for known, path in request.gives:
            name = self.variables.told(known)
            told = f"{name}=$({command} --query {literal(path)} --output text)"
            yield f'until {told} && [ "${{{name}:-None}}" != None ]; do sleep 5; done' if waits else told
        if not request.gives:
            yield command

    def _program(self, number: int, action: RunSetup | StartJob, remote: str) -> Iterator[str]:
        """Two functions that print the environment and the script, and the loop that pipes both to the hosts."""
        yield from self._environment(number, action.environment, action.ranks)
        yield from self._function(f"script_{number}", action.script)
        pipe = f'{{ environment_{number} "$rank"; script_{number}; }} | on_host "$rank" {remote}'
        yield from _for_each(action.ranks, pipe)

    def _environment(self, number: int, environment: HostEnvironment, ranks: tuple[int, ...]) -> Iterator[str]:
        if not ranks:
            return
        first, last = dict(environment.per_rank(ranks[0])), dict(environment.per_rank(ranks[-1]))
        body: list[str] = []
        for name, value in environment.of(ranks[0]):
            if not is_name(name):
                body.extend(f"  {line}" for line in _comment("not a name for the shell, left out: ", name))
            elif name not in first:
                body.append(f"  printf 'export %s=%q\\n' {name} {bash_word(value, self.variables)}")
            elif first[name] == last[name] and len(ranks) > 1:
                body.append(f"  printf 'export %s=%q\\n' {name} {first[name]}")
            elif name == "ORCH_SLICE_ID":
                body.append(f"  printf 'export %s=%q\\n' {name} \"$(($1 / {environment.hosts_per_slice}))\"")
            else:
                body.append(f"  printf 'export %s=%q\\n' {name} \"$1\"")
        yield from self.variables.guards()
        yield f"environment_{number}() {{ # of the host with rank $1"
        yield from body
        yield "}"

    def _function(self, name: str, script: Text) -> Iterator[str]:
        lines = document(script, self.variables)
        yield from self.variables.guards()
        yield f"{name}() {{"
        yield from lines
        yield "}"


def _for_each(ranks: tuple[int, ...], *body: str) -> Iterator[str]:
    if not ranks:
        return
    listed = " ".join(str(first) if first == last else f"{{{first}..{last}}}" for first, last in spans(ranks))
    yield f"for rank in {listed}; do"
    yield from (f"  {line}" for line in body)
    yield "done"


def _send(action: SyncTree) -> Iterator[str]:
    source = literal(action.source)
    place = _remote_path(action.destination)
    unpack = literal(f"mkdir -p -- {place} && tar -C {place} -xf -")
    write = literal(f'mkdir -p -- "$(dirname -- {place})" && cat > {place}')
    yield f"if [ -d {source} ]; then"
    yield f'  tar -C {source} -cf - . | on_host "$rank" {unpack}'
    yield "else"
    yield f'  on_host "$rank" {write} < {source}'
    yield "fi"


def _remote_path(path: str) -> str:
    """A path as a word of the host's shell, where `~/` means the home there."""
    if path == "~":
        return '"$HOME"'
    return f'"$HOME"/{shlex.quote(path[2:])}' if path.startswith("~/") else shlex.quote(path)


def _folder(job: str) -> str:
    return f'"$HOME"/.orch-by-hand/{shlex.quote(job)}'


def _start(job: str) -> str:
    """For the host's shell: keep the script with its environment for the owner only, start it, note its process."""
    return (
        f"umask 077 && mkdir -p -- {_folder(job)} && cd -- {_folder(job)} && cat > run.sh && "
        "{ setsid nohup bash run.sh > log 2>&1 < /dev/null & echo $! > pid; }"
    )


def _stop(job: str, grace: float) -> str:
    return (
        f"cd -- {_folder(job)} && "
        f'{{ kill -TERM -- "-$(cat pid)" && sleep {grace:g} && kill -KILL -- "-$(cat pid)"; }} || true'
    )


def _comment(head: str, value: str) -> Iterator[str]:
    """As comment lines. `#|` keeps a line of somebody else's text from being read as a directive of a tool."""
    first, *rest = words.visible(value).split("\n")
    yield f"# {head}{first}" if head else f"#| {first}"
    yield from (f"#| {line}" for line in rest)


def _end(plan: Plan) -> str:
    ending = plan.ending
    if isinstance(ending, Done):
        return ending.message
    return "; ".join(part for part in (ending.what, ending.why, ending.next_step) if part)


def _plain(value: object) -> object:
    if isinstance(value, Text):
        return value.preview()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in cast(Mapping[object, object], value).items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast(Sequence[object], value)]
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
