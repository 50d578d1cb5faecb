"""What an installation knows of slices: one small JSON text each, in the store, or in files of one folder for tests."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import Field, asdict
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar, cast

from orchestrator.errors import CloudError, UserError
from orchestrator.paths import from_portable, to_portable
from orchestrator.private_files import make_private_folder, write_whole

_PATHS = ("identity_file", "known_hosts")  # of this computer: in the record they are relative to its state folder
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def check_slice_name(name: str) -> str:
    """Return the name of a slice, by which its record and its folder are named.

    Raises:
        UserError: It is no such name.
    """
    if not _NAME.fullmatch(name):
        raise UserError(
            f"'{name}' cannot name a slice",
            "allowed: up to 63 lower-case letters, digits and inner hyphens",
            "take another name: -c NAME",
        )
    return name


class Records(Protocol):
    """The records of one kind by name, as JSON text. Its methods raise OSError or OrchError.

    Attributes:
        folder: For what only this computer knows beside the records.
    """

    folder: Path

    def read(self, name: str) -> str | None: ...

    def put(self, name: str, text: str) -> None: ...

    def drop(self, name: str) -> None: ...

    def names(self) -> list[str]: ...

    def place(self, name: str) -> str:
        """Return where a person finds a record."""
        ...

    def beside(self, kind: str) -> Records:
        """Return the records of another kind of the same provider."""
        ...


RecordSource: TypeAlias = Callable[[Path], Records]  # the records of the kind that a folder is named after


class FolderRecords:
    """Records as files of one folder, readable by the user only."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, name: str) -> str | None:
        try:
            return (self.folder / f"{name}.json").read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def put(self, name: str, text: str) -> None:
        make_private_folder(self.folder)
        write_whole(self.folder / f"{name}.json", text)

    def drop(self, name: str) -> None:
        (self.folder / f"{name}.json").unlink(missing_ok=True)

    def names(self) -> list[str]:
        try:  # not glob(): it takes a folder that cannot be read for an empty one
            return [path.stem for path in sorted(self.folder.iterdir()) if path.suffix == ".json"]
        except FileNotFoundError:
            return []

    def place(self, name: str) -> str:
        return str(self.folder / f"{name}.json")

    def beside(self, kind: str) -> FolderRecords:
        return FolderRecords(self.folder.with_name(f"{self.folder.name}-{kind}"))


class MemoryRecords:
    """Records that end with the process: for machines that are found without any."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._texts: dict[str, str] = {}

    def read(self, name: str) -> str | None:
        return self._texts.get(name)

    def put(self, name: str, text: str) -> None:
        self._texts[name] = text

    def drop(self, name: str) -> None:
        self._texts.pop(name, None)

    def names(self) -> list[str]:
        return sorted(self._texts)

    def place(self, name: str) -> str:
        return f"{name}, which only this process knows"

    def beside(self, kind: str) -> MemoryRecords:
        return MemoryRecords(self.folder.with_name(f"{self.folder.name}-{kind}"))


class Record(Protocol):
    """A frozen dataclass of JSON values; `name` is that of the slice."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def name(self) -> str: ...


R = TypeVar("R", bound=Record)


class RecordFiles(ABC, Generic[R]):
    """The records of one provider.

    Attributes:
        one: Template of a record's name in errors; {} stands for the slice's name.
        every: The name of all in errors.

    Raises:
        CloudError: The records cannot be read or written.
    """

    one: ClassVar[str] = "the record of '{}'"
    every: ClassVar[str] = "the records"

    def __init__(self, records: Records | Path) -> None:
        self._records: Records = FolderRecords(records) if isinstance(records, Path) else records

    @classmethod
    @abstractmethod
    def parsed(cls, fields: dict[str, Any]) -> R:
        """Return the record of these fields, as JSON has them.

        Raises:
            ValueError: Or KeyError or TypeError, when they are not those of a record.
        """

    def read(self, name: str) -> R | None:
        try:
            text = self._records.read(name)
            if text is None:
                return None
            fields = cast(dict[str, Any], json.loads(text))
            return self.parsed(
                fields | {key: from_portable(fields[key], self._state) for key in _PATHS if key in fields}
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CloudError(f"{self.one.format(name)} cannot be read", str(error), self._see(name)) from error

    def put(self, record: R) -> R:
        """Write a record completely or not at all."""
        fields = asdict(record)
        fields |= {key: to_portable(fields[key], self._state) for key in _PATHS if key in fields}
        try:
            self._records.put(record.name, json.dumps(fields, indent=1))
        except OSError as error:
            raise CloudError(
                f"{self.one.format(record.name)} cannot be written", str(error), self._see(record.name)
            ) from error
        return record

    def drop(self, name: str) -> None:
        """Delete a record, if there is one."""
        try:
            self._records.drop(name)
        except OSError as error:
            raise CloudError(f"{self.one.format(name)} cannot be deleted", str(error), self._see(name)) from error

    def all(self) -> list[R]:
        """Return all records by name."""
        try:
            names = self._records.names()
        except OSError as error:
            raise CloudError(f"{self.every} cannot be read", str(error), f"see {self._place}") from error
        return [record for name in names if (record := self.read(name)) is not None]

    @property
    def used(self) -> bool:
        """Whether there are any, or were some here."""
        return self._place.is_dir() or bool(self._records.names())

    def local_file(self, name: str, ending: str) -> Path:
        """Return the path of what only this computer knows of a slice."""
        make_private_folder(self._place)
        return self._place / f"{name}{ending}"

    def _see(self, name: str) -> str:
        return f"see {self._records.place(name)}"

    @property
    def _place(self) -> Path:
        return self._records.folder

    @property
    def _state(self) -> Path:
        return self._place.parent
