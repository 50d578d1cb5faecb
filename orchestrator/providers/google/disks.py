"""Disks that exist already and are attached to every host of a slice. Pure.

A disk that is written is attached to one machine at most; one that is only read to many (Cloud TPU documentation,
"Attach durable block storage to a TPU VM", 2025).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from orchestrator.errors import UserError
from orchestrator.values import Text

_NAME = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
_PATH = re.compile(r"projects/[a-z0-9.:-]+/(?:zones|regions)/[a-z0-9-]+/disks/[a-z][-a-z0-9]{0,62}")
_READ_ONLY = {"ro": True, "rw": False}


@dataclass(frozen=True, slots=True)
class DataDisk:
    """name: of a disk in the slice's own project and zone, or its full path."""

    name: str
    read_only: bool

    @property
    def mode(self) -> str:
        """The word of the API."""
        return "READ_ONLY" if self.read_only else "READ_WRITE"

    def path(self, project: Text, zone: str) -> Text:
        if "/" in self.name:
            return Text.of(self.name)
        return Text.of("projects/", project, f"/zones/{zone}/disks/{self.name}")


def parse(words: str, hosts: int) -> tuple[DataDisk, ...]:
    """`NAME[:ro]` or `projects/…/disks/NAME[:ro]`, with commas between. Raises UserError."""
    found = tuple(_parse(word.strip()) for word in words.split(",") if word.strip())
    for disk in found:
        if hosts > 1 and not disk.read_only:
            raise UserError(
                f"the disk '{disk.name}' cannot be written by {hosts} hosts",
                "a disk that is attached to several machines can only be read there",
                f"data_disks: [{disk.name}:ro]",
            )
    return found


def _parse(word: str) -> DataDisk:
    name, mark, mode = word.rpartition(":")
    if not mark or mode not in _READ_ONLY:  # the project in a path may hold a colon
        name, mode = word, "rw"
    if not _NAME.fullmatch(name) and not _PATH.fullmatch(name):
        raise UserError(
            f"'{word}' is not a disk",
            "a disk is NAME or projects/PROJECT/zones/ZONE/disks/NAME, with :ro behind it to read it only",
            "gcloud compute disks list",
        )
    return DataDisk(name, _READ_ONLY[mode])
