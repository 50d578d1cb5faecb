"""What is written of a backup: the note in the store, and the head beside the copy. Needs the standard library only."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, cast

from orchestrator.errors import StorageError
from orchestrator.store.version import EARLIER, EARLIER_COMMIT, SCHEMA_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupNote:
    """The last backup of a store.

    Attributes:
        uri: the folder in the bucket.
        at: when, in epoch seconds.
        seq: the newest event in it.
    """

    uri: str
    at: float
    seq: int

    @classmethod
    def parse(cls, text: str) -> BackupNote | None:
        """Return the note that `to_json` wrote, None for another text."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            return None

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupHead:
    """What lies beside a backup, as `head.json`.

    Attributes:
        file: the name of the copy beside it.
        sha256: of the copy.
        installation: of the store; incarnation, seq and hash are those of its newest event.
        version: of the tables.
        time: when it was made, in epoch seconds.
    """

    file: str
    sha256: str
    installation: str
    incarnation: int
    seq: int
    hash: str
    version: int
    time: float

    @property
    def order(self) -> tuple[int, int]:
        """The place among the backups of one installation: the higher is the newer."""
        return (self.incarnation, self.seq)

    @classmethod
    def parse(cls, data: bytes, place: str) -> BackupHead:
        """Return the head that `to_json` wrote. Raises StorageError for anything else."""
        try:
            fields = cast(dict[str, Any], json.loads(data))
            if EARLIER in fields:
                raise earlier_backup_error(f"the old version {fields[EARLIER]}")
            head = cls(**{name: _typed(fields[name], kind) for name, kind in _FIELDS.items()})
            if not 0 <= head.time < _LATEST:
                raise ValueError(f"{head.time} is not a time")
        except (ValueError, TypeError, KeyError) as error:
            step = "orch storage ls -r   lists what is there; a newer orch may have written it"
            raise StorageError(f"{place} is not the head of a backup", str(error), step) from error
        return head

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True, indent=1).encode()


def earlier_backup_error(version: str) -> StorageError:
    """Return the error for a backup from before version 1.

    Args:
        version: Of its tables, as `describe_earlier` writes it.
    """
    return StorageError(
        f"the backup has tables of {version}, and this orch uses version {SCHEMA_VERSION}: nothing is restored",
        "",
        f"restore it with orch of commit {EARLIER_COMMIT}",
    )


_LATEST = 253402300800.0  # the year 10000, which no calendar of Python has

_FIELDS: dict[str, type] = {
    "file": str, "sha256": str, "installation": str, "incarnation": int, "seq": int, "hash": str, "version": int,
    "time": float,
}  # fmt: skip


def _typed(value: object, kind: type) -> Any:
    if not isinstance(value, (int, float) if kind is float else kind):
        raise TypeError(f"{value!r} is not a {kind.__name__}")
    return value
