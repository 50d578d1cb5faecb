"""The details under the steps of a verbose preview: requests, environments and scripts, each text once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from orchestrator.plan import preview_format as fmt
from orchestrator.plan.actions import (
    Action,
    ArmTimer,
    Conclude,
    CreateSlice,
    EndSlice,
    FetchMount,
    RunSetup,
    StartJob,
    StartSlice,
    StopSlice,
    SyncTree,
)
from orchestrator.plan.environment import HostEnvironment
from orchestrator.plan.ranks import format_ranks
from orchestrator.slices import Request
from orchestrator.values import Text

LONG_TEXT = 240  # characters; a longer value of a request is named, and shown below it


def list_requests(action: Action) -> tuple[Request, ...]:
    """Return the requests that an action sends, in order."""
    match action:
        case CreateSlice() | EndSlice() | StopSlice() | StartSlice():
            return action.request.in_order
        case _:
            return ()


def script_of(action: Action) -> Text | None:
    """Return the script that an action runs on its hosts, if it runs one."""
    match action:
        case FetchMount() | RunSetup() | StartJob() | ArmTimer():
            return action.script
        case _:
            return None


@dataclass(slots=True)
class Details:
    """Writes the details of one plan and remembers the names of the texts that it has written."""

    width: int
    _names: dict[str, str] = field(default_factory=dict[str, str])  # text -> its name
    _unwritten: list[str] = field(default_factory=list[str])

    def of_action(self, action: Action) -> Iterator[str]:
        """Yield the lines under the title of an action."""
        match action:
            case CreateSlice(spec=spec):
                yield f"shape  {fmt.describe_machines(spec.candidate)}"
                yield from _pair("token  ", spec.token)
                labels = ", ".join(f"{key}={value.preview()}" for key, value in spec.labels)
                yield f"labels {fmt.to_one_line(labels)}"
            case SyncTree():
                yield fmt.to_one_line(f"from   {action.source}")
                yield fmt.to_one_line(f"to     {action.destination}")
                yield fmt.to_one_line(f"digest {action.digest}")
            case Conclude():
                yield from (fmt.to_one_line(f"why:  {line}") for line in (action.why,) if line)
                yield from (fmt.to_one_line(f"next: {line}") for line in (str(action.next_step),) if line)
            case RunSetup() | StartJob():
                yield "environment"
                yield from (f"  {line}" for line in _environment_lines(action.environment, action.ranks))
            case _:
                pass
        for request in list_requests(action):
            yield from self._request(request)
        if (script := script_of(action)) is not None:
            yield from self._script(_script_name(action), script)

    def _request(self, request: Request) -> Iterator[str]:
        yield fmt.to_one_line(f"request {request.service}: {request.method} {request.target}")
        if request.why:
            yield fmt.to_one_line(f"because {request.why}")
        if request.body:
            body = {key: self._plain(key, value) for key, value in request.body.items()}
            yield from (f"  {fmt.escape_control(line)}" for line in _json_lines(body))
        if request.command:
            yield "same as"
            yield from (f"  {line}" for line in self._command(request.command))
        for text in self._unwritten:
            yield from self._text_lines(text)
        self._unwritten.clear()

    def _command(self, command: Sequence[Text]) -> Iterator[str]:
        line, complete = "", True
        for word in command:
            shown = word.preview()
            for text, name in self._names.items():
                if text in shown:
                    shown, complete = shown.replace(text, f"({name})"), False
            quoted = fmt.to_one_line(Text.of(shown).preview_quoted())
            if line and len(line) + len(quoted) > self.width - 10:
                yield line + " \\"
                line = "  " + quoted
            else:
                line = f"{line} {quoted}" if line else quoted
        yield line
        if not complete:
            yield "(with the names of long texts; -o sh has the command to paste)"

    def _script(self, name: str, script: Text) -> Iterator[str]:
        text = script.preview()
        if text in self._names:
            yield f"script '{self._names[text]}', as above"
            return
        self._name(name, text)
        yield from self._text_lines(text)

    def _text_lines(self, text: str) -> Iterator[str]:
        yield f"text '{self._names[text]}'"
        yield from (f"  | {line}" for line in fmt.escape_control(text).removesuffix("\n").split("\n"))

    def _name(self, base: str, text: str) -> str:
        """Give a text a name that no other one has."""
        taken, name, number = set(self._names.values()), base, 1
        while name in taken:
            number += 1
            name = f"{base}-{number}"
        self._names[text] = name
        return name

    def _plain(self, key: str, value: object) -> object:
        """Return a request's value as plain JSON, long texts by their names."""
        if isinstance(value, Text):
            value = value.preview()
        if isinstance(value, str):
            if value not in self._names:
                if len(value) <= LONG_TEXT:
                    return value
                self._name(key, value)
                self._unwritten.append(value)
            return f"({self._names[value]})"
        if isinstance(value, Mapping):
            mapping = cast(Mapping[object, object], value)
            return {str(name): self._plain(str(name), item) for name, item in mapping.items()}
        if isinstance(value, list | tuple):
            return [self._plain(key, item) for item in cast(Sequence[object], value)]
        return value if isinstance(value, int | float | bool) or value is None else str(value)


def _script_name(action: Action) -> str:
    match action:
        case ArmTimer():
            return "timer"
        case FetchMount():
            return f"copy to {fmt.to_one_line(action.destination)}"
        case RunSetup():
            return "setup"
        case _:
            return "run"


def _environment_lines(environment: HostEnvironment, ranks: tuple[int, ...]) -> Iterator[str]:
    if not ranks:
        return
    first, last = dict(environment.per_rank(ranks[0])), dict(environment.per_rank(ranks[-1]))
    for name, value in environment.for_rank(ranks[0]):
        shown = fmt.to_one_line(name)
        if name not in first:
            yield from _pair(f"{shown}=", value)
        elif first[name] == str(ranks[0]) and last[name] == str(ranks[-1]):
            yield f"{shown}={format_ranks(ranks).replace('-', '..')}"
        else:
            yield f"{shown}={first[name] if first[name] == last[name] else first[name] + '..' + last[name]}"


def _pair(head: str, value: Text) -> Iterator[str]:
    """Return a value after its name, further lines under the first one."""
    first, *rest = value.preview().split("\n")
    yield head + fmt.to_one_line(first)
    yield from (" " * len(head) + fmt.to_one_line(line) for line in rest)


def _json_lines(value: object, width: int = 92, before: int = 0) -> list[str]:
    """Return JSON with an indent where it does not fit on one line. before: columns taken on its first line."""
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
