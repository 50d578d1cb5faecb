"""The public images that the pretend AWS has, and the public parameters that lead to them.

Names of parameters: DLAMI and Neuron DLAMI guides (2026). Names of images follow those that release notes and public
tools show (2026): "Deep Learning AMI Neuron (Ubuntu 24.04) 20260227" is the one of Neuron SDK 2.28. The words of the
descriptions and most dates are modelled. A newer image of a line replaces the older one behind the line's parameter;
the older one stays to be found by its description. The ids are made up, one per region, always the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

AMAZON = "898082745236"  # the account of the Deep Learning AMIs; its alias is "amazon"
CANONICAL = "099720109477"
UBUNTU_ROOT, AMAZON_LINUX_ROOT = "/dev/sda1", "/dev/xvda"
_PREFIX = "/aws/service/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """created: ISO 8601 as DescribeImages writes it. parameters: those that mean it."""

    name: str
    description: str
    created: str
    parameters: tuple[str, ...] = ()
    root_device: str = UBUNTU_ROOT
    root_gib: int = 75
    architecture: str = "x86_64"
    owner: str = AMAZON

    def ami(self, region: str) -> str:
        """Its id there."""
        return f"ami-{hashlib.sha256(f'{region}/{self.name}'.encode()).hexdigest()[:17]}"


def images() -> tuple[Image, ...]:
    """All of them, in every region."""
    return _IMAGES


@cache
def by_id(region: str) -> Mapping[str, Image]:
    return MappingProxyType({image.ami(region): image for image in _IMAGES})


@cache
def by_parameter() -> Mapping[str, Image]:
    """By the whole name of the parameter."""
    return MappingProxyType({name: image for image in _IMAGES for name in image.parameters})


def _gpu(system: str, date: str, *, latest: bool = True) -> Image:
    line = f"base-oss-nvidia-driver-gpu-ubuntu-{system}"
    return Image(
        name=f"Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu {system}) {date}",
        description="Supported EC2 instances: G4dn, G5, G6, G6e, P4, P4de, P5, P5e, P5en, P6-B200, P6-B300",
        created=_created(date),
        parameters=(f"{_PREFIX}deeplearning/ami/x86_64/{line}/latest/ami-id",) if latest else (),
    )


def _torch(version: str, system: str, date: str) -> Image:
    return Image(
        name=f"Deep Learning OSS Nvidia Driver AMI GPU PyTorch {version} (Ubuntu {system}) {date}",
        description=f"PyTorch {version} at /opt/pytorch. Supported EC2 instances: G4dn, G5, G6, P4, P5, P6",
        created=_created(date),
        parameters=(
            f"{_PREFIX}deeplearning/ami/x86_64/oss-nvidia-driver-gpu-pytorch-{version}-ubuntu-{system}/latest/ami-id",
        ),
    )


def _neuron(title: str, sdk: str, date: str, line: str = "", system: str = "ubuntu-24.04") -> Image:
    """line: of the parameter that means it now; "" for an image that a newer one has replaced."""
    shown = system.replace("-", " ").title()
    what = f"Deep Learning AMI Neuron {title}".strip()
    return Image(
        name=f"{what} ({shown}) {date}",
        description=f"{what} for Trn1, Trn2, Trn3, Inf2 with Neuron SDK {sdk}",
        created=_created(date),
        parameters=(f"{_PREFIX}neuron/dlami/{line}/{system}/latest/image_id",) if line else (),
        root_device=AMAZON_LINUX_ROOT if system == "amazon-linux-2023" else UBUNTU_ROOT,
        root_gib=100,
    )


def _ubuntu(system: str, title: str, date: str) -> Image:
    kind = f"{_PREFIX}canonical/ubuntu/server/{system}/stable/current/amd64/hvm/ebs-gp3/ami-id"
    return Image(
        name=f"ubuntu/images/hvm-ssd-gp3/ubuntu-{title}-{system}-amd64-server-{date}",
        description=f"Canonical, Ubuntu, {system}, amd64 {title} image",
        created=_created(date),
        parameters=(kind,),
        root_gib=8,
        owner=CANONICAL,
    )


def _created(date: str) -> str:
    return f"{date[:4]}-{date[4:6]}-{date[6:]}T08:30:00.000Z"


_IMAGES: tuple[Image, ...] = (
    _gpu("22.04", "20260814"),
    _gpu("24.04", "20260703", latest=False),
    _gpu("24.04", "20261016"),
    _torch("2.7", "22.04", "20260417"),
    _torch("2.9", "24.04", "20260320"),
    _torch("2.12", "24.04", "20261016"),
    _torch("2.13", "26.04", "20261016"),
    _neuron("", "2.27.0", "20251219"),
    _neuron("", "2.28.0", "20260227"),
    _neuron("", "2.28.1", "20260313"),
    _neuron("PyTorch 2.9", "2.28.1", "20260314"),
    _neuron("", "2.30.0", "20260522", "multi-framework", "ubuntu-22.04"),
    _neuron("", "2.31.0", "20260717"),
    _neuron("", "2.32.0", "20260821"),
    _neuron("", "2.33.0", "20261016", "multi-framework"),
    _neuron("torch-neuronx 2.14.0", "2.33.0", "20261016"),
    _neuron("torch-neuronx 2.14.0", "2.33.0", "20261016", system="ubuntu-26.04"),
    _neuron("JAX 0.10", "2.33.0", "20261016", "jax-0.10"),
    _neuron("JAX 0.10", "2.33.0", "20261016", "jax-0.10", "amazon-linux-2023"),
    _neuron("Base", "2.33.0", "20261016", "base"),
    _neuron("Base", "2.33.0", "20261016", "base", "amazon-linux-2023"),
    _ubuntu("22.04", "jammy", "20261007"),
    _ubuntu("24.04", "noble", "20261014"),
)
