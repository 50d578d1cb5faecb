"""The section `resources` of a task file: machines, candidates, autostop and the dialect's recovery settings."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast

from pydantic import AfterValidator, BeforeValidator, Field

from orchestrator.catalog.machines import Machine
from orchestrator.drivers import list_clouds
from orchestrator.messages import join_words
from orchestrator.options import Refused
from orchestrator.task.automatic import Automatic, Estimated
from orchestrator.task.driver_sections import load_args_section
from orchestrator.task.errors import InvalidValueError
from orchestrator.task.infra import Infra
from orchestrator.task.section import (
    AnyCase,
    Count,
    ExitCode,
    Flag,
    Gigabytes,
    Lazy,
    Minutes,
    OneOrMany,
    OrText,
    Pairs,
    Port,
    Positive,
    Resolved,
    Scalar,
    Section,
    Text,
    Whole,
    Written,
    must_be,
    own,
    skypilot,
    text_schema,
)
from orchestrator.task.short_forms import flatten_settings, parse_gigabytes, parse_minutes, without_repeats

_ONE_CLUSTER = Refused("it applies to the cluster, not to one candidate", "write it in the outer resources")
_ONE_CHOICE = Refused("the choice is made once for the whole task", "write it in the outer resources")
_FLAT = Refused("lists of candidates do not nest", "write one flat list")
_NO_HOOK = Refused("no command runs before a stop", "save in your program: it gets SIGTERM first")
_MINUTES = r"[0-9]{1,6}[mhdw]?"
_STRATEGIES = ("FAILOVER", "EAGER_NEXT_REGION")
AUTOSTOP_MINUTES = 5  # of `autostop: true`; SkyPilot documentation, release 0.14.1

Strategy = Annotated[Literal["FAILOVER", "EAGER_NEXT_REGION"], AnyCase(_STRATEGIES)]


CONTAINER = "docker:"  # begins an image_id that names a container's image


def _check_container(images: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    found = {image for _, image in images}
    if len(found) > 1 and any(image.startswith(CONTAINER) for image in found):
        raise InvalidValueError(
            "`image_id` names a docker image among others",
            "a container has one image in all regions",
            "image_id: docker:IMAGE",
        )
    return images


if TYPE_CHECKING:

    class AcceleratorArgs(Section):
        """How machines are requested: what the drivers declare, of which only these are read outside of them."""

        provisioning: str
        reservation: str
        max_run_hours: float | None
        framework: str

else:
    AcceleratorArgs = load_args_section()


class AutoStop(Section):
    """When an idle cluster is stopped."""

    refused: ClassVar[Mapping[str, Refused]] = {"hook": _NO_HOOK, "hook_timeout": _NO_HOOK}
    short_forms = (
        {"type": "boolean"},
        {"type": "integer", "minimum": 1, "maximum": 525_600},
        text_schema("text such as 30m or 10h", _MINUTES),
    )

    idle_minutes: Minutes = skypilot(AUTOSTOP_MINUTES, "minutes without a job")
    down: Flag = skypilot(False, "delete the machines instead of stopping them")
    wait_for: Literal["jobs_and_ssh", "jobs", "none"] = skypilot(
        "jobs_and_ssh",
        "what counts as being busy; jobs_and_ssh: also accelerators in use, and load; none is not served",
    )

    @classmethod
    def expand(cls, value: Any) -> Any:
        """Turn `true`, minutes, or text such as `10h` into a map."""
        if value is True:
            return {}
        if isinstance(value, str) and re.fullmatch(_MINUTES, value):
            value = parse_minutes(value)
        return {"idle_minutes": value} if isinstance(value, int) and value is not False else value


class JobRecovery(Section):
    """The dialect's recovery settings; each is another name of a field of `recovery`."""

    short_forms = ({"type": "string", "examples": list(_STRATEGIES)},)

    strategy: Strategy | None = skypilot(None, "same as recovery.strategy")
    max_restarts_on_errors: Count | None = skypilot(None, "same as recovery.max_failures")
    recover_on_exit_codes: Annotated[tuple[ExitCode, ...], OneOrMany(), AfterValidator(without_repeats)] = skypilot(
        (), "same as recovery.restart_on_exit_codes"
    )

    @classmethod
    def expand(cls, value: Any) -> Any:
        """Turn a bare strategy into a map."""
        return {"strategy": value} if isinstance(value, str) else value


class ResourceFields(Section):
    """The fields of a candidate that mean the same in the file and in the resolved task.

    `image_id` holds one image under the key "", or one for each region.
    """

    accelerator_args: Lazy[AcceleratorArgs] = skypilot(
        AcceleratorArgs.model_construct(), f"settings of {join_words([driver.rents for driver in list_clouds()], 'or')}"
    )
    use_spot: Flag = skypilot(False, "use spot capacity, which may be preempted", config=True)
    disk_size: Annotated[Gigabytes, OrText(r"[0-9]{1,6} ?(?:GB|TB)", "text such as 500GB", parse_gigabytes)] | None = (
        skypilot(None, "boot disk, GB", config=True)
    )
    network_tier: Annotated[Literal["", "standard", "best"], Written] = skypilot(
        "", "best: all interfaces for collectives (EFA)"
    )
    image_id: Annotated[
        tuple[tuple[str, str], ...],
        Pairs(Annotated[dict[str, Annotated[Text, must_be("an image")]], Field(min_length=1)], single=True),
        AfterValidator(_check_container),
    ] = skypilot((), "image, or a map from region to image; docker:IMAGE runs setup and program in a container")
    labels: Annotated[tuple[tuple[str, str], ...], Pairs(dict[str, str])] = skypilot(
        (), "labels or tags on what is created"
    )
    max_hourly_cost: Positive | None = skypilot(
        None, "US dollars an hour for one slice or instance, at most", config=True
    )
    num_nodes: Annotated[int, Field(strict=True, ge=1, le=4096)] | None = own(
        None, "how many of this candidate; num_nodes of the task if absent"
    )
    settings: Annotated[tuple[tuple[str, str], ...], Pairs(dict[str, Scalar], flatten_settings)] = own(
        (), "settings of the bundled trainer on this candidate, over those of train.args"
    )
    estimate: Lazy[Estimated] | None = own(None, "what it was chosen for; `accelerators: auto` writes it")


_NOT_SERVED = {
    "local_disk": Refused("local disks are used where the machine has them"),
    "volumes": Refused(
        "no disks are attached beside the boot disk", "keep data in a bucket: file_mounts, checkpoint.bucket"
    ),
}
_OLDER = "older form of infra"
# Fields of the dialect that are accepted although they change nothing, with the reason; the plan has a note for each.
WITHOUT_EFFECT = {
    "disk_tier": "boot disks are the provider's standard SSD",
    "ports": "orch opens no port to the internet; `orch ssh` forwards one",
    "priority": "jobs run in the order in which they were given",
    "priority_class": "it is for Kubernetes and Slurm",
    "ephemeral_storage": "it is for Kubernetes; disk_size sets the boot disk",
}


_Accelerators = (
    Annotated[Text, must_be("a name such as v5litepod-16 or H100:8")]
    | Annotated[tuple[Annotated[Text, must_be("a name such as v5litepod-16")], ...], Field(min_length=1)]
    | Annotated[dict[str, Whole | None], Field(min_length=1)]
)

# SkyPilot documentation, "SkyPilot YAML", `resources.cpus` and `.memory` (read 2026-11-25): 1 GB is 2^30 bytes.
_Cpus = Whole | Annotated[str, Field(pattern=r"^[1-9][0-9]{0,5}\+?$"), must_be("text such as 4+")]
_Memory = (
    Whole
    | Annotated[str, Field(pattern=r"^[1-9][0-9]{0,8} ?(?:[MmGgTt][Bb])?\+?$"), must_be("text such as 16+ or 64GB")]
)


_PortRange = Port | Annotated[str, Field(pattern=r"^[0-9]{1,5}(?:-[0-9]{1,5})?$"), must_be("text such as 8000-8010")]


def _example_places() -> str:
    """Return one cloud with a place, and the others by their names."""
    first, *others = list_clouds()
    return ", ".join((first.places.example if first.places else first.name, *(one.name for one in others)))


class CandidateSection(ResourceFields):
    """One entry of `any_of` or `ordered`, as written."""

    refused: ClassVar[Mapping[str, Refused]] = {
        **_NOT_SERVED,
        "any_of": _FLAT,
        "ordered": _FLAT,
        "auto": _ONE_CHOICE,
        "autostop": _ONE_CLUSTER,
        "job_recovery": _ONE_CLUSTER,
    }

    @classmethod
    def expand(cls, value: Any) -> Any:
        """Turn `gpus`, which the dialect takes for `accelerators`, into it."""
        if not isinstance(value, dict) or "gpus" not in value:
            return cast("Any", value)
        data = cast("dict[str, Any]", value)
        if data.get("accelerators") is not None:
            raise InvalidValueError("`gpus` and `accelerators` exclude each other", "they mean the same", "keep one")
        return {**{key: item for key, item in data.items() if key != "gpus"}, "accelerators": data["gpus"]}

    infra: Text = skypilot(
        "",
        "where: provider[/region[/zone]], `*` for any; by accelerator if absent, else local",
        f"text such as {_example_places()}, local:4 or hosts",
        config=True,
    )
    cloud: Text = skypilot("", _OLDER)
    region: Text = skypilot("", _OLDER)
    zone: Text = skypilot("", _OLDER)
    accelerators: _Accelerators = skypilot("", "NAME or NAME:COUNT, or auto; a list is tried in order, a map by price")
    instance_type: Text = skypilot("", "exact instance type", "text such as p5.48xlarge")
    cpus: _Cpus = skypilot("", "vCPUs of each host: 4, or 4+ for at least 4; the cheapest type that fits is taken")
    disk_tier: Annotated[Literal["", "low", "medium", "high", "ultra", "best", "none"], Written] = skypilot(
        "", f"no effect: {WITHOUT_EFFECT['disk_tier']}"
    )
    ports: Annotated[tuple[_PortRange, ...], OneOrMany()] = skypilot((), f"no effect: {WITHOUT_EFFECT['ports']}")
    priority: Annotated[int, Field(strict=True, ge=-1000, le=1000)] = skypilot(
        0, f"no effect: {WITHOUT_EFFECT['priority']}"
    )
    priority_class: Text = skypilot("", f"no effect: {WITHOUT_EFFECT['priority_class']}")
    ephemeral_storage: Whole | Text | None = skypilot(None, f"no effect: {WITHOUT_EFFECT['ephemeral_storage']}")
    memory: _Memory = skypilot("", "memory of each host, GB: 16, 16+, or 64GB; as for cpus")


_Candidates = Annotated[tuple[Lazy[CandidateSection], ...], Field(min_length=1)]


class ResourcesSection(CandidateSection):
    """The section `resources`, as written."""

    refused: ClassVar[Mapping[str, Refused]] = _NOT_SERVED

    @classmethod
    def expand(cls, value: Any) -> Any:
        """Turn `spot_recovery`, the dialect's older name of `job_recovery`, into it."""
        data: object = super().expand(value)
        named = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
        if "spot_recovery" not in named or "job_recovery" in named:
            return cast("Any", data)
        return {"job_recovery" if key == "spot_recovery" else key: item for key, item in named.items()}

    any_of: _Candidates = skypilot((), "candidates, cheapest first; the keys beside it are their defaults")
    ordered: _Candidates = skypilot((), "candidates, tried in this order; the keys beside it are their defaults")
    auto: Lazy[Automatic] | None = own(None, "with `accelerators: auto`: what limits the choice")
    grow: Flag = own(
        False, "with a range of num_nodes or accelerators: auto: move to better machines at a checkpoint when worth it"
    )
    autostop: Annotated[Lazy[AutoStop] | None, BeforeValidator(lambda value: None if value is False else value)] = (
        skypilot(
            None,
            "stop when idle, or delete what cannot be stopped: minutes, `10h`, true for 5 minutes, false for never",
        )
    )
    job_recovery: Lazy[JobRecovery] = skypilot(JobRecovery.model_construct(), "see recovery")


class Resources(ResourceFields):
    """One candidate of a resolved task.

    Attributes:
        infra: Where the machines are.
        machine: What `accelerators` and `instance_type` mean at `infra`.
    """

    infra: Resolved[Infra]
    machine: Resolved[Machine]

    @property
    def container(self) -> str:
        """The image of the container in which setup and program run; "" for none."""
        images = (image for _, image in self.image_id if image.startswith(CONTAINER))
        return next(images, "").removeprefix(CONTAINER)

    @property
    def machine_images(self) -> dict[str, str]:
        """The images of the machines by region, "" for all; none where `image_id` names a container."""
        return {} if self.container else dict(self.image_id)
