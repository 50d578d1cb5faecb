"""What we know of each slice on Compute Engine: where it is, what it consists of, whose it is. One small file each.

Written before the first request is sent, so that a slice is found again after a crash at any point without a search. It
holds paths of private keys, never a key. Google remains the truth about what exists.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from orchestrator.errors import CloudError
from orchestrator.providers.google.compute.parts import Part, parts
from orchestrator.providers.google.record import KEPT_SECONDS, Phase


@dataclass(frozen=True, slots=True)
class Record:
    """market: "spot", "flex" or "". operations: paths of those that make machines. seen: when it was READY first, 0 =
    never. order: for each rank its host's place among the names. ports: of SSH by place, () for Google's own hosts.
    checked: the hosts were seen to have our keys. asked, changed: seconds since the epoch.
    """

    name: str
    token: str
    project: str
    zone: str
    slices: int
    hosts_per_slice: int
    market: str
    internal_ips: bool
    identity_file: str
    known_hosts: str
    host_public: tuple[str, ...]
    asked: float
    changed: float
    wait_seconds: int = 0
    phase: Phase = Phase.ASKED
    operations: tuple[str, ...] = ()
    seen: float = 0.0
    checked: bool = False
    order: tuple[int, ...] = ()
    ports: tuple[int, ...] = ()

    @property
    def parts(self) -> tuple[Part, ...]:
        return parts(self.name, self.slices, self.hosts_per_slice)

    @property
    def region(self) -> str:
        return self.zone.rpartition("-")[0]

    def machine(self, part: Part) -> str:
        """Path of the instance or the group."""
        kind = "instanceGroupManagers" if part.grouped else "instances"
        return f"projects/{self.project}/zones/{self.zone}/{kind}/{part.name}"

    def instance(self, name: str) -> str:
        return f"projects/{self.project}/zones/{self.zone}/instances/{name}"

    @property
    def machines(self) -> tuple[str, ...]:
        return tuple(self.machine(part) for part in self.parts)

    @property
    def rest(self) -> tuple[str, ...]:
        """Paths of templates and policies, in the order in which they can be deleted."""
        grouped = [part.name for part in self.parts if part.grouped]
        templates = [f"projects/{self.project}/global/instanceTemplates/{name}" for name in grouped]
        policies = [f"projects/{self.project}/regions/{self.region}/resourcePolicies/{name}" for name in grouped]
        return (*templates, *policies)


class Records:
    """The files below <state>/google-compute. Raises CloudError when they cannot be read or written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str) -> Record | None:
        path = self._path(name)
        try:
            fields = cast(dict[str, Any], json.loads(path.read_text(encoding="utf-8")))
            fields |= {key: tuple(fields[key]) for key in ("host_public", "operations", "order", "ports")}
            fields["phase"] = Phase(fields["phase"])
            return Record(**fields)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CloudError(f"the record of '{name}' cannot be read", str(error), f"see {path}") from error

    def write(self, record: Record, phase: Phase | None = None, **changes: Any) -> Record:
        """The record as it was written, whole or not at all. changes: of other fields."""
        fields: Mapping[str, Any] = {"phase": phase or record.phase, "changed": time.time(), **changes}
        changed = replace(record, **fields)
        path = self._path(record.name)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(asdict(changed), file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError as error:
            raise CloudError(f"the record of '{record.name}' cannot be written", str(error), f"see {path}") from error
        return changed

    def projects(self) -> set[str]:
        """In which something may live that was asked for here."""
        return {record.project for record in self._all() if record.phase is not Phase.REFUSED}

    def sweep(self) -> None:
        """Drop what ended, or was refused, long ago."""
        for record in self._all():
            if record.phase in (Phase.ENDING, Phase.REFUSED) and time.time() - record.changed > KEPT_SECONDS:
                self._path(record.name).unlink(missing_ok=True)

    def _all(self) -> list[Record]:
        try:
            names = [path.stem for path in sorted(self._folder.iterdir()) if path.suffix == ".json"]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise CloudError(
                "the records of Compute Engine cannot be read", str(error), f"see {self._folder}"
            ) from error
        return [record for name in names if (record := self.read(name)) is not None]

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"
