"""The sections of a task file that the drivers' options make: `config.NAME` and `resources.accelerator_args`.

Each option is declared in its driver's folder (orchestrator/options.py); here it becomes a field of a pydantic model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast

from pydantic import AfterValidator, create_model

from orchestrator.drivers import has_part, list_driver_names, load_part
from orchestrator.options import DriverOptions, Option, Refused, list_options
from orchestrator.task.section import (
    Flag,
    OneOrMany,
    Positive,
    Section,
    Text,
    Written,
    must_be,
    own,
    skypilot,
)
from orchestrator.task.short_forms import parse_address

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_O = TypeVar("_O", bound="DataclassInstance")


@cache
def list_driver_options() -> Mapping[str, DriverOptions]:
    """Return the options of each driver that has any, by its name."""
    names = [name for name in list_driver_names() if has_part(name, "options")]
    return {name: cast(DriverOptions, load_part(name, "options").OPTIONS) for name in names}


@cache
def load_settings_section(name: str) -> type[Section]:
    """Return the model of `config.NAME`."""
    options = list_driver_options()[name]
    return _make_section(f"{name.title()}Settings", _written(options, "settings"), options.refused_settings)


@cache
def load_args_section() -> type[Section]:
    """Return the model of `accelerator_args`: the options of all drivers, an option of several of them once."""
    merged: dict[str, Option] = {}
    refused: dict[str, Refused] = {}
    for options in list_driver_options().values():
        refused |= options.refused_args
        for option in _written(options, "args"):
            merged[option.key] = _merge(merged.get(option.key), option)
    return _make_section("AcceleratorArgs", merged.values(), refused)


def list_args(name: str) -> Mapping[str, Option]:
    """Return the keys of `accelerator_args` that a driver knows, with their options."""
    options = list_driver_options().get(name)
    return {option.key: option for option in _written(options, "args")} if options is not None else {}


def build_options(kind: type[_O], settings: Section, args: Section | None = None) -> _O:
    """Return the options that a task's sections set; those that follow from other fields have their defaults."""
    sources = {"settings": settings, "args": args}
    values = {
        option.name: getattr(source, option.key)
        for option in list_options(kind)
        if (source := sources.get(option.spec.where)) is not None
    }
    return kind(**values)


def _written(options: DriverOptions, where: str) -> list[Option]:
    """Return the options that a section of the file has, those of the dialect first."""
    found = [option for option in list_options(options.kind) if option.spec.where == where]
    return sorted(found, key=lambda option: not option.spec.dialect)


def _merge(first: Option | None, second: Option) -> Option:
    """Return one option for two drivers that have it; its texts are those of both."""
    if first is None or not second.choices:
        return first or second
    texts = tuple(dict.fromkeys(("", *first.choices, *second.choices)))
    return Option(name=first.name, kind=Literal[texts], default=first.default, spec=first.spec)


def _make_section(name: str, options: Iterable[Option], refused: Mapping[str, Refused]) -> type[Section]:
    fields: dict[str, Any] = {option.key: (_annotate(option), _declare(option)) for option in options}
    made = create_model(name, __base__=Section, __module__=__name__, **fields)
    made.refused = refused
    return made


def _annotate(option: Option) -> Any:
    """Return the type of a field, with what is checked of it when a file is read."""
    spec, kind = option.spec, cast(Any, Positive)
    match option.default:
        case bool():
            return Flag
        case None:
            return kind | None
        case tuple():
            kind = tuple[Annotated[Text, must_be(spec.form)], ...] if spec.form else tuple[Text, ...]
            return Annotated[kind, OneOrMany()] if spec.single else kind
        case _ if option.choices:
            return Annotated[option.kind, Written]
        case _:
            return Annotated[Text, AfterValidator(_check_hops)] if spec.hops else Text


def _declare(option: Option) -> Any:
    spec = option.spec
    declare = skypilot if spec.dialect else own
    default: Any = option.default
    form = None if isinstance(default, tuple) else spec.form or None
    return declare(default, spec.meaning, form, config=spec.config or None, unset=spec.unset)


def _check_hops(jump: str) -> str:
    for hop in jump.split(",") if jump else ():
        parse_address(hop.strip())
    return jump
