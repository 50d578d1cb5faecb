"""What a slice consists of on Compute Engine, and the names of it all. Pure.

A TPU of one host is an instance, and so is each machine without TPUs. A TPU of several hosts is a managed instance
group, with a workload policy that names the topology and a template of its instances (Compute Engine documentation,
"Create a MIG with multi-host TPU slice", 2026). Several TPU slices are so many of these. All names follow from the name
of the slice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from orchestrator.catalog.machines import ComputeType, TpuSlice
from orchestrator.catalog.tpu import get_generation
from orchestrator.errors import UserError
from orchestrator.providers.google import choices
from orchestrator.providers.google.choices import Choices
from orchestrator.providers.google.options import read_options
from orchestrator.slices import Candidate, Reservation
from orchestrator.values import Text

LONGEST = 45  # of a slice's name: "-s63-w-0001" is put behind it, and 58 letters are the most for a group's instances
DISK_GIB = 100  # as the TPU API provides; the images alone would give 10, which a first pip install fills
FLEX_WAIT_SECONDS = 7200  # the longest that an instance may wait ("About Flex-start VMs", 2026)
LEAST_DISK_GIB = 10  # of Ubuntu's images
IMAGES = "projects/ubuntu-os-accelerator-images/global/images"
# Of machines without TPUs: Ubuntu 24.04, with Python 3.12. GPU_IMAGE has NVIDIA's driver 580, the least for CUDA 13.
# Public code rents g2-standard-8 and a2-highgpu-1g with it (images v20251021 to v20260820, read 2026-11-26).
CPU_IMAGE = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64"
GPU_IMAGE = f"{IMAGES}/family/ubuntu-accelerator-2404-amd64-with-nvidia-580"
PLAIN_DISK = "pd-balanced"  # all of e2, n2, g2 and a2 take it ("Choose a disk type", Compute Engine, 2026)
_IMAGE = re.compile(r"projects/[a-z0-9.:-]+/global/images/(?:family/)?[a-z0-9-]+")
_FAMILY = re.compile(r"ubuntu-accel-[a-z0-9-]*tpu[a-z0-9-]*")
_NAME = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?")
_NOT_HERE = {
    "queued": "there are no queued resources; flex-start waits for machines",
    "tier": "there are no queued resources, and no tiers",
}


@dataclass(frozen=True, slots=True)
class Part:
    """One TPU slice or machine. index: which of them. name: of the instance, or of group, template and policy."""

    name: str
    index: int
    hosts: int

    @property
    def grouped(self) -> bool:
        return self.hosts > 1

    @property
    def base(self) -> str:
        """A group numbers its instances from 1 in the place of the hashes (compute v1, baseInstanceName)."""
        return f"{self.name}-w-{'#' * self._digits}"

    @property
    def instances(self) -> tuple[str, ...]:
        """In the order of their numbers."""
        if not self.grouped:
            return (self.name,)
        return tuple(f"{self.name}-w-{number:0{self._digits}d}" for number in range(1, self.hosts + 1))

    @property
    def _digits(self) -> int:
        return max(3, len(str(self.hosts)))


def parts(name: str, slices: int, hosts_per_slice: int) -> tuple[Part, ...]:
    """In slice order. Raises UserError for a name that is too long."""
    if len(name) > LONGEST or not _NAME.fullmatch(name):
        raise UserError(
            f"'{name}' cannot name a slice on Compute Engine",
            f"allowed: up to {LONGEST} lower-case letters, digits and inner dashes, a letter first",
            "take another name: -c NAME",
        )
    names = [name] if slices == 1 else [f"{name}-s{index}" for index in range(slices)]
    return tuple(Part(one, index, hosts_per_slice) for index, one in enumerate(names))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A candidate as Compute Engine is asked for it.

    image: path of an image or a family. topology: of one TPU slice. run_seconds: after so long the service deletes the
    machines, 0 = never. wait_seconds: how long a flex-start instance may wait for machines.
    """

    asked: Choices
    image: str
    disk_gib: int
    disk_type: str
    topology: str
    run_seconds: int
    wait_seconds: int

    @property
    def machine_type(self) -> str:
        """Return what Compute Engine calls it."""
        machine = self.asked.machine
        return machine.machine_type if isinstance(machine, TpuSlice) else machine.name

    @property
    def migrates(self) -> bool:
        """Whether the machines may move to another host: none with TPUs, GPUs or of spot can (Compute Engine, 2026)."""
        return not self.asked.machine.chips and not self.asked.spot

    @property
    def patience(self) -> int:
        """Seconds that the slice may wait for machines; 0 where it is made at once or not at all."""
        if not self.asked.flex:
            return 0
        return self.wait_seconds if self.asked.hosts_per_slice == 1 else self.asked.valid_seconds

    @property
    def project(self) -> Text:
        return self.asked.project

    @property
    def zone(self) -> str:
        return self.asked.zone

    @property
    def region(self) -> str:
        return self.asked.zone.rpartition("-")[0]

    def parts(self, name: str) -> tuple[Part, ...]:
        return parts(name, self.asked.slices, self.asked.hosts_per_slice)

    def path(self, scope: str) -> Text:
        """Below the version of the API: projects/P/<scope>."""
        return Text.of("projects/", self.project, f"/{scope}")

    @property
    def in_zone(self) -> Text:
        return self.path(f"zones/{self.zone}")

    @property
    def in_region(self) -> Text:
        return self.path(f"regions/{self.region}")


@lru_cache(maxsize=256)
def read(candidate: Candidate) -> Wanted:
    """Raises UserError for what Compute Engine cannot give, with the reason."""
    options = read_options(candidate)
    for key, why in _NOT_HERE.items():
        if getattr(options, key):
            raise UserError(f"'{key}' is not available on Compute Engine", why, f"remove {key}, or: api: tpu")
    if isinstance(candidate.market, Reservation) and candidate.market.name == choices.ANY_RESERVATION:
        raise UserError(
            "a reservation on Compute Engine has a name", "only the TPU API knows '-' (any)", "reservation: NAME"
        )
    asked = choices.read(replace(candidate, details=_without_image(candidate)))
    if asked.flex and asked.hosts_per_slice > 1 and asked.data_disks:
        raise UserError("a flex-start group takes no data disks", "", "keep large data in a bucket")
    return Wanted(
        asked=asked,
        image=_image(options.runtime_version, asked.machine),
        disk_gib=_disk_gib(candidate, asked.machine),
        disk_type=_disk_type(asked.machine),
        topology=asked.topology or asked.machine.topology,
        run_seconds=asked.run_seconds,
        wait_seconds=min(asked.valid_seconds, FLEX_WAIT_SECONDS),
    )


def _without_image(candidate: Candidate) -> tuple[tuple[str, str], ...]:
    """The details without what is a runtime version in the TPU API and an image here."""
    return tuple((key, value) for key, value in candidate.details if key != "runtime_version")


def _disk_gib(candidate: Candidate, machine: TpuSlice | ComputeType) -> int:
    """GiB of the boot disk. A TPU has at least as much as through the TPU API."""
    size = candidate.disk_gib or DISK_GIB
    return max(DISK_GIB if isinstance(machine, TpuSlice) else LEAST_DISK_GIB, size)


def _disk_type(machine: TpuSlice | ComputeType) -> str:
    return get_generation(machine.generation).compute_disk if isinstance(machine, TpuSlice) else PLAIN_DISK


def _image(word: str, machine: TpuSlice | ComputeType) -> str:
    """Families: "TPU OS images" (Cloud TPU documentation, 2026); the names as public code used them in 2026."""
    usual = _usual_image(machine)
    if not word:
        return usual
    if _IMAGE.fullmatch(word):
        return word
    if _FAMILY.fullmatch(word) and isinstance(machine, TpuSlice):
        return f"{IMAGES}/family/{word}"
    raise UserError(
        f"'{word}' is not an image of Compute Engine",
        "a runtime version belongs to the TPU API; here it is projects/PROJECT/global/images/[family/]NAME",
        f"remove it: {usual.rpartition('/')[2]} is taken",
    )


def _usual_image(machine: TpuSlice | ComputeType) -> str:
    if isinstance(machine, TpuSlice):
        return f"{IMAGES}/family/{get_generation(machine.generation).compute_image}"
    return GPU_IMAGE if machine.chips else CPU_IMAGE
