"""`resources` as complete candidates: any_of and ordered merged with their defaults, names resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.catalog import accelerators as catalog
from orchestrator.catalog import tpu
from orchestrator.catalog.machines import Accelerator, Ec2Instance, LocalHosts, OwnDevices, TpuSlice
from orchestrator.errors import UserError
from orchestrator.spec import forms
from orchestrator.spec.errors import FormError
from orchestrator.spec.infra import Infra, Where, from_parts, parse_infra
from orchestrator.spec.read import flag, items, number, section, text
from orchestrator.spec.schema import Issue
from orchestrator.spec.task import AcceleratorArgs, Order, Resources
from orchestrator.spec.yaml_reader import Path, Value


@dataclass(frozen=True, slots=True)
class Choices:
    """notes: what was understood differently from how it was written."""

    all: tuple[Resources, ...]
    order: Order
    notes: tuple[str, ...] = ()


def read_choices(resources: Mapping[str, Value], issues: list[Issue]) -> Choices | None:
    """All candidates, each once; None after adding to `issues`."""
    before = len(issues)
    entries, order = _entries(resources, issues)
    found: list[Resources] = []
    notes: list[str] = []
    for entry in entries:
        try:
            choice = _resources(entry, notes)
        except _At as error:
            issue = Issue(entry.path_of(error.key), error.cause.what, error.cause.why, error.cause.next_step)
            if issue not in issues:
                issues.append(issue)
        else:
            if choice not in found:
                found.append(choice)
    if len(issues) > before:
        return None
    return Choices(tuple(found), order, tuple(dict.fromkeys(notes)))


_INFRA = ("infra", "cloud", "region", "zone")
_MACHINE = ("accelerators", "instance_type")
_LISTS = ("any_of", "ordered")
_ROOT: Path = ("resources",)


@dataclass(frozen=True, slots=True)
class _Entry:
    """One candidate before it is understood. own: the keys it wrote itself, at `path`."""

    data: Mapping[str, Value]
    own: frozenset[str] = frozenset()
    path: Path = _ROOT

    def path_of(self, key: str) -> Path:
        return (*(self.path if key in self.own else _ROOT), key)


class _At(Exception):
    """A mistake and the key that made it."""

    def __init__(self, key: str, cause: FormError | UserError) -> None:
        super().__init__(key)
        self.key = key
        self.cause = cause


def _entries(resources: Mapping[str, Value], issues: list[Issue]) -> tuple[list[_Entry], Order]:
    lists = [kind for kind in _LISTS if items(resources, kind)]
    if len(lists) == 2:
        issues.append(Issue((*_ROOT, "ordered"), "`any_of` and `ordered` exclude each other", "", "keep one of them"))
    if not lists:
        return _by_accelerator(resources)
    outer = {key: value for key, value in resources.items() if key not in _LISTS and value is not None}
    if isinstance(outer.get("accelerators"), list | dict):
        what = f"`accelerators` with several names and `{lists[0]}` exclude each other"
        issues.append(Issue((*_ROOT, "accelerators"), what, "", f"write one name, or name each in `{lists[0]}`"))
        return [], Order.GIVEN
    found: list[_Entry] = []
    for index, entry in enumerate(items(resources, lists[0])):
        own = {key: value for key, value in entry.items() if value is not None} if isinstance(entry, dict) else {}
        path = (*_ROOT, lists[0], index)
        if isinstance(own.get("accelerators"), list) or len(section(own, "accelerators")) > 1:
            what = "a candidate names one accelerator"
            issues.append(Issue((*path, "accelerators"), what, "", f"write one entry of `{lists[0]}` for each"))
            continue
        replaced = [key for group in (_INFRA, _MACHINE) if any(name in own for name in group) for key in group]
        merged = {key: value for key, value in outer.items() if key not in replaced} | own
        found.append(_Entry(merged, frozenset(own), path))
    return found, Order(lists[0])


def _by_accelerator(resources: Mapping[str, Value]) -> tuple[list[_Entry], Order]:
    """A list of accelerators is tried in its order, a map by price."""
    value = resources.get("accelerators")
    if isinstance(value, list):
        return [_Entry({**resources, "accelerators": name}) for name in value], Order.GIVEN
    if isinstance(value, dict):
        return [_Entry({**resources, "accelerators": {name: value[name]}}) for name in value], Order.CHEAPEST
    return [_Entry(resources)], Order.GIVEN


def _resources(entry: _Entry, notes: list[str]) -> Resources:
    data = entry.data
    infra = _infra(data)
    key = "instance_type" if text(data, "instance_type") and not data.get("accelerators") else "accelerators"
    try:
        infra, machine = _machine(infra, _shaped_name(data), text(data, "instance_type"))
    except (UserError, FormError) as error:
        raise _At(key if data.get(key) is not None else "infra", error) from error
    try:
        disk = forms.gigabytes(data.get("disk_size"))
    except FormError as error:
        raise _At("disk_size", error) from error
    notes += _notes(infra, machine)
    return Resources(
        infra=infra,
        machine=machine,
        use_spot=flag(data, "use_spot"),
        args=_args(section(data, "accelerator_args"), machine),
        disk_gib=disk,
        network_tier=text(data, "network_tier"),
        images=_images(data.get("image_id")),
        labels=tuple((name, str(value)) for name, value in section(data, "labels").items()),
        max_hourly_cost=number(data, "max_hourly_cost"),
    )


def _infra(data: Mapping[str, Value]) -> Infra | None:
    older = [text(data, key) for key in _INFRA[1:]]
    written = text(data, "infra")
    if written and any(older):
        name = next(key for key in _INFRA[1:] if text(data, key))
        cause = FormError(f"`infra` and `{name}` exclude each other", "", f"keep infra: {written}")
        raise _At(name, cause)
    try:
        if written:
            return parse_infra(written)
        return from_parts(older[0], older[1], older[2]) if any(older) else None
    except FormError as error:
        raise _At("infra" if written else next(key for key in _INFRA[1:] if text(data, key)), error) from error


def _accelerator_name(data: Mapping[str, Value]) -> str:
    value = data.get("accelerators")
    if isinstance(value, dict):
        name, count = next(iter(value.items()))
        return name if count is None else f"{name}:{count}"
    return value if isinstance(value, str) else ""


def _shaped_name(data: Mapping[str, Value]) -> str:
    """The accelerator with its topology, when one is written beside it: v4 and 2x2x4 are `v4:2x2x4`."""
    name, topology = _accelerator_name(data), text(section(data, "accelerator_args"), "topology").strip()
    head, _, count = name.partition(":")
    if not topology or (tpu.find_generation(head) is None and tpu.find_slice(head) is None):
        return name
    if not tpu.is_topology(topology):
        raise _At("accelerator_args", FormError(f"`{topology}` is not a topology", "", "write one like 4x4 or 2x2x4"))
    if tpu.is_topology(count) and count.strip() != topology:
        what = f"`{name}` and the topology {topology} exclude each other"
        raise _At("accelerator_args", FormError(what, "", "keep one of them"))
    return f"{head}:{topology}"


def _machine(infra: Infra | None, name: str, instance_type: str) -> tuple[Infra, Accelerator]:
    """Where and what, together: each may decide the other."""
    if instance_type:
        name = _one_machine(name, instance_type)
    if infra is not None and infra.provider is Where.SIMULATED:
        return infra, _rehearsed(name)
    if infra is not None and infra.provider is Where.LOCAL:
        return _local(infra, name)
    if infra is not None and infra.provider is Where.HOSTS:
        return infra, catalog.resolve_own(name or "cpu")
    if not name or name.strip().lower() == "cpu":
        if infra is not None:
            raise FormError(
                f"no accelerator is asked for on {infra}",
                "orch rents TPU slices and EC2 accelerator instances",
                "add accelerators, or write infra: local",
            )
        return Infra(Where.LOCAL), catalog.resolve_local("1")
    machine = catalog.resolve_instance(name) if instance_type else catalog.resolve_rented(name)
    home = Where.GCP if isinstance(machine, TpuSlice) else Where.AWS
    if infra is None:
        return Infra(home), machine
    if infra.provider is Where.ANY:
        return parse_infra(str(Infra(home, infra.region, infra.zone))), machine
    if infra.provider is not home:
        raise FormError(
            f"{machine.name} is not on {infra.provider}", f"orch rents it from {home}", f"write infra: {home}"
        )
    return infra, machine


def _rehearsed(name: str) -> Accelerator:
    head, colon, shape = name.partition(":")
    if colon and head.lower() == Where.LOCAL:
        return catalog.resolve_local(shape)
    return catalog.resolve_rented(name) if name else catalog.resolve_local("1")


def _one_machine(name: str, instance_type: str) -> str:
    """The instance type, after making sure that `accelerators` says the same."""
    instance = catalog.resolve_instance(instance_type)
    if not isinstance(instance, Ec2Instance):
        raise FormError(
            f"`{instance_type}` is not an instance type",
            "TPU slices are accelerators",
            f"write accelerators: {instance.name}",
        )
    if name:
        wanted = catalog.resolve_own(name)
        same = wanted == instance or (
            isinstance(wanted, OwnDevices) and (wanted.chip, wanted.chips) == (instance.chip, instance.chips)
        )
        if not same:
            raise FormError(
                f"{instance.name} has {instance.chips} {instance.chip}, not {name}", "", "remove one of the two"
            )
    return instance.name


def _local(infra: Infra, name: str) -> tuple[Infra, LocalHosts]:
    if infra.shape and name:
        step = f"write infra: local:{name}" if infra.shape.isdigit() else "remove accelerators"
        raise FormError(f"infra: {infra} already says the shape", f"accelerators says {name}", step)
    machine = catalog.resolve_local(infra.shape or name or "1")
    own = _own_shape(machine.stands_for)
    shape = machine.name.removeprefix("local:") + (f":{own}" if own else "")
    return Infra(Where.LOCAL, shape=shape if infra.shape or machine.stands_for else ""), machine


def _args(data: Mapping[str, Value], machine: Accelerator) -> AcceleratorArgs:
    real = machine.stands_for if isinstance(machine, LocalHosts) else machine
    try:
        _fitting(data, machine, real)
        if data.get("tpu_vm") is False:  # a file is refused before, with its rewriting; this is for other sources
            raise FormError(
                "`tpu_vm: false` asks for a TPU Node", f"Google ended them on {tpu.NODES_ENDED}", "remove it"
            )
        runtime = text(data, "runtime_version")
        right = tpu.wrong_runtimes().get(runtime)
        if right:
            raise FormError(f"there is no runtime version `{runtime}`", "", f"write {right}, or remove it")
    except FormError as error:
        raise _At("accelerator_args", error) from error
    return AcceleratorArgs(
        runtime_version=runtime,
        gcp_queued_resource=flag(data, "gcp_queued_resource"),
        topology=_own_shape(real),
        provisioning=text(data, "provisioning"),
        reservation=text(data, "reservation"),
        max_run_hours=number(data, "max_run_hours"),
        valid_hours=number(data, "valid_hours"),
        data_disks=tuple(str(disk) for disk in items(data, "data_disks")),
        secure_boot=flag(data, "secure_boot"),
        api=text(data, "api"),
        placement_group=text(data, "placement_group"),
        framework=text(data, "framework"),
    )


def _fitting(data: Mapping[str, Value], machine: Accelerator, real: Accelerator | None) -> None:
    """Only what says something of this kind of machine."""
    if data and not isinstance(real, TpuSlice | Ec2Instance):
        raise FormError(
            f"`accelerator_args` has no meaning for {machine.name}",
            "it is for TPU slices and EC2 instances",
            "remove it",
        )
    tpu_only = not isinstance(real, Ec2Instance)
    strange = [
        key
        for key, value in data.items()
        if value not in (None, "", False) and (key in _EC2_ARGS if tpu_only else key not in (*_EC2_ARGS, *_SHARED_ARGS))
    ]
    if strange:
        step = f"remove it; there are: {', '.join((*_SHARED_ARGS, *_EC2_ARGS))}" if not tpu_only else "remove it"
        raise FormError(f"`accelerator_args.{strange[0]}` has no meaning for {machine.name}", "", step)
    provisioning = text(data, "provisioning")
    if provisioning and tpu_only == (provisioning == "capacity-block"):
        step = "remove it" if tpu_only else "write capacity-block, or remove it"
        raise FormError(f"`provisioning: {provisioning}` is not for {machine.name}", "", step)


_EC2_ARGS = ("placement_group", "framework")
_SHARED_ARGS = ("provisioning", "reservation")


def _own_shape(machine: Accelerator | None) -> str:
    """The topology that has to be asked for, because the size alone would get another one; "" for the usual one."""
    if not isinstance(machine, TpuSlice):
        return ""
    usual = tpu.find_slice(machine.name)
    return machine.topology if usual is not None and usual.topology != machine.topology else ""


def _images(value: Value) -> tuple[tuple[str, str], ...]:
    several = value if isinstance(value, dict) else {"": value} if value is not None else {}
    images = tuple((region, str(image)) for region, image in several.items())
    if any(image.startswith("docker:") for _, image in images):
        cause = FormError(
            "`image_id` with a docker image is not served",
            "programs run on the host, not in a container",
            "install what you need in `setup`",
        )
        raise _At("image_id", cause)
    return images


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
    if isinstance(machine, TpuSlice) and infra.provider is Where.GCP and machine.zones:
        place = infra.zone or infra.region
        if place and not any(zone.startswith(place) for zone in machine.zones):
            notes.append(f"{place} is not among the places known for {machine.generation}: {', '.join(machine.zones)}")
    return notes
