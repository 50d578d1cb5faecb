"""Scenarios as TOML: the reader, and the built-in ones in `scenarios/`. An unknown key is an error.

Durations are numbers of seconds or words such as "90s", "5m", "1.5h". Errors name the file and the line.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

from orchestrator.errors import UserError
from orchestrator.simulator.faults import can_befall
from orchestrator.simulator.scenario import (
    ANY,
    Boot,
    Deed,
    Durations,
    Fault,
    FaultKind,
    Happening,
    Held,
    Pool,
    Quota,
    Scenario,
    Zone,
)

FOLDER = Path(__file__).parent / "scenarios"
CALLS = (
    *("machines", "create", "get", "list", "end", "stop", "start", "amend"),
    *("queue", "queue-get", "queue-list", "queue-delete", "queue-reset", "operation"),
    *("host.look", "host.marks", "host.mark", "host.sync", "host.script", "host.start", "host.kill", "host.stacks"),
    *("create-security-group", "authorize-security-group-ingress", "authorize-security-group-egress"),
    *("create-placement-group", "allocate-address", "associate-address", "release-address"),
    *("delete-security-group", "delete-placement-group", "describe-subnets", "describe-images", "get-parameter"),
)
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_SECONDS = re.compile(r"(\d+(?:\.\d+)?)\s*([smh])")
_TIMES = frozenset({"at", "after_ready", "notice", "seconds", "begin", "end", "spot_life", "lag"})
_RENAMED = {"fault": "kind", "from": "begin", "to": "end"}  # as it is written -> as it is called here
_TABLES: dict[str, type[Any]] = {"durations": Durations, "boot": Boot}
_LISTS: dict[str, tuple[str, type[Any]]] = {
    "zone": ("zones", Zone),
    "capacity": ("pools", Pool),
    "quota": ("quotas", Quota),
    "reservation": ("reservations", Held),
    "fault": ("faults", Fault),
    "event": ("happenings", Happening),
}


def list_scenarios() -> tuple[str, ...]:
    """Return the names of the built-in scenarios."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def named_scenario(name: str) -> Scenario:
    """Read a built-in scenario.

    Raises:
        UserError: There is none of this name; the error lists the names.
    """
    if name not in list_scenarios():
        raise UserError(
            f"there is no scenario '{name}'", f"there are: {', '.join(list_scenarios())}", "name one of them"
        )
    return read_scenario(FOLDER / f"{name}.toml")


def find_scenario_file(name: str) -> Path:
    """Return the file of a scenario: the user's own at this path, else the built-in one of this name.

    Raises:
        UserError: There is neither; the error lists the built-in names.
    """
    own, built_in = Path(name), FOLDER / f"{name}.toml"
    if not own.is_file() and name not in list_scenarios():
        known = f"built in are: {', '.join(list_scenarios())}"
        raise UserError(f"there is no scenario '{name}'", f"no file is called so; {known}", "see docs/simulator.md")
    return own if own.is_file() else built_in


def read_scenario(path: Path) -> Scenario:
    """Read a scenario from a file.

    Raises:
        UserError: The file cannot be read or is no scenario.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read", str(error), f"ls -l {path}") from error
    return parse_scenario(text, path.name)


def parse_scenario(text: str, where: str = "scenario") -> Scenario:
    """Parse the text of a scenario; `where` names it in errors.

    Raises:
        UserError: The first error, with its line.
    """
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(
            f"{where} is not TOML", str(error), "correct that line; docs/simulator.md has examples"
        ) from error
    reader = _Reader(text, where)
    top = {key: value for key, value in raw.items() if key not in _LISTS and key not in _TABLES}
    made: dict[str, Any] = {}
    for table, (attribute, kind) in _LISTS.items():
        items = raw.get(table, [])
        if not isinstance(items, list):
            raise reader.error(table, -1, table, f"write [[{table}]], with two brackets")
        rows = cast(list[dict[str, Any]], items)
        if rows:
            made[attribute] = tuple(reader.build(kind, table, index, row) for index, row in enumerate(rows))
    for name, kind in _TABLES.items():
        if name in raw:
            made[name] = reader.build(kind, name, -1, raw[name])
    taken = {attribute for attribute, _ in _LISTS.values()} | set(_TABLES)
    made.update(reader.values(Scenario, "", -1, top, without=taken))
    scenario = Scenario(**made)
    _check(scenario, reader)
    return scenario


class _Reader:
    """Reader that turns tables into values and finds the lines of errors."""

    def __init__(self, text: str, where: str) -> None:
        self._lines = text.splitlines()
        self._where = where

    def build(self, kind: type[Any], table: str, index: int, row: Mapping[str, Any]) -> Any:
        values = self.values(kind, table, index, row)
        try:
            return kind(**values)
        except TypeError as error:  # a field that must be there is not
            missing = ", ".join(re.findall(r"'(\w+)'", str(error)))
            raise self.error(table, index, "", f"[[{table}]] needs: {missing}") from error

    def values(
        self, kind: type[Any], table: str, index: int, row: Mapping[str, Any], without: set[str] | None = None
    ) -> dict[str, Any]:
        types = {field.name: str(field.type) for field in fields(kind) if field.name not in (without or set())}
        made: dict[str, Any] = {}
        for word, value in row.items():
            name = _RENAMED.get(word, word)
            if name not in types or (word in _RENAMED.values() and kind is Fault):
                known = ", ".join(_written(name, kind) for name in types)
                raise self.error(table, index, word, f"'{word}' is not known here; known: {known}")
            try:
                made[name] = _converted(name, types[name], value, timed=kind in _TABLES.values() and name != "jitter")
            except ValueError as error:
                raise self.error(table, index, word, f"{word}: {error}") from error
        return made

    def error(self, table: str, index: int, word: str, why: str) -> UserError:
        line = self._line(table, index, word)
        return UserError(f"{self._where}, line {line}: the scenario is wrong", why, "docs/simulator.md   has every key")

    def _line(self, table: str, index: int, word: str) -> int:
        """Return the line of a key in a table, or of the table when the key is ""; 1 when neither is found."""
        here, seen, found = table == "", -1, 1
        header = re.compile(r"\s*\[\[?\s*([\w-]+)\s*\]\]?")
        for number, line in enumerate(self._lines, start=1):
            if opened := header.match(line):
                same = opened[1] == table
                seen += same
                here = same and (index < 0 or seen == index)
                if here and not word:
                    return number
                found = number if here else found
            elif here and re.match(rf'\s*"?{re.escape(word)}"?\s*=', line):
                return number
        return found


def _written(name: str, kind: type[Any]) -> str:
    """Return a field's name in the file."""
    back = {value: key for key, value in _RENAMED.items()}
    return back.get(name, name) if kind is Fault else name


def _converted(name: str, kind: str, value: Any, *, timed: bool) -> Any:
    """Convert a value of the file to the type of its field.

    Raises:
        ValueError: The value does not fit; the text is for the user.
    """
    if timed or name in _TIMES:
        return parse_seconds(value)
    if name == "nth":
        return _numbers(value)
    makers: dict[str, Callable[[Any], Any]] = {"FaultKind": FaultKind, "Deed": Deed}
    if kind in makers:
        try:
            return makers[kind](value)
        except ValueError:
            words = ", ".join(FaultKind if kind == "FaultKind" else Deed)
            raise ValueError(f"'{value}' is not one of: {words}") from None
    return _plain(kind, value)


def _plain(kind: str, value: Any) -> Any:
    types: dict[str, tuple[type[Any], str]] = {
        "str": (str, "a text in quotes"),
        "int": (int, "a whole number"),
        "int | None": (int, "a whole number"),
        "float": (float, "a number"),
        "bool": (bool, "true or false"),
    }
    python, words = types[kind]
    if python is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, python) or (python is int and isinstance(value, bool)):
        raise ValueError(f"{value!r} is not {words}")
    return value


def _numbers(value: object) -> tuple[int, ...]:
    items = cast(list[object], value) if isinstance(value, list) else [value]
    numbers = tuple(item for item in items if isinstance(item, int) and item > 0)
    if len(numbers) != len(items):
        raise ValueError("a number of a call, counted from 1, or a list of them")
    return numbers


def parse_seconds(value: Any) -> float:
    """Parse 90, "90s", "5m" or "1.5h" as seconds.

    Raises:
        ValueError: It is no such duration.
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(value)
    found = _SECONDS.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f'{value!r} is not a time; write seconds, or "90s", "5m", "1.5h"')
    return float(found[1]) * _UNITS[found[2]]


def _check(scenario: Scenario, reader: _Reader) -> None:
    """Check the rules that involve several fields or tables."""
    for index, fault in enumerate(scenario.faults):
        if fault.call != "*" and fault.call not in CALLS:
            raise reader.error("fault", index, "call", f"'{fault.call}' is not one of: *, {', '.join(CALLS)}")
        if fault.call != "*" and not can_befall(fault.kind, fault.call):
            raise reader.error("fault", index, "fault", f"'{fault.kind}' cannot befall the call '{fault.call}'")
        if (fault.kind is FaultKind.ANSWER) != bool(fault.answer):
            raise reader.error("fault", index, "answer", 'fault = "answer" needs answer = ID, and no other fault does')
        if not fault.nth and not fault.rate:
            raise reader.error("fault", index, "", "it needs nth = NUMBER or rate = CHANCE")
        if not 0 <= fault.rate <= 1:
            raise reader.error("fault", index, "rate", "a chance lies between 0 and 1")
    for index, event in enumerate(scenario.happenings):
        if sum(when is not None for when in (event.at, event.after_ready, event.step)) != 1:
            raise reader.error("event", index, "", "it needs exactly one of: at, after_ready, step")
        if event.do is Deed.CAPACITY and event.after_ready is not None:
            raise reader.error("event", index, "do", "capacity changes at a time or a step: at = ..., or step = ...")
    _check_zones(scenario, reader)


def _check_zones(scenario: Scenario, reader: _Reader) -> None:
    if scenario.speed <= 0:
        raise reader.error("", -1, "speed", "it must be more than 0")
    if not 0 <= scenario.durations.jitter < 1:
        raise reader.error("durations", -1, "jitter", "it lies between 0 and 1")
    used = [("capacity", index, pool.zone) for index, pool in enumerate(scenario.pools)]
    used += [("reservation", index, held.zone) for index, held in enumerate(scenario.reservations)]
    for table, index, zone in used:
        if zone != ANY and not scenario.region(zone):
            raise reader.error(table, index, "zone", f"there is no zone '{zone}': add [[zone]]")
