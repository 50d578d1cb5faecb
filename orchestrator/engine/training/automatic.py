"""Choose the machines of a task that leaves them to orch: `accelerators: auto`, or a range of nodes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from orchestrator.catalog.accelerators import resolve
from orchestrator.engine.preparation.foreign_buckets import foreign_bucket_reason
from orchestrator.engine.state.own_capacity import read_own_capacity
from orchestrator.engine.training.kept_speeds import read_project_speeds
from orchestrator.engine.training.offers import MachineGroup, Speed, list_offers, time_training
from orchestrator.engine.training.work import OwnProgram, Training, read_training
from orchestrator.errors import AccessError, UserError
from orchestrator.formatting import format_amount, format_amount_range, format_duration, parse_deadline
from orchestrator.messages import count_noun, join_some, join_words
from orchestrator.offers.choice import find_firm, find_reserves
from orchestrator.offers.estimates import SPOT_ASSUMPTION
from orchestrator.offers.offers import SURE, Offer, OfferRequest, choose_offers
from orchestrator.offers.own_speeds import OwnSpeed
from orchestrator.offers.refusals import refuse_late_or_dear
from orchestrator.slices import Spot
from orchestrator.task.automatic import AUTO, Automatic, ChosenMachines, Estimated
from orchestrator.task.errors import InvalidValueError
from orchestrator.task.infra import Infra, parse_infra
from orchestrator.task.model import TaskSection
from orchestrator.task.resources import CONTAINER, CandidateSection, ResourcesSection
from orchestrator.task.stacks import choose_stack
from orchestrator.task.trainer_settings import list_data_sources

MOST_SIZES = 64  # of a range of nodes, for all its candidates


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineChooser:
    """Chooses machines at the time of a plan, from dated tables. It is a task.automatic.ChooseMachines.

    Attributes:
        clouds: Those with credentials here, where the task names none; none for all.
        now: Epoch seconds.
        project: Whose records of lost machines and speeds count, "" for that of the environment; None for no records.
    """

    clouds: tuple[str, ...]
    now: float
    project: str | None = None

    def __call__(self, section: TaskSection) -> ChosenMachines:
        """Return the task with a candidate for each chosen offer or size, the first to be tried first.

        Raises:
            UserError: Nothing fits, or the trainer refuses its settings.
        """
        if section.resources.accelerators == AUTO:
            return _choose_offers(section, self)
        return _choose_sizes(section, self)

    def read_speeds(self) -> tuple[OwnSpeed, ...]:
        """Return the speeds of own runs that count."""
        return () if self.project is None else read_project_speeds(self.project)


def open_chooser(clouds: Sequence[str], project: str | None = None) -> MachineChooser:
    """Return a chooser for now, among clouds of which there are credentials."""
    return MachineChooser(clouds=tuple(clouds), now=time.time(), project=project)


def _choose_offers(section: TaskSection, chooser: MachineChooser) -> ChosenMachines:
    resources = section.resources
    auto = resources.auto or Automatic.model_construct()
    place = _read_place(resources)
    work = _read_work(section, auto)
    only = (*auto.only, *_name_market(resources), *((place.provider,) if place else ()))
    request = OfferRequest(
        seconds=_read_seconds(auto, chooser.now),
        budget=_smallest(auto.budget, section.limits.max_cost),
        most_hosts=auto.max_hosts,
        only=only,
        clouds=chooser.clouds,
        region=place.region if place else "",
        zone=place.zone if place else "",
    )
    capacity = read_own_capacity(chooser.project) if chooser.project is not None else None
    known = list_offers(work, request, capacity or MappingProxyType({}), chooser.read_speeds())
    fitting = [one for one in known if _has_stack(section, one)]
    closed = _find_closed_clouds(section, fitting)
    found = [one for one in fitting if one.machine.provider not in closed]
    chosen = choose_offers(found, request)
    if fitting and not found:
        raise next(iter(closed.values()))
    if not found:
        why = "it fits on none of them, or none of them is known by these words and hosts"
        raise UserError("no machine with a known price runs this", why, "more max_hosts, other `only`, a smaller batch")
    refuse_late_or_dear(found, chosen, request)
    reserves = find_reserves(found, request)
    firm = find_firm(found, request)
    entries = [_make_entry(section, work, one, place) for one in (*chosen, *firm, *reserves)]
    notes = [f"auto: left out: {error}; {error.next_step}" for error in closed.values()]
    notes += [*_describe_work(section, work), *_describe(found, chosen, request)]
    notes += _list_others(firm, reserves)
    notes += _describe_losses((*chosen, *firm, *reserves))
    notes += _describe_speeds((*chosen, *firm, *reserves))
    if not chooser.clouds and not place and not auto.only:
        notes.append("no credentials of a cloud were found here, so all clouds are considered; name some: only")
    made = _replace_candidates(section, entries)
    if resources.auto is not None:  # the record has what the user named, and not only what was chosen by it
        kept = resources.auto.model_copy(update={"only": tuple(dict.fromkeys(only))})
        made = made.model_copy(update={"resources": made.resources.model_copy(update={"auto": kept})})
    return ChosenMachines(section=made, notes=tuple(notes))


def _choose_sizes(section: TaskSection, chooser: MachineChooser) -> ChosenMachines:
    """Return a candidate for each number of nodes of the range, the largest first, on each of the task's machines."""
    least, _, most = str(section.num_nodes).partition("-")
    sizes = range(int(most), int(least) - 1, -1)
    outer = section.resources
    named = [*outer.any_of, *outer.ordered] or _split_names(outer)
    if not sizes:
        raise UserError(
            f"`num_nodes: {section.num_nodes}` has no size in it",
            "the smaller one is first",
            f"num_nodes: {most}-{least}",
        )
    if len(sizes) * len(named) > MOST_SIZES:
        why = f"{len(sizes)} sizes of {len(named)} machines are {len(sizes) * len(named)} candidates"
        raise UserError(f"`num_nodes: {section.num_nodes}` is too wide", why, f"at most {MOST_SIZES}")
    entries: list[CandidateSection] = []
    left_out: list[str] = []
    speeds = chooser.read_speeds()
    for candidate in named:
        machine = str(candidate.accelerators or candidate.instance_type or outer.accelerators or outer.instance_type)
        fitting = _fit_sizes(section, machine, sizes, speeds)
        for nodes in sizes:
            if fitting is not None and nodes not in fitting:
                left_out.append(f"{nodes} x {machine}")
                continue
            changes: dict[str, Any] = {"num_nodes": nodes, "settings": ()}
            if fitting is not None:
                settings, speed = fitting[nodes]
                estimate = _write_estimate(speed, None) if outer.grow else None
                changes |= {"settings": settings, "estimate": estimate}
            entries.append(candidate.model_copy(update=changes))
    if not entries:
        why = "the batch does not divide over their devices, or the step does not fit their memory"
        raise UserError("no size of `num_nodes` can train this", f"{join_some(left_out)}: {why}", "orch offers")
    notes = [f"left out: {join_some(left_out)}: the batch does not divide, or does not fit"] if left_out else []
    same = "; the batch is the same on all" if section.train is not None else ""
    notes.append(f"the most nodes that are there are taken: {entries[0].num_nodes} first{same}")
    return ChosenMachines(section=_replace_candidates(section, entries), notes=tuple(notes))


def _split_names(outer: ResourcesSection) -> list[CandidateSection]:
    plain = {name: getattr(outer, name) for name in outer.model_fields_set & CandidateSection.model_fields.keys()}
    names = outer.accelerators
    each: Sequence[Any] = (names,) if isinstance(names, str) else names if isinstance(names, tuple) else ()
    if isinstance(names, dict):
        each = [{name: count} for name, count in names.items()]
    made = [CandidateSection.model_construct(None, **plain | {"accelerators": one}) for one in each]
    if any(isinstance(one, dict) for one in each):
        raise UserError("a range of nodes needs a list of accelerators", "a map has no order", "[H100:8, A100:8]")
    return made


def _write_estimate(of: Speed | Offer, losses_per_hour: float | None) -> Estimated:
    """Return what a machine is chosen for, as the task keeps it."""
    step = of.step if isinstance(of, Speed) else of.step_seconds
    source = of.source if isinstance(of, Speed) else of.speed_source
    fields = {"step_seconds": [step.low, step.high], "steps": of.steps, "source": source}
    return Estimated.model_validate({**fields, "losses_per_hour": losses_per_hour})


def _fit_sizes(
    section: TaskSection, name: str, sizes: Sequence[int], own: Sequence[OwnSpeed]
) -> dict[int, tuple[tuple[tuple[str, str], ...], Speed]] | None:
    """Return the trainer's settings and speed for each size that can train; None where the machines are not known."""
    if section.train is None or not name:
        return None
    machine = resolve(name)
    if not machine.chips or not machine.listed:
        return None
    groups = [MachineGroup(machine, nodes) for nodes in sizes]
    training = _read_settings(section, tokens=None)
    speeds = time_training(training, groups, own)
    added = _list_added(section, training)
    return {
        one.nodes: ((*added, *_pairs(speeds[one.name].settings)), speeds[one.name])
        for one in groups
        if one.name in speeds
    }  # fmt: skip


def _read_work(section: TaskSection, auto: Automatic) -> Training | OwnProgram:
    if section.train is not None:
        if auto.flops:
            raise UserError("`auto.flops` is for own programs", "a `train` section has a model and tokens", "remove it")
        return _read_settings(section, tokens=auto.tokens)
    if auto.flops is None:
        step = "auto: {flops: 1e21, memory: 320}   in `resources`"
        raise UserError("`accelerators: auto` needs what your program computes", "FLOPs and GiB of memory", step)
    return OwnProgram(flops=auto.flops, memory_gib=auto.memory)


def _read_settings(section: TaskSection, *, tokens: float | None) -> Training:
    assert section.train is not None  # noqa: S101  # only called for a training
    given = [f"{key}={value}" for key, value in section.train.args if key not in ("engine", "device")]
    return read_training(given, tokens=tokens)


def _read_seconds(auto: Automatic, now: float) -> float | None:
    if not auto.by:
        return None
    left = parse_deadline(auto.by, now) - now
    if left <= 0:
        raise UserError(f"`auto.by: {auto.by}` is over", "", "by: 36h, or a later date")
    return left


def _read_place(resources: ResourcesSection) -> Infra | None:
    if not resources.infra:
        return None
    try:
        place = parse_infra(resources.infra)
    except InvalidValueError as error:
        raise UserError(error.what, error.why, error.next_step) from error
    if place.owned:
        raise UserError("`accelerators: auto` chooses among rented machines", f"infra is {place}", "remove one of them")
    return place


def _name_market(resources: ResourcesSection) -> tuple[str, ...]:
    if "use_spot" not in resources.model_fields_set:
        return ()
    return ("spot" if resources.use_spot else "on-demand",)


def _smallest(*amounts: float | None) -> float | None:
    return min((one for one in amounts if one is not None), default=None)


def _has_stack(section: TaskSection, offer: Offer) -> bool:
    """Return whether the trainer has what the task asks for on a machine: an engine, a device, a backend."""
    if section.train is None:
        return True
    try:
        choose_stack(offer.machine, section.train.stack_request())
    except InvalidValueError:
        return False
    return True


def _find_closed_clouds(section: TaskSection, offers: Sequence[Offer]) -> dict[str, AccessError]:
    """Return the clouds of the offers whose machines could not open a bucket of the task, each with the reason."""
    if any(not image.startswith(CONTAINER) for _, image in section.resources.image_id):  # it may hold credentials
        return {}
    data = list_data_sources(section.train.args) if section.train is not None else ()
    sources = (one if isinstance(one, str) else one.source for one in section.file_mounts.values())
    buckets = (*sources, section.checkpoint.bucket, *data)
    given = {*section.envs, *section.secrets}
    closed: dict[str, AccessError] = {}
    for provider in dict.fromkeys(one.machine.provider for one in offers):
        error = foreign_bucket_reason(provider, buckets, given, section.file_mounts)
        if error is not None:
            closed[provider] = error
    return closed


def _describe(found: Sequence[Offer], chosen: Sequence[Offer], request: OfferRequest) -> Iterator[str]:
    """Yield a line for each choice, and what was left out and why."""
    for number, one in enumerate(chosen, 1):
        chance = one.chance_in_time(request)
        sure = "" if chance is None else f", in time {100 * chance:.0f} %"
        low, high = (format_duration(seconds) for seconds in (one.seconds.low, one.seconds.high))
        cost = format_amount_range(one.dollars.low, one.dollars.high, 0)
        yield f"auto {number}: {one.name}, {one.market}: {low} to {high}, {cost} ({one.price_note}){sure}"
    others = [one for one in found if one not in chosen]
    cheap = [one for one in others if request.budget is None or one.dollars.high <= request.budget]
    beaten = [one for one in cheap if request.seconds is None or one.seconds.chance_below(request.seconds) >= SURE]
    why = [f"{len(others) - len(cheap)} may cost more than the budget"] if request.budget is not None else []
    why += [f"{len(cheap) - len(beaten)} may be late"] if request.seconds is not None else []
    why.append(f"{len(beaten)} beaten in both time and cost")
    yield f"auto: {count_noun(len(others), 'offer')} left out: {', '.join(why)}"


def _describe_work(section: TaskSection, work: Training | OwnProgram) -> Iterator[str]:
    """Yield a line on what the task leaves open of a training."""
    if not isinstance(work, Training):
        return
    if added := _list_added(section, work):
        words = " ".join(f"{key}={value}" for key, value in added)
        yield f"auto: {words}: usual for the size of the model, as no steps are given"
    elif section.train is not None and "batch" not in dict(section.train.args):
        yield "auto: the batch is the trainer's default, as the steps are given"


def _describe_losses(offers: Sequence[Offer]) -> Iterator[str]:
    """Yield whose rates of losses the estimates have."""
    own = [(one, one.losses_per_hour) for one in offers if one.losses_per_hour is not None]
    if own:
        words = (f"{one.name}, {one.market}: one in {1 / rate:,.0f} h" for one, rate in own)
        yield f"auto: losses by our records of 84 days: {'; '.join(words)}"
    if any(isinstance(one.market, Spot) for one in offers if one.losses_per_hour is None):
        yield f"auto: {SPOT_ASSUMPTION}"


def _describe_speeds(offers: Sequence[Offer]) -> Iterator[str]:
    """Yield a line for each source of a speed."""
    sources: dict[str, list[str]] = {}
    for one in offers:
        sources.setdefault(one.speed_source, []).append(one.machine.name)
    for source, names in sources.items():
        yield f"auto: speed of {join_some(list(dict.fromkeys(names)))}: {source}"


def _list_others(firm: Sequence[Offer], reserves: Sequence[Offer]) -> Iterator[str]:
    if firm:
        yield f"auto: where no spot machines are left: {_join(firm)}, on demand"
    if reserves:
        yield f"auto: only for the rest after a loss, as too dear for the whole run: {_join(reserves)}"


def _join(offers: Sequence[Offer]) -> str:
    return join_words([f"{one.name} ({one.market}, up to {format_amount(one.dollars.high, 0)})" for one in offers])


def _make_entry(
    section: TaskSection, work: Training | OwnProgram, offer: Offer, place: Infra | None
) -> CandidateSection:
    machine = offer.machine
    entry: dict[str, Any] = {
        "infra": str(place) if place else machine.provider,
        "instance_type" if machine.is_instance_type else "accelerators": machine.name,
        "use_spot": isinstance(offer.market, Spot),
        "num_nodes": offer.nodes,
        "estimate": _write_estimate(offer, offer.losses_per_hour),
    }
    if isinstance(work, Training):
        settings = dict(_list_added(section, work)) | dict(_pairs(offer.settings)) | {"steps": str(offer.steps)}
        if section.checkpoint.every is None and "checkpoint.every" not in dict(
            section.train.args if section.train else ()
        ):
            settings["checkpoint.every"] = str(offer.save_every)
        entry["settings"] = settings
    return CandidateSection.model_validate(entry)


def _list_added(section: TaskSection, work: Training) -> tuple[tuple[str, str], ...]:
    """Return the settings of the work that the task does not have, such as the usual batch."""
    given = dict(section.train.args) if section.train is not None else {}
    return tuple((key, value) for key, value in _pairs(work.settings) if key not in given)


def _pairs(words: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple((key, value) for key, _, value in (word.partition("=") for word in words))


def _replace_candidates(section: TaskSection, entries: Sequence[CandidateSection]) -> TaskSection:
    resources = section.resources.model_copy(
        update={"accelerators": "", "instance_type": "", "any_of": (), "ordered": tuple(entries)}
    )
    return section.model_copy(update={"resources": resources, "num_nodes": None})
