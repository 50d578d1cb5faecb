"""Render a plan as a bash script, to read and to paste from, that works without orch.

A request is its own command line, or a comment where it has none. Scripts are here-documents. A value that is known
later is a variable that stops the script, by name, until it is set; so is a secret. Copies and jobs use plain
tar and setsid in place of the synchronisation and the job runner of orch.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import cast

from orchestrator.hosts import HostAddress, ssh_argv
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
from orchestrator.plan.bash_quoting import Variables, bash_word, heredoc_lines, is_variable_name, quote_literal
from orchestrator.plan.desired import Run
from orchestrator.plan.dry_run import Plan
from orchestrator.plan.environment import HostEnvironment
from orchestrator.plan.ranks import find_rank_spans, format_hosts
from orchestrator.plan.steps import Done, Wait, WaitFor
from orchestrator.slices import Request
from orchestrator.values import Text

SSH = "ssh -o BatchMode=yes -o ServerAliveInterval=5 -o ServerAliveCountMax=3"


def render_sh(plan: Plan, *, command: str = "", hosts: Sequence[HostAddress] = ()) -> str:
    """Return the script. Addresses missing in `hosts` are variables: HOST_<rank>_SSH=user@address."""
    script = _Script(plan=plan, command=command, hosts=tuple(hosts))
    return "\n".join(script.lines()) + "\n"


@dataclass(slots=True, kw_only=True)
class _Script:
    """Writes one script. Its only state is the set of variables with a guard."""

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
            yield "\n# What has to be known before anything is requested."
            yield from early
        if fmt.list_ranks(self.plan):
            yield ""
            yield from self._functions()
        yield from body
        yield ""
        yield from _comment(
            "ends: ", self.plan.ending.message if isinstance(self.plan.ending, Done) else _end(self.plan)
        )

    def _head(self) -> Iterator[str]:
        desired = self.plan.desired
        yield from _comment("What orch would do: ", f"{fmt.name_verb(desired)} cluster '{desired.cluster}'")
        yield from _comment("By orch itself: ", self.command or "the same command without --dry-run")
        for action in self.plan.actions:
            if isinstance(action, CreateSlice):
                yield from _comment("Machines: ", fmt.describe_machines(action.spec.candidate))
                yield from _comment("Price: ", fmt.format_price(action.spec.candidate))
        if isinstance(desired, Run):
            if limits := fmt.describe_limits(desired):
                yield from _comment("Limits: ", limits)
            yield from _comment("Afterwards: ", fmt.describe_teardown(desired))

    def _functions(self) -> Iterator[str]:
        yield "on_host() { # on_host RANK WORD...: run a command there; standard input goes with it"
        yield "  local rank=$1 target=HOST_$1_SSH"
        yield "  shift"
        yield '  case "$rank" in'
        for address in self.hosts:
            yield f'    {address.rank}) {" ".join(quote_literal(word) for word in ssh_argv(address))} "$@" ;;'
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
        limit = f" (at most {fmt.format_duration(wait.until - self.plan.now)})" if wait.until is not None else ""
        yield from _comment("Wait: ", wait.reason + limit)
        if wait.on is WaitFor.PAUSE and wait.until is not None:
            yield f"sleep {max(0, ceil(wait.until - self.plan.now))}"
        if wait.on is WaitFor.CONTACT:
            yield from self._ask_for_hosts()
            until = 'until on_host "$rank" true; do sleep 2; done'
            yield from _for_each(fmt.list_ranks(self.plan), until)
        started = [action for action in self.plan.actions if isinstance(action, StartJob)]
        if wait.on is WaitFor.JOB and started:
            follow = quote_literal(f'cd -- {_folder(started[-1].job)} && tail --pid="$(cat pid)" -n +1 -f log')
            yield from _for_each(started[-1].ranks, f'on_host "$rank" {follow}')

    def _ask_for_hosts(self) -> Iterator[str]:
        """Yield guards for the host addresses of the next steps, for up to 64 hosts."""
        known = {address.rank for address in self.hosts}
        unknown = [rank for rank in fmt.list_ranks(self.plan) if rank not in known]
        if not unknown or len(unknown) > 64:
            return
        for rank in unknown:
            yield f': "${{HOST_{rank}_SSH:?user@address of host {rank}, known after create}}"'

    def _action(self, number: int, action: Action) -> Iterator[str]:
        head = f"{number}. "
        match action:
            case CreateSlice():
                yield from _comment(
                    head, f"create '{action.spec.name}' ({fmt.describe_machines(action.spec.candidate)})"
                )
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
        head, where = f"{number}. ", format_hosts(action.ranks)
        match action:
            case SyncTree():
                amount = f"{action.files:,} files, {fmt.format_size(action.total_bytes)}"
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
                yield from self._program(number, action, quote_literal(_start(action.job)))
            case StopJob():
                yield from _comment(head, f"stop job {action.job} on {where}: {action.why}")
                stop = quote_literal(_stop(action.job, action.grace))
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
        """Yield one request. waits: its answer is complete only after an earlier request took effect."""
        yield from _comment("request: ", f"{request.service}: {request.method} {request.target}")
        if request.why:
            yield from _comment("because: ", request.why)
        if not request.command:
            if request.body:
                yield from _comment("", json.dumps(_plain(request.body), indent=2))
            yield from _comment("", "it has no command line; orch sends it")
            return
        command = " ".join(bash_word(word, self.variables) for word in request.command)
        yield from self.variables.guards()
        for known, path in request.gives:
            name = self.variables.name_of_answer(known)
            assign = f"{name}=$({command} --query {quote_literal(path)} --output text)"
            yield f'until {assign} && [ "${{{name}:-None}}" != None ]; do sleep 5; done' if waits else assign
        if not request.gives:
            yield f"{command} || true" if request.optional else command

    def _program(self, number: int, action: RunSetup | StartJob, remote: str) -> Iterator[str]:
        """Yield functions that print the environment and the script, and the loop that pipes both to the hosts."""
        yield from self._environment(number, action.environment, action.ranks)
        yield from self._function(f"script_{number}", action.script)
        pipe = f'{{ environment_{number} "$rank"; script_{number}; }} | on_host "$rank" {remote}'
        yield from _for_each(action.ranks, pipe)

    def _environment(self, number: int, environment: HostEnvironment, ranks: tuple[int, ...]) -> Iterator[str]:
        if not ranks:
            return
        first, last = dict(environment.per_rank(ranks[0])), dict(environment.per_rank(ranks[-1]))
        body: list[str] = []
        for name, value in environment.for_rank(ranks[0]):
            if not is_variable_name(name):
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
        lines = heredoc_lines(script, self.variables)
        yield from self.variables.guards()
        yield f"{name}() {{"
        yield from lines
        yield "}"


def _for_each(ranks: tuple[int, ...], *body: str) -> Iterator[str]:
    if not ranks:
        return
    listed = " ".join(str(first) if first == last else f"{{{first}..{last}}}" for first, last in find_rank_spans(ranks))
    yield f"for rank in {listed}; do"
    yield from (f"  {line}" for line in body)
    yield "done"


def _send(action: SyncTree) -> Iterator[str]:
    source = quote_literal(action.source)
    place = _remote_path(action.destination)
    unpack = quote_literal(f"mkdir -p -- {place} && tar -C {place} -xf -")
    write = quote_literal(f'mkdir -p -- "$(dirname -- {place})" && cat > {place}')
    yield f"if [ -d {source} ]; then"
    yield f'  tar -C {source} -cf - . | on_host "$rank" {unpack}'
    yield "else"
    yield f'  on_host "$rank" {write} < {source}'
    yield "fi"


def _remote_path(path: str) -> str:
    """Return a path as a word of the host's shell, where `~/` is the home directory there."""
    if path == "~":
        return '"$HOME"'
    head, _, rest = path.removeprefix("~/").partition("/")
    if head == "orch_workdir":  # where a script that was started without orch expects it: templates/run/base.sh.j2
        path = f"~/.orch/host/workdir{rest and '/'}{rest}"
    return f'"$HOME"/{shlex.quote(path[2:])}' if path.startswith("~/") else shlex.quote(path)


def _folder(job: str) -> str:
    return f'"$HOME"/.orch-by-hand/{shlex.quote(job)}'


def _start(job: str) -> str:
    """Return a shell command that stores script and environment readable by the owner only, and starts them."""
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
    """Yield comment lines. `#|` keeps a line of foreign text from being read as a directive of a tool."""
    first, *rest = fmt.escape_control(value).split("\n")
    yield f"# {head}{first}" if head else f"#| {first}"
    yield from (f"#| {line}" for line in rest)


def _end(plan: Plan) -> str:
    ending = plan.ending
    if isinstance(ending, Done):
        return ending.message
    return "; ".join(part for part in (ending.what, ending.why, str(ending.next_step)) if part)


def _plain(value: object) -> object:
    if isinstance(value, Text):
        return value.preview()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in cast(Mapping[object, object], value).items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast(Sequence[object], value)]
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
