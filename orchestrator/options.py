"""The options of a driver: each declared once, as a field of one frozen dataclass in the driver's folder.

A field gives the option's type, default and meaning. Where a task file or the configuration can set it, the section of
the file, its JSON Schema, messages, table and configuration key follow from it (task/driver_sections.py). Where a
candidate carries it, its stored form follows: `encode_options` and `decode_options` are the only ones that know that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache, lru_cache
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from orchestrator.errors import UserError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Details: TypeAlias = tuple[tuple[str, str], ...]
Where: TypeAlias = Literal["settings", "args", ""]

_METADATA = "option"
_YES = frozenset({"1", "true", "yes"})
_OFF = "none"  # the stored form of a flag that is on by default


class Refused(NamedTuple):
    """A key of the SkyPilot dialect that orch does not serve: the reason, and what to write instead."""

    reason: str
    instead: str = "remove it"

    def json_schema(self) -> dict[str, Any]:
        """Return a JSON Schema that no value satisfies, with the reason for editors."""
        return {"not": {}, "description": self.reason, "x-instead": self.instead}


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """The values of an option that its driver serves, whoever wrote them.

    Attributes:
        pattern: Regular expression that the whole text matches; "" where the type says which texts there are.
        least: The least number.
        most: The greatest number; None for an option that is no number.
        why: Why another value is refused.
        step: What to do about it.
    """

    pattern: str = ""
    least: float = 0.0
    most: float | None = None
    why: str
    step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionSpec:
    """What is declared of an option beside its type and default.

    Attributes:
        meaning: For the documentation, for editors and for `orch config`.
        form: What a text, or each item of a list, must be, for people; "" where the type says it.
        where: Where a task file has it: `config.NAME` (settings) or `resources.accelerator_args` (args); "" for an
            option that follows from other fields.
        key: Its key in the task file; "" for its own name.
        dialect: Whether the SkyPilot dialect has that key.
        config: Whether the configuration can set it.
        unset: What the provider uses without it, for `orch config`.
        single: Whether one text may stand for a list.
        hops: Whether it is a list of jump hosts.
        carried: Whether the details of a candidate carry it.
        allowed: Which values the driver serves; None for all of its type.
        flag: The value of the option of `orch check` that sets it; "" where it has none.
        flag_help: The help of that option.
        local_use: What is done with something of this computer that it names; "" where it names nothing of it.
        identity: Whether it chooses as whom the provider is called, which a project of the store can set.
    """

    meaning: str = ""
    form: str = ""
    where: Where = ""
    key: str = ""
    dialect: bool = False
    config: bool = False
    unset: str | None = None
    single: bool = False
    hops: bool = False
    carried: bool = True
    allowed: Allowed | None = None
    flag: str = ""
    flag_help: str = ""
    local_use: str = ""
    identity: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option of a driver: the name of its field, its type, its default and the rest of its declaration."""

    name: str
    kind: Any
    default: Any
    spec: OptionSpec

    @property
    def key(self) -> str:
        """Its key in a task file."""
        return self.spec.key or self.name

    @property
    def choices(self) -> tuple[str, ...]:
        """The texts that its type allows, without the "" of an absent one; () for any."""
        return tuple(filter(None, get_args(self.kind))) if get_origin(self.kind) is Literal else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverOptions:
    """All options of a driver: the value OPTIONS of its module `options`.

    Attributes:
        kind: The dataclass whose fields they are.
        title: The service, as the table of fields names it.
        owner: Who has options, to begin a sentence.
        dialect: Whether the SkyPilot dialect has the section `config.NAME`.
        refused_settings: Keys of that section that are refused.
        refused_args: Keys of the dialect's `accelerator_args` that are refused.
    """

    kind: type[DataclassInstance]
    title: str
    owner: str
    dialect: bool = False
    refused_settings: Mapping[str, Refused] = field(default_factory=lambda: MappingProxyType({}))
    refused_args: Mapping[str, Refused] = field(default_factory=lambda: MappingProxyType({}))


_O = TypeVar("_O", bound="DataclassInstance")


def setting(default: Any, meaning: str, form: str = "", **more: Any) -> Any:
    """Declare an option that `config.NAME` of a task file sets; `more` are fields of OptionSpec."""
    return _declare(default, OptionSpec(meaning=meaning, form=form, where="settings", **more))


def arg(default: Any, meaning: str, form: str = "", **more: Any) -> Any:
    """Declare an option that `accelerator_args` sets; `more` are fields of OptionSpec."""
    return _declare(default, OptionSpec(meaning=meaning, form=form, where="args", **more))


def derived(default: Any, **more: Any) -> Any:
    """Declare an option that follows from other fields of a task; `more` are fields of OptionSpec."""
    return _declare(default, OptionSpec(**more))


def _declare(default: Any, spec: OptionSpec) -> Any:
    return field(default=default, metadata={_METADATA: spec})


@cache
def list_options(kind: type[DataclassInstance]) -> tuple[Option, ...]:
    """Return the options that a dataclass declares, in their order."""
    hints = get_type_hints(kind)
    return tuple(
        Option(name=one.name, kind=hints[one.name], default=one.default, spec=one.metadata[_METADATA])
        for one in fields(kind)
    )


def list_identity_options(kind: type[DataclassInstance]) -> tuple[str, ...]:
    """Return the names of the options that choose as whom the provider is called."""
    return tuple(option.name for option in list_options(kind) if option.spec.identity)


def encode_options(options: DataclassInstance) -> Details:
    """Return the options as a candidate carries and the store keeps them, without those that have their default."""
    found: list[tuple[str, str]] = []
    for option in list_options(type(options)):
        value = getattr(options, option.name)
        if option.spec.carried and value != option.default:
            found.append((option.name, _encode(value)))
    return tuple(found)


def _encode(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else _OFF
    if isinstance(value, tuple):
        return ",".join(cast(tuple[str, ...], value))
    return value if isinstance(value, str) else f"{value:g}"


@lru_cache(maxsize=1024)
def decode_options(kind: type[_O], owner: str, details: Details) -> _O:
    """Return the options of a candidate, which are read once for all that ask for them.

    Args:
        kind: The dataclass of the driver.
        owner: Who has options, to begin a sentence of an error.
        details: The details of the candidate.

    Raises:
        UserError: There is no such option, or no such value of it.
    """
    known = {option.name: option for option in list_options(kind) if option.spec.carried}
    unknown = sorted(key for key, _ in details if key not in known)
    if unknown:
        raise UserError(
            f"{owner} no option '{unknown[0]}'", f"known: {', '.join(sorted(known))}", f"remove {unknown[0]}"
        )
    return kind(**dict(_decode_all(known, details)))


def _decode_all(known: Mapping[str, Option], details: Details) -> Iterator[tuple[str, Any]]:
    for key, word in details:
        if word:
            yield key, _decode(known[key], word)


def _decode(option: Option, word: str) -> Any:
    allowed = option.spec.allowed
    value: Any
    match option.default:
        case False:
            return word.lower() in _YES
        case True:
            value, fits = word != _OFF, word in ("auto", _OFF)
        case tuple():
            return tuple(filter(None, word.split(",")))
        case None:
            value = _number(word)
            fits = value is not None and allowed is not None and allowed.least <= value <= (allowed.most or value)
        case _:
            value, fits = word, word in option.choices if option.choices else _is_allowed(word, allowed)
    if not fits:
        why = allowed.why if allowed is not None else f"possible: {', '.join(option.choices)}"
        raise UserError(
            f"{option.name} is '{word}'", why, allowed.step if allowed is not None else f"remove {option.name}"
        )
    return value


def _is_allowed(word: str, allowed: Allowed | None) -> bool:
    return allowed is None or re.fullmatch(allowed.pattern, word) is not None


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None
