"""What the driver of AWS knows of tasks for its machines (orchestrator/task/driver_rules.py). Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from orchestrator.catalog.machines import Ec2Instance, Machine
from orchestrator.providers.aws.candidates import read_settings
from orchestrator.providers.aws.disks import LARGEST_DISK_GIB, least_disk
from orchestrator.task.driver_rules import TaskRules
from orchestrator.task.errors import InvalidValueError, Issue
from orchestrator.task.infra import Infra

if TYPE_CHECKING:
    from orchestrator.task.model import Task
    from orchestrator.task.resources import Resources

# t3 is launched in the mode "unlimited", which bills for load above the baseline (Amazon EC2 User Guide, "Key
# concepts for burstable performance instances" and "Unlimited mode", read 2026-11-25).
# Amazon EC2 User Guide, "Tag restrictions" (read 2026-11-23).
_LONGEST_TAG, _LONGEST_TAG_VALUE = 128, 256


class AwsRules(TaskRules):
    """The rules of EC2 instances."""

    most_labels = 42  # of 50 tags; orch writes 8 beside them

    def list_notes(self, infra: Infra, machine: Machine) -> list[str]:
        """Return a note for a type that the table does not have, and for one whose price is not all that it costs."""
        if machine.name.startswith("t3."):
            return [f"{machine.name}: AWS bills extra for load above its baseline, 20 to 40 % of each vCPU"]
        if machine.listed:
            return []
        unknown = "its chips, price and EFA interfaces are not known; it gets one network interface"
        return [f"{machine.name} is not in orch's table of types: {unknown}"]

    def find_machine_conflicts(self, choice: Resources) -> Iterator[Issue]:
        """Yield a boot disk that is too small for the image; images of the user's own are not known."""
        machine, size = choice.machine, choice.disk_size
        if size is None or choice.machine_images or not isinstance(machine, Ec2Instance):
            return
        least = least_disk(machine)
        if size < least:
            yield Issue(
                path=("resources", "disk_size"),
                what=f"a boot disk of {size} GB is too small for {machine.name}",
                why=f"the image has {least} GB, and EC2 has gp3 volumes of up to {LARGEST_DISK_GIB:,} GB",
                next_step=f"disk_size: {least} or more",
            )

    def find_conflicts(self, task: Task, choice: Resources) -> Iterator[Issue]:
        """Yield what EC2 cannot give."""
        machine, args = choice.machine, choice.accelerator_args
        if not isinstance(machine, Ec2Instance):
            return
        if not (machine.on_demand or choice.use_spot or args.reservation):
            yield Issue(
                path=("resources", "use_spot"),
                what=f"{machine.name} is not available on demand",
                why="there is no such price for it (EC2 price list, July 2026)",
                next_step=f"use_spot: true, or a capacity block: orch blocks find {machine.name}",
            )
        why = f"infra is {choice.infra}"
        if args.reservation and not choice.infra.zone:
            step = "write infra: aws/REGION/ZONE"
            yield Issue(path=("resources", "infra"), what="a reservation is in one zone", why=why, next_step=step)
        image = choice.machine_images.get("", "")
        if image.startswith("ami-") and not choice.infra.region:
            # EC2 API reference, CopyImage: an AMI is in one region, and a copy has its own id (read 2026-11-26).
            step = f"write infra: aws/REGION, or image_id: {{REGION: {image}}}"
            yield Issue(
                path=("resources", "image_id"), what=f"the region of {image} is not said", why=why, next_step=step
            )
        if read_settings(task).subnets and not choice.infra.region:
            what = "the region of the subnets is not said"
            yield Issue(path=("config", "aws", "subnets"), what=what, why=why, next_step="write infra: aws/REGION")

    def find_label_problem(self, key: str, value: str) -> InvalidValueError | None:
        """Return why a tag is not possible on EC2, or None."""
        if not key.lower().startswith("aws:") and len(key) <= _LONGEST_TAG and len(value) <= _LONGEST_TAG_VALUE:
            return None
        why = f"EC2 allows {_LONGEST_TAG} characters, {_LONGEST_TAG_VALUE} in a value, and keeps aws: for itself"
        return InvalidValueError(f"`{key[:40]}` cannot be a tag on aws", why, "shorten it, or choose another name")


RULES = AwsRules()
