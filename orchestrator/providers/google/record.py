"""What this computer knows of a slice it asked for: where it is, whose it is, its keys. One small file per slice.

Written before the request is sent, so that a slice is found again after a crash at any point without a search. It holds
paths of private keys, never a key. Google remains the truth about whether the slice exists.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

from orchestrator.errors import CloudError
from orchestrator.providers.google.choices import Api, Kind

KEPT_SECONDS = 7 * 24 * 3600.0  # how long a slice that is gone is still looked up where it was


class Phase(StrEnum):
    ASKED = "asked"  # whether Google acted is not known
    ACCEPTED = "accepted"
    ENDING = "ending"
    REFUSED = "refused"  # Google said no: nothing was made


@dataclass(frozen=True, slots=True)
class Record:
    """operation: path of the long-running operation of the create. asked, changed: seconds since the epoch.

    api: the version that was asked. valid_seconds: how long a queued request may wait; run_seconds: how long its
    machines may run; 0 = without end, and in records of older versions.

    Of what was adopted: node and queued are the ids that its maker gave it, made says when the queued resource was
    made (it carries no label of ours), and user is the account to log in with. "" else.
    """

    name: str
    token: str
    project: str
    zone: str
    kind: Kind
    slices: int
    hosts_per_slice: int
    internal_ips: bool
    identity_file: str
    known_hosts: str
    host_public: tuple[str, ...]
    asked: float
    changed: float
    phase: Phase = Phase.ASKED
    operation: str = ""
    api: Api = "v2"
    valid_seconds: int = 0
    run_seconds: int = 0
    node: str = ""
    queued: str = ""
    made: str = ""
    user: str = ""

    @property
    def adopted(self) -> bool:
        return bool(self.node)

    @property
    def parent(self) -> str:
        return f"projects/{self.project}/locations/{self.zone}"

    @property
    def queued_path(self) -> str:
        return f"{self.parent}/queuedResources/{self.queued or self.name}"

    @property
    def node_paths(self) -> tuple[str, ...]:
        """In slice order. Of a multislice request they are <prefix>-0, <prefix>-1 ... (TPU API v2, reference)."""
        if self.slices == 1:
            return (f"{self.parent}/nodes/{self.node or self.name}",)
        return tuple(f"{self.parent}/nodes/{self.name}-{at}" for at in range(self.slices))


class Records:
    """The files below <state>/google. Raises CloudError when they cannot be read or written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str) -> Record | None:
        path = self._path(name)
        try:
            fields = cast(dict[str, Any], json.loads(path.read_text(encoding="utf-8")))
            fields |= {"phase": Phase(fields["phase"]), "host_public": tuple(fields["host_public"])}
            return Record(**fields)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CloudError(f"the record of '{name}' cannot be read", str(error), f"see {path}") from error

    def write(self, record: Record, phase: Phase, operation: str = "") -> Record:
        """The record as it was written, whole or not at all."""
        changed = replace(record, phase=phase, operation=operation or record.operation, changed=time.time())
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

    def places(self) -> set[tuple[str, str]]:
        """(project, zone) in which something may live that was asked for here."""
        return {(record.project, record.zone) for record in self._all() if record.phase is not Phase.REFUSED}

    def is_checked(self, name: str) -> bool:
        """Whether the hosts of this slice were seen to have our keys."""
        return self._path(name, ".checked").exists()

    def check(self, name: str) -> None:
        self._path(name, ".checked").touch()

    def uncheck(self, name: str) -> None:
        self._path(name, ".checked").unlink(missing_ok=True)

    def sweep(self) -> None:
        """Drop what ended, or was refused, long ago."""
        for record in self._all():
            if record.phase in (Phase.ENDING, Phase.REFUSED) and time.time() - record.changed > KEPT_SECONDS:
                self.uncheck(record.name)
                self._path(record.name).unlink(missing_ok=True)

    def _all(self) -> list[Record]:
        try:
            names = [path.stem for path in sorted(self._folder.iterdir()) if path.suffix == ".json"]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise CloudError(
                "the records of Google's TPUs cannot be read", str(error), f"see {self._folder}"
            ) from error
        return [record for name in names if (record := self.read(name)) is not None]

    def _path(self, name: str, ending: str = ".json") -> Path:
        return self._folder / f"{name}{ending}"
