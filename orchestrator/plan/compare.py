"""Compare a real run with its preview: action by action, field by field, with every unknown filled in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, TypeGuard

from orchestrator.plan.actions import Action
from orchestrator.plan.environment import HostEnvironment
from orchestrator.values import Secret, Text, Unknown

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MOST_RANKS = 64  # of a larger slice, the environment of the first and the last host is compared


def find_mismatches(planned: Sequence[Action], real: Sequence[Action]) -> list[str]:
    """Return every difference as a message; [] when the run did as planned. No secret is shown."""
    found: list[str] = []
    for number, (before, after) in enumerate(zip_longest(planned, real), start=1):
        if before is None or after is None:
            where, one = ("only in the run", after) if before is None else ("only in the plan", before)
            found.append(f"action {number}: {type(one).__name__} is {where}")
        else:
            found += _differences(f"action {number} {type(before).__name__}", before, after)
    return found


def _differences(at: str, before: object, after: object) -> list[str]:
    if isinstance(before, Text):
        return _text(at, before, after)
    if isinstance(before, Unknown):  # the plan names it as unknown, as in a text
        return [f"{at}: still unknown in the run: {_shown(after)}"] if isinstance(after, Unknown) else []
    if _is_mapping(before) and _is_mapping(after):
        return _mapping(at, before, after)
    if _is_sequence(before) and _is_sequence(after):
        return _sequence(at, before, after)
    same_kind = type(before) is type(after)
    if same_kind and is_dataclass(before) and not isinstance(before, type):
        return _fields(at, before, after)
    return [] if same_kind and before == after else [_became(at, before, after)]


def _is_mapping(value: object) -> TypeGuard[Mapping[object, object]]:
    return isinstance(value, Mapping)


def _is_sequence(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, list | tuple)


def _fields(at: str, before: DataclassInstance, after: object) -> list[str]:
    found: list[str] = []
    for field in fields(before):
        found += _differences(f"{at}.{field.name}", getattr(before, field.name), getattr(after, field.name))
    if isinstance(before, HostEnvironment) and isinstance(after, HostEnvironment):
        found += _environments(at, before, after)
    return found


def _text(at: str, before: Text, after: object) -> list[str]:
    if not isinstance(after, Text):
        return [_became(at, before, after)]
    if not after.is_known:
        return [f"{at}: still unknown in the run: {_shown(after)}"]
    if _secrets(before) != _secrets(after):
        return [f"{at}: secrets {_secrets(before)} became {_secrets(after)}"]
    return [] if before.matches(after) else [_became(at, before, after)]


def _secrets(value: Text) -> list[str]:
    names = (
        (part.name if isinstance(part, Secret) else part.secret) for part in value.parts if not isinstance(part, str)
    )
    return [name for name in names if name]


def _mapping(at: str, before: Mapping[object, object], after: Mapping[object, object]) -> list[str]:
    found: list[str] = []
    for key in [*before, *(key for key in after if key not in before)]:
        if key not in after:
            found.append(f"{at}[{key!r}]: only in the plan")
        elif key not in before:
            found.append(f"{at}[{key!r}]: only in the run")
        else:
            found += _differences(f"{at}[{key!r}]", before[key], after[key])
    return found


def _sequence(at: str, before: Sequence[object], after: Sequence[object]) -> list[str]:
    if len(before) != len(after):
        return [f"{at}: {len(before)} items became {len(after)}"]
    found: list[str] = []
    for index, (one, other) in enumerate(zip(before, after, strict=True)):
        found += _differences(f"{at}[{index}]", one, other)
    return found


def _environments(at: str, before: HostEnvironment, after: HostEnvironment) -> list[str]:
    """Compare what each host gets, rank by rank, in the order of export."""
    hosts = len(before.internal_ips)
    if hosts != len(after.internal_ips):
        return []  # reported already
    found: list[str] = []
    for rank in range(hosts) if hosts <= MOST_RANKS else (0, hosts - 1):
        found += _sequence(f"{at} of rank {rank}", before.for_rank(rank), after.for_rank(rank))
    return found


def _became(at: str, before: object, after: object) -> str:
    return f"{at}: {_shown(before)} became {_shown(after)}"


def _shown(value: object) -> str:
    """Return a value for a message, shortened. The repr of a Text masks secrets."""
    shown = repr(value)
    return shown if len(shown) <= 200 else f"{shown[:120]}… ({len(shown):,} characters)"
