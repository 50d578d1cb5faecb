"""From a choice of a task to the places and options of its candidates on EC2, and the notes about them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, cast

from orchestrator.catalog.ec2_regions import list_opt_in_regions, load_zones_by_region
from orchestrator.catalog.machines import Ec2Instance
from orchestrator.errors import AccessError
from orchestrator.messages import join_some
from orchestrator.options import Details, encode_options
from orchestrator.providers.aws.driver import DRIVER
from orchestrator.providers.aws.options import AwsOptions, Framework
from orchestrator.providers.aws.places import list_machine_places
from orchestrator.providers.protocol import Place
from orchestrator.slices import Candidate, HostFacts, Market
from orchestrator.task.errors import InvalidValueError
from orchestrator.task.stacks import choose_stack

if TYPE_CHECKING:
    from orchestrator.task.model import Task
    from orchestrator.task.resources import Resources

NAME = "aws"


def list_places(task: Task, choice: Resources, market: Market) -> list[Place]:
    """Return one place per named subnet, or one per zone; a map of images names the regions, too.

    Without a named region only regions with a known price are used, the cheapest first, and of them those that every
    account may use.
    """
    machine, named = choice.machine, Place(choice.infra.region, choice.infra.zone)
    if isinstance(machine, Ec2Instance) and (subnets := read_settings(task).subnets):
        return [replace(named, subnet=subnet) for subnet in subnets]
    return list_machine_places(machine, named, market, [region for region in choice.machine_images if region])


def list_details(task: Task, choice: Resources, place: Place) -> Details:
    """Return the options of a candidate as it carries them (options.py)."""
    from orchestrator.task.driver_sections import build_options

    images = choice.machine_images
    options = replace(
        build_options(AwsOptions, task.settings(NAME), choice.accelerator_args),
        subnet=place.subnet,
        image=images.get(place.region, images.get("", "")),
        framework=cast(Framework, _framework(task, choice)),
        network=choice.network_tier,
        max_hours=task.limits.max_hours,
        on_idle="stop" if _stops_when_idle(task) else "",
    )
    return encode_options(options)


def _stops_when_idle(task: Task) -> bool:
    """Return whether idle machines are stopped: all candidates must allow it, for all of them get one timer."""
    return task.stops_when_idle and all(
        choice.infra.provider == NAME
        and not choice.use_spot
        and choice.accelerator_args.provisioning != "capacity-block"  # market.stop_refusal has the reasons
        for choice in task.choices
    )


def read_settings(task: Task) -> AwsOptions:
    """Return the options that hold for the account, whichever machines a task asks for."""
    from orchestrator.task.driver_sections import build_options

    return build_options(AwsOptions, task.settings(NAME))


def list_notes(task: Task, candidates: Sequence[Candidate]) -> tuple[str, ...]:
    """Return one note per unknown or mistyped region, and one per type that more regions have."""
    notes: list[str] = []
    for choice in task.choices:
        machine, named = choice.machine, choice.infra.region
        if choice.infra.provider != NAME or not isinstance(machine, Ec2Instance):
            continue
        if named and named not in load_zones_by_region():
            near = get_close_matches(named, list(load_zones_by_region()), 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            notes.append(f"orch knows no region {named}{hint}")
        tried = {one.region for one in candidates if one.accelerator == machine.name}
        others = sorted(set(machine.regions) - tried, key=lambda region: (region in list_opt_in_regions(), region))
        if not named and others:
            notes.append(f"{machine.name} is also in {join_some(others)}: --infra aws/{others[0]}   tries it")
    return tuple(dict.fromkeys(notes))


def missing_credentials_error(task: Task, facts: HostFacts) -> AccessError | None:
    """Return an error when hosts on EC2 could not open an s3:// bucket of the task, or None.

    Their role is an instance profile: orch never copies the user's own keys to a machine.
    """
    if read_settings(task).instance_profile or all(choice.infra.provider != NAME for choice in task.choices):
        return None
    given = {name for name, _ in (*facts.env, *task.envs)} | set(task.secret_names)
    named = (task.checkpoint.bucket, *(mount.source for mount in task.file_mounts))
    buckets = [uri for uri in named if uri.startswith("s3://")]
    if not buckets or given.intersection(DRIVER.bucket_credentials):
        return None
    return AccessError(
        f"the machines could not open {buckets[0]}",
        "no instance profile is set, so the machines would have no AWS credentials",
        f"orch check aws --bucket {buckets[0]} --fix   makes one   or: orch config set aws.instance_profile NAME",
    )


def _framework(task: Task, choice: Resources) -> str:
    """Return the framework that the machine image has to contain."""
    if task.train is None:
        return choice.accelerator_args.framework
    try:
        return choose_stack(choice.machine, task.train.stack_request(choice.accelerator_args.framework)).engine
    except InvalidValueError:  # a recorded task that this orch does not serve any more, and may still have to end
        return choice.accelerator_args.framework
