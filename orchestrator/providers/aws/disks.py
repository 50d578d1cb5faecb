"""Sizes of the boot disks of EC2 instances, in GiB. Pure."""

from __future__ import annotations

from orchestrator.catalog.machines import Ec2Instance
from orchestrator.errors import UserError
from orchestrator.providers.aws import images
from orchestrator.slices import Candidate

DISK_GIB = 200
PLAIN_DISK_GIB = 50  # of machines without accelerators, whose image and packages are small
NEURON_DISK_GIB = 512  # what the Neuron documentation asks for ("Update PyTorch on a Deep Learning AMI", October 2026)
LARGEST_DISK_GIB = 65_536  # of gp3 (CreateVolume, EC2 API reference, read 2026-11-26; 16,384 before September 2025)
# A volume cannot be smaller than its image. Ubuntu's has 8 GiB. The Deep Learning Base image with NVIDIA's driver has
# 75: a root file system of 73G, 50G of it used, in build 20250505 (tekumara/notes, file aws-deeplearning-ami.md).
_LEAST_PLAIN_GIB, _LEAST_GPU_GIB = 8, 75


def least_disk(machine: Ec2Instance) -> int:
    """Return the GiB that the usual image of a type needs; 1, the least of a gp3 volume, where that is not known."""
    if images.is_neuron(machine.name):
        return 1
    return _LEAST_GPU_GIB if machine.backends[:1] == ("cuda",) else _LEAST_PLAIN_GIB


def choose_disk(candidate: Candidate, instance: Ec2Instance | None) -> int:
    """Return the GiB of a candidate's boot disk.

    Raises:
        UserError: No gp3 volume has the size that the task asks for.
    """
    plain = instance is not None and not instance.chips
    usual = NEURON_DISK_GIB if images.is_neuron(candidate.accelerator) else PLAIN_DISK_GIB if plain else DISK_GIB
    size = candidate.disk_gib if candidate.disk_gib is not None else usual
    if not 1 <= size <= LARGEST_DISK_GIB:
        raise UserError(
            f"a disk of {size} GiB is not possible",
            f"a gp3 volume has 1 to {LARGEST_DISK_GIB:,} GiB",
            f"disk_size: {usual}",
        )
    return size
