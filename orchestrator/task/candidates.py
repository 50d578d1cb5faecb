"""`resources` as complete candidates: any_of and ordered merged with their defaults, names resolved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from orchestrator.catalog import accelerators as catalog
from orchestrator.catalog import tpu
from orchestrator.catalog.machines import Accelerator, Ec2Instance, LocalHosts, OwnDevices, TpuSlice
from orchestrator.errors import UserError
from orchestrator.task.errors import InvalidValueError, Issue, Path
from orchestrator.task.infra import Infra, InfraProvider, infra_from_parts, parse_infra
from orchestrator.task.model import Order
from orchestrator.task.resources import AcceleratorArgs, CandidateSection, ResourceFields, Resources, ResourcesSection

_INFRA = ("infra", "cloud", "region", "zone")
_MACHINE = ("accelerators", "instance_type")
_LISTS = ("any_of", "ordered")
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


def resolve_candidates(section: ResourcesSection, issues: list[Issue]) -> Candidates | None:
    """Return all candidates, each once; None after adding to `issues`."""
    before = len(issues)
    entries, order = _list_entries(section, issues)
    found: list[Resources] = []
    notes: list[str] = []
    for entry in entries:
        try:
            choice = _resolve_entry(entry.section, notes)
        except _AtKeyError as error:
            cause = error.cause
            path = entry.path_of(error.key)
            issue = Issue(path=path, what=cause.what, why=cause.why, next_step=cause.next_step)
            if issue not in issues:
                issues.append(issue)
        else:
            if choice not in found:
                found.append(choice)
    if len(issues) > before:
        return None
    return Candidates(tuple(found), order, tuple(dict.fromkeys(notes)))


def _list_entries(section: ResourcesSection, issues: list[Issue]) -> tuple[list[_Entry], Order]:
    lists = [kind for kind in _LISTS if getattr(section, kind)]
    if len(lists) == 2:
        what = "`any_of` and `ordered` exclude each other"
        issues.append(Issue(path=(*_ROOT, "ordered"), what=what, next_step="keep one of them"))
    if not lists:
        return _list_accelerators(section)
    if not isinstance(section.accelerators, str):
        what = f"`accelerators` with several names and `{lists[0]}` exclude each other"
        step = f"write one name, or name each in `{lists[0]}`"
        issues.append(Issue(path=(*_ROOT, "accelerators"), what=what, next_step=step))
        return [], Order.GIVEN
    outer = _written(section)
    found: list[_Entry] = []
    for index, candidate in enumerate(getattr(section, lists[0])):
        path = (*_ROOT, lists[0], index)
        names = candidate.accelerators
        if not isinstance(names, str) and (isinstance(names, tuple) or len(names) > 1):
            step = f"write one entry of `{lists[0]}` for each"
            issues.append(Issue(path=(*path, "accelerators"), what="a candidate names one accelerator", next_step=step))
            continue
        own = _written(candidate)
        replaced = {key for group in (_INFRA, _MACHINE) if own.keys() & set(group) for key in group}
        merged = {key: value for key, value in outer.items() if key not in replaced} | own
        found.append(_Entry(CandidateSection.model_construct(**merged), frozenset(own), path))
    return found, Order(lists[0])


def _written(section: CandidateSection) -> dict[str, Any]:
    """Return the fields of a candidate that the file has."""
    known = CandidateSection.model_fields
    return {name: getattr(section, name) for name in section.model_fields_set if name in known}


def _list_accelerators(section: ResourcesSection) -> tuple[list[_Entry], Order]:
    """Return an entry for each accelerator: a list is tried in its order, a map by price."""
    names = section.accelerators
    if isinstance(names, str):
        return [_Entry(section)], Order.GIVEN
    if isinstance(names, tuple):
        return [_Entry(section.model_copy(update={"accelerators": name})) for name in names], Order.GIVEN
    each = [section.model_copy(update={"accelerators": {name: count}}) for name, count in names.items()]
    return [_Entry(one) for one in each], Order.CHEAPEST


def _resolve_entry(section: CandidateSection, notes: list[str]) -> Resources:
    infra = _infra(section)
    key = "instance_type" if section.instance_type and not section.accelerators else "accelerators"
    try:
        infra, machine = _machine(infra, _shaped_name(section), section.instance_type)
    except (UserError, InvalidValueError) as error:
        raise _AtKeyError(key if getattr(section, key) else "infra", error) from error
    notes += _notes(infra, machine)
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


def _shaped_name(section: CandidateSection) -> str:
    """Return the accelerator with its topology, when one is written beside it: v4 and 2x2x4 are `v4:2x2x4`."""
    name, topology = _accelerator_name(section), section.accelerator_args.topology.strip()
    head, _, count = name.partition(":")
    if not topology or (tpu.find_generation(head) is None and tpu.find_slice(head) is None):
        return name
    if not tpu.is_topology(topology):
        cause = InvalidValueError(f"`{topology}` is not a topology", "", "write one like 4x4 or 2x2x4")
        raise _AtKeyError("accelerator_args", cause)
    if tpu.is_topology(count) and count.strip() != topology:
        what = f"`{name}` and the topology {topology} exclude each other"
        raise _AtKeyError("accelerator_args", InvalidValueError(what, "", "keep one of them"))
    return f"{head}:{topology}"


def _machine(infra: Infra | None, name: str, instance_type: str) -> tuple[Infra, Accelerator]:
    """InfraProvider and what, together: each may decide the other."""
    if instance_type:
        name = _one_machine(name, instance_type)
    if infra is not None and infra.provider is InfraProvider.SIMULATED:
        return infra, _rehearsed(name)
    if infra is not None and infra.provider is InfraProvider.LOCAL:
        return _local(infra, name)
    if infra is not None and infra.provider is InfraProvider.HOSTS:
        return infra, catalog.resolve_own(name or "cpu")
    if not name or name.strip().lower() == "cpu":
        if infra is not None:
            raise InvalidValueError(
                f"no accelerator is requested on {infra}",
                "orch rents TPU slices and EC2 accelerator instances",
                "add accelerators, or write infra: local",
            )
        return Infra(provider=InfraProvider.LOCAL), catalog.resolve_local("1")
    machine = catalog.resolve_instance(name) if instance_type else catalog.resolve_rented(name)
    home = InfraProvider.GCP if isinstance(machine, TpuSlice) else InfraProvider.AWS
    if infra is None:
        return Infra(provider=home), machine
    if infra.provider is InfraProvider.ANY:
        return parse_infra(str(Infra(provider=home, region=infra.region, zone=infra.zone))), machine
    if infra.provider is not home:
        raise InvalidValueError(
            f"{machine.name} is not on {infra.provider}", f"orch rents it from {home}", f"write infra: {home}"
        )
    return infra, machine


def _rehearsed(name: str) -> Accelerator:
    head, colon, shape = name.partition(":")
    if colon and head.lower() == InfraProvider.LOCAL:
        return catalog.resolve_local(shape)
    return catalog.resolve_rented(name) if name else catalog.resolve_local("1")


def _one_machine(name: str, instance_type: str) -> str:
    """Return the instance type, which must agree with `accelerators`."""
    instance = catalog.resolve_instance(instance_type)
    if not isinstance(instance, Ec2Instance):
        raise InvalidValueError(
            f"`{instance_type}` is not an instance type",
            "TPU slices are accelerators",
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
    return Infra(provider=InfraProvider.LOCAL, shape=shape if infra.shape or machine.stands_for else ""), machine


def _resolve_args(args: AcceleratorArgs, machine: Accelerator) -> AcceleratorArgs:
    real = machine.stands_for if isinstance(machine, LocalHosts) else machine
    try:
        _check_args(args, machine, real)
        if not args.tpu_vm:  # a file is refused before, with its rewrite; this is for other sources
            raise InvalidValueError(
                "`tpu_vm: false` asks for a TPU Node", f"Google ended them on {tpu.NODES_ENDED}", "remove it"
            )
        right = tpu.load_wrong_runtimes().get(args.runtime_version)
        if right:
            what = f"there is no runtime version `{args.runtime_version}`"
            raise InvalidValueError(what, "", f"write {right}, or remove it")
    except InvalidValueError as error:
        raise _AtKeyError("accelerator_args", error) from error
    topology = _own_shape(real)
    return args if args.topology == topology else args.model_copy(update={"topology": topology})


def _check_args(args: AcceleratorArgs, machine: Accelerator, real: Accelerator | None) -> None:
    """Refuse what has no meaning for this kind of machine."""
    written = args.model_fields_set
    if written and not isinstance(real, TpuSlice | Ec2Instance):
        raise InvalidValueError(
            f"`accelerator_args` has no meaning for {machine.name}",
            "it is for TPU slices and EC2 instances",
            "remove it",
        )
    tpu_only = not isinstance(real, Ec2Instance)
    other = [
        key
        for key in AcceleratorArgs.model_fields
        if key in written and getattr(args, key) not in ("", False)
        if (key in _EC2_ARGS if tpu_only else key not in (*_EC2_ARGS, *_SHARED_ARGS))
    ]
    if other:
        step = f"remove it; possible: {', '.join((*_SHARED_ARGS, *_EC2_ARGS))}" if not tpu_only else "remove it"
        raise InvalidValueError(f"`accelerator_args.{other[0]}` has no meaning for {machine.name}", "", step)
    if args.provisioning and tpu_only == (args.provisioning == "capacity-block"):
        step = "remove it" if tpu_only else "write capacity-block, or remove it"
        raise InvalidValueError(f"`provisioning: {args.provisioning}` is not for {machine.name}", "", step)


_EC2_ARGS = ("placement_group", "framework")
_SHARED_ARGS = ("provisioning", "reservation")


def _own_shape(machine: Accelerator | None) -> str:
    """Return the topology to request where the size alone would get another one; "" for the usual one."""
    if not isinstance(machine, TpuSlice):
        return ""
    usual = tpu.find_slice(machine.name)
    return machine.topology if usual is not None and usual.topology != machine.topology else ""


def _notes(infra: Infra, machine: Accelerator) -> list[str]:
    notes: list[str] = []
    if machine.normalised_from:
        hosts = f"{machine.hosts} host{'s' if machine.hosts > 1 else ''}"
        chips = f" with {machine.chips_per_host} chips each" if machine.chips_per_host else ""
        notes.append(f"`{machine.normalised_from}` is {machine.name}: {hosts}{chips}")
    if isinstance(machine, Ec2Instance) and not machine.listed:
        notes.append(
            f"{machine.name} is not in orch's table of types: its chips, price and EFA interfaces are not known;"
            " it gets one network interface"
        )
    if isinstance(machine, TpuSlice) and infra.provider is InfraProvider.GCP and machine.zones:
        place = infra.zone or infra.region
        if place and not any(zone.startswith(place) for zone in machine.zones):
            notes.append(f"{place} is not among the places known for {machine.generation}: {', '.join(machine.zones)}")
    return notes
