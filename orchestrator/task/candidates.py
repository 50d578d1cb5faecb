"""`resources` as complete candidates: any_of and ordered merged with their defaults, names resolved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from orchestrator.catalog import accelerators as catalog
from orchestrator.catalog.choosing import (
    NotRentedError,
    Requirements,
    UnmetRequirementError,
    choose_machine,
    filter_machines,
)
from orchestrator.catalog.machines import LocalHosts, Machine, OwnDevices
from orchestrator.computing_limit import check_computing
from orchestrator.drivers import list_clouds
from orchestrator.errors import UserError
from orchestrator.messages import count_noun, join_words
from orchestrator.task.driver_rules import list_rules, load_rules
from orchestrator.task.driver_sections import list_args
from orchestrator.task.errors import InvalidValueError, Issue, Path
from orchestrator.task.infra import ANY, HOSTS, LOCAL, SIMULATED, Infra, infra_from_parts, parse_infra
from orchestrator.task.model import Order
from orchestrator.task.resources import (
    WITHOUT_EFFECT,
    AcceleratorArgs,
    CandidateSection,
    ResourceFields,
    Resources,
    ResourcesSection,
)
from orchestrator.task.short_forms import parse_amount

_INFRA = ("infra", "cloud", "region", "zone")
_AMOUNTS = ("cpus", "memory")
_MACHINE = ("accelerators", "instance_type")
_LISTS = ("any_of", "ordered")
FEW = 6  # keys that a message lists
_ROOT: Path = ("resources",)


@dataclass(frozen=True, slots=True)
class Candidates:
    """All candidates of a task. `notes` say what was understood differently from how it was written."""

    all: tuple[Resources, ...]
    order: Order
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Entry:
    """One candidate before its names are resolved. `own` are the keys it wrote itself, at `path`."""

    section: CandidateSection
    own: frozenset[str] = frozenset()
    path: Path = _ROOT

    def path_of(self, key: str) -> Path:
        return (*(self.path if key in self.own else _ROOT), key)


class _AtKeyError(Exception):
    """A mistake and the key that made it."""

    def __init__(self, key: str, cause: InvalidValueError | UserError) -> None:
        super().__init__(key)
        self.key = key
        self.cause = cause


def resolve_candidates(section: ResourcesSection, issues: list[Issue]) -> Candidates:
    """Return all candidates, each once, without those whose mistakes were added to `issues`.

    One of several that no cloud of orch rents out is left out with a note, as the dialect leaves out what no enabled
    cloud has.
    """
    entries, order = _list_entries(section, issues)
    found: list[Resources] = []
    notes: list[str] = []
    left_out: list[Issue] = []
    for entry in entries:
        check_computing()
        try:
            choice = _resolve_entry(entry.section, notes)
        except _AtKeyError as error:
            for one in (error, *_find_more(entry.section, error)):
                path, cause = entry.path_of(one.key), one.cause
                issue = Issue(path=path, what=cause.what, why=cause.why, next_step=cause.next_step)
                kept = left_out if isinstance(cause, NotRentedError) else issues
                if issue not in kept:
                    kept.append(issue)
        else:
            if choice not in found:
                found.append(choice)
    if found:
        notes += [f"left out: {one.what}{f' ({one.why})' if one.why else ''}" for one in left_out]
    else:
        issues += left_out
    return Candidates(tuple(found), order, tuple(dict.fromkeys(notes)))


def _find_more(section: CandidateSection, error: _AtKeyError) -> Iterator[_AtKeyError]:
    """Yield what is wrong with the machine of a candidate beside its place, and with memory beside cpus."""
    named = section.accelerators or section.instance_type
    places = _INFRA if error.key in _INFRA and named else ()
    if ignored := (error.key,) if error.key in _AMOUNTS else places:
        try:
            _resolve_entry(section.model_copy(update=dict.fromkeys(ignored, "")), [])
        except _AtKeyError as other:
            yield other


def _list_entries(section: ResourcesSection, issues: list[Issue]) -> tuple[list[_Entry], Order]:
    lists = [kind for kind in _LISTS if getattr(section, kind)]
    if len(lists) == 2:
        what = "`any_of` and `ordered` exclude each other"
        issues.append(Issue(path=(*_ROOT, "ordered"), what=what, next_step="keep one of them"))
    if not lists:
        return _list_accelerators(section)
    outer = _written(section)
    found: list[_Entry] = []
    for index, candidate in enumerate(getattr(section, lists[0])):
        path = (*_ROOT, lists[0], index)
        own = _written(candidate)
        replaced = {key for group in (_INFRA, _MACHINE) if own.keys() & set(group) for key in group}
        merged = {key: value for key, value in outer.items() if key not in replaced} | own
        one = CandidateSection.model_construct(**merged)
        found += [_Entry(each, frozenset(own), path) for each in _split_accelerators(one)]
    return found, Order(lists[0])


def _written(section: CandidateSection) -> dict[str, Any]:
    """Return the fields of a candidate that the file has."""
    known = CandidateSection.model_fields
    return {name: getattr(section, name) for name in section.model_fields_set if name in known}


def _list_accelerators(section: ResourcesSection) -> tuple[list[_Entry], Order]:
    """Return an entry for each accelerator: a list is tried in its order, a map by price."""
    order = Order.CHEAPEST if isinstance(section.accelerators, dict) else Order.GIVEN
    return [_Entry(one) for one in _split_accelerators(section)], order


def _split_accelerators(section: CandidateSection) -> list[CandidateSection]:
    """Return the section once for each accelerator that it names; with `any_of` this gives all combinations.

    Source: SkyPilot, sky/resources.py, Resources.from_yaml_config, release 0.14.1.
    """
    names = section.accelerators
    if isinstance(names, str):
        return [section]
    each = names if isinstance(names, tuple) else [{name: count} for name, count in names.items()]
    return [section.model_copy(update={"accelerators": one}) for one in each]


def _resolve_entry(section: CandidateSection, notes: list[str]) -> Resources:
    infra = _infra(section)
    key = "instance_type" if section.instance_type and not section.accelerators else "accelerators"
    required = Requirements(cpus=parse_amount(section.cpus), memory=parse_amount(section.memory))
    try:
        infra, machine = _machine(infra, _named_machine(section), section.instance_type, required, notes)
    except UnmetRequirementError as error:
        raise _AtKeyError(error.key, error) from error
    except (UserError, InvalidValueError) as error:
        raise _AtKeyError(key if getattr(section, key) else "infra", error) from error
    notes += [f"`{key}` has no effect: {why}" for key, why in WITHOUT_EFFECT.items() if key in section.model_fields_set]
    plain: dict[str, Any] = {name: getattr(section, name) for name in ResourceFields.model_fields}
    plain["accelerator_args"] = _resolve_args(section.accelerator_args, machine)
    return Resources.model_construct(None, **plain, infra=infra, machine=machine)


def _infra(section: CandidateSection) -> Infra | None:
    older = next((key for key in _INFRA[1:] if getattr(section, key)), "")
    if section.infra and older:
        cause = InvalidValueError(f"`infra` and `{older}` exclude each other", "", f"keep infra: {section.infra}")
        raise _AtKeyError(older, cause)
    try:
        if section.infra:
            return parse_infra(section.infra)
        return infra_from_parts(section.cloud, section.region, section.zone) if older else None
    except InvalidValueError as error:
        raise _AtKeyError("infra" if section.infra else older, error) from error


def _accelerator_name(section: CandidateSection) -> str:
    names = section.accelerators
    if isinstance(names, dict):
        name, count = next(iter(names.items()))
        return name if count is None else f"{name}:{count}"
    return names if isinstance(names, str) else ""


def _named_machine(section: CandidateSection) -> str:
    """Return the name of the accelerator with what `accelerator_args` adds to it."""
    name = _accelerator_name(section)
    try:
        for rules in list_rules():
            name = rules.name_machine(name, section.accelerator_args)
    except InvalidValueError as error:
        raise _AtKeyError("accelerator_args", error) from error
    return name


def _machine(
    infra: Infra | None, name: str, instance_type: str, required: Requirements, notes: list[str]
) -> tuple[Infra, Machine]:
    """Place and machine, together: each may decide the other."""
    if instance_type:
        name = _one_machine(name, instance_type)
    if infra is not None and infra.provider in (SIMULATED, LOCAL, HOSTS):
        found = _not_rented(infra, name)
        notes += _notes(*found)
        if required:
            notes.append(f"`{required}` chooses among rented machines, and infra is {infra}: it is not checked")
        return found
    plain = not name or name.strip().lower() == "cpu"
    if plain and infra is None and not required:
        return Infra(provider=LOCAL), catalog.resolve_local("1")
    machine, why = _rented_machine(infra, "" if plain else name, instance_type, required)
    place = _place(infra, machine)
    notes += [*_notes(place, machine), *([why] if why else [])]
    return place, machine


def _not_rented(infra: Infra, name: str) -> tuple[Infra, Machine]:
    if infra.provider == SIMULATED:
        return infra, _rehearsed(name)
    return _local(infra, name) if infra.provider == LOCAL else (infra, catalog.resolve_own(name or "cpu"))


def _rented_machine(infra: Infra | None, name: str, instance_type: str, required: Requirements) -> tuple[Machine, str]:
    """Return the cheapest machine of what a cloud rents out, and why it is that one."""
    provider, region = (infra.provider, infra.region) if infra is not None else ("", "")
    chosen = choose_machine(name, required, "" if provider == ANY else provider, region)
    if chosen is not None:
        return chosen.machine, chosen.explain(region)
    if not name:
        raise InvalidValueError(
            f"no accelerator is requested on {infra or 'any cloud'}",
            f"orch rents {_rented()}",
            "add accelerators, or write infra: local",
        )
    machine = catalog.resolve_instance(name) if instance_type else catalog.resolve_rented(name)
    filter_machines([machine], required)
    return machine, ""


def _place(infra: Infra | None, machine: Machine) -> Infra:
    """Return where the machine is rented.

    Raises:
        InvalidValueError: Another driver rents it out.
    """
    home = machine.provider
    if infra is None:
        return Infra(provider=home)
    if infra.provider == ANY:
        return parse_infra(str(Infra(provider=home, region=infra.region, zone=infra.zone)))
    if infra.provider != home:
        raise InvalidValueError(
            f"{machine.name} is not on {infra.provider}", f"orch rents it from {home}", f"write infra: {home}"
        )
    return infra


def _rehearsed(name: str) -> Machine:
    head, colon, shape = name.partition(":")
    if colon and head.lower() == LOCAL:
        return catalog.resolve_local(shape)
    return catalog.resolve_rented(name) if name else catalog.resolve_local("1")


def _one_machine(name: str, instance_type: str) -> str:
    """Return the instance type, which must agree with `accelerators`."""
    instance = catalog.resolve_instance(instance_type)
    if not instance.is_instance_type:
        raise InvalidValueError(
            f"`{instance_type}` is not an instance type",
            f"{instance.name} is an accelerator",
            f"write accelerators: {instance.name}",
        )
    if name:
        resolved = catalog.resolve_own(name)
        same = resolved == instance or (
            isinstance(resolved, OwnDevices) and (resolved.chip, resolved.chips) == (instance.chip, instance.chips)
        )
        if not same:
            raise InvalidValueError(
                f"{instance.name} has {instance.chips} {instance.chip}, not {name}", "", "remove one of the two"
            )
    return instance.name


def _local(infra: Infra, name: str) -> tuple[Infra, LocalHosts]:
    if infra.shape and name:
        step = f"write infra: local:{name}" if infra.shape.isdigit() else "remove accelerators"
        raise InvalidValueError(f"infra: {infra} already says the shape", f"accelerators says {name}", step)
    machine = catalog.resolve_local(infra.shape or name or "1")
    own = _own_shape(machine.stands_for)
    shape = machine.name.removeprefix("local:") + (f":{own}" if own else "")
    return Infra(provider=LOCAL, shape=shape if infra.shape or machine.stands_for else ""), machine


def _resolve_args(args: AcceleratorArgs, machine: Machine) -> AcceleratorArgs:
    real = machine.stands_for if isinstance(machine, LocalHosts) else machine
    provider = real.provider if real is not None else ""
    try:
        _check_args(args, machine, provider)
        return load_rules(provider).resolve_args(args, real or machine)
    except InvalidValueError as error:
        raise _AtKeyError("accelerator_args", error) from error


def _check_args(args: AcceleratorArgs, machine: Machine, provider: str) -> None:
    """Refuse what has no meaning for the machines of a driver; provider "" for machines that no one rents out."""
    written = args.model_fields_set
    known = list_args(provider)
    if written and not known:
        raise InvalidValueError(
            f"`accelerator_args` has no meaning for {machine.name}", f"it is for {_rented()}", "remove it"
        )
    others = [key for key in AcceleratorArgs.model_fields if key in written and key not in known]
    if others := [key for key in others if getattr(args, key) not in ("", False)]:
        step = f"remove it; possible: {', '.join(known)}" if len(known) <= FEW else "remove it"
        raise InvalidValueError(f"`accelerator_args.{others[0]}` has no meaning for {machine.name}", "", step)
    for key in known:
        choices = known[key].choices
        if choices and (word := getattr(args, key)) and word not in choices:
            step = f"write {choices[0]}, or remove it" if len(choices) == 1 else "remove it"
            raise InvalidValueError(f"`{key}: {word}` is not for {machine.name}", "", step)


def _rented() -> str:
    return join_words([driver.rents for driver in list_clouds()])


def _own_shape(machine: Machine | None) -> str:
    """Return the topology to request where the name alone would get another one; "" for the usual one."""
    return catalog.find_own_topology(machine) if machine is not None else ""


def _notes(infra: Infra, machine: Machine) -> list[str]:
    notes: list[str] = []
    if machine.normalised_from:
        each = " each" if machine.hosts > 1 else ""
        chips = f" with {count_noun(machine.chips_per_host, 'chip')}{each}" if machine.chips_per_host else ""
        notes.append(f"`{machine.normalised_from}` is {machine.name}: {count_noun(machine.hosts, 'host')}{chips}")
    return [*notes, *load_rules(machine.provider).list_notes(infra, machine)]
