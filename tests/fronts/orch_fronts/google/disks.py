"""Disks of a node: the one it boots from, and those that are attached to it. Raises Refusal throughout."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from orch_fronts.google.status import FAILED_PRECONDITION, Refusal, invalid
from orch_fronts.google.visit import Visit

IMAGE_GIB = 100  # what every TPU VM boots from, if nothing else is asked for
_PATH = re.compile(r"projects/[^/]+/(?:zones/(?P<zone>[^/]+)|regions/(?P<region>[^/]+))/disks/[^/]+")


def check(visit: Visit, zone: str, hosts: int, node: Mapping[str, Any]) -> None:
    """hosts: how many machines get these disks, of all slices of the request."""
    _check_boot(node)
    wanted: list[Mapping[str, Any]] = [*node.get("dataDisks", ())]
    for disk in wanted:
        found = _PATH.fullmatch(str(disk.get("sourceDisk", "")))
        if found is None:
            raise invalid("node.data_disks", f"{disk.get('sourceDisk')!r} is not the full path of a disk")
        if zone != found["zone"] and zone.rpartition("-")[0] != found["region"]:
            raise invalid("node.data_disks", f"{disk['sourceDisk']} is not in zone {zone}")
        if _written(disk) and hosts > 1:
            words = f"{disk['sourceDisk']} cannot be attached to {hosts} machines in read-write mode"
            raise invalid("node.data_disks", words)
    _check_free(visit, wanted)


def _check_boot(node: Mapping[str, Any]) -> None:
    """Rule boot_disk_is_not_smaller_than_its_image."""
    size = str(node.get("bootDiskConfig", {}).get("diskSizeGb", IMAGE_GIB))
    if not size.isdecimal() or int(size) < IMAGE_GIB:
        raise invalid("node.boot_disk_config", f"diskSizeGb {size!r} is not {IMAGE_GIB} or more, the size of the image")


def _check_free(visit: Visit, wanted: Iterable[Mapping[str, Any]]) -> None:
    """Rule disk_is_written_by_one_machine."""
    held = [disk for look in visit.cloud.live() for disk in look.extra.get("node", {}).get("dataDisks", ())]
    for disk in wanted:
        same = [other for other in held if other["sourceDisk"] == disk["sourceDisk"]]
        if same and any(_written(one) for one in (disk, *same)):
            raise Refusal(FAILED_PRECONDITION, f"{disk['sourceDisk']} is attached to another machine")


def _written(disk: Mapping[str, Any]) -> bool:
    return disk.get("mode") != "READ_ONLY"
