"""What this computer knows of slices: one small JSON file each, in one folder, readable by the user only."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import Field, asdict
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast

from orchestrator.errors import CloudError
from orchestrator.private_files import make_private_folder
from orchestrator.providers.files import write_whole


class Record(Protocol):
    """A frozen dataclass of JSON values; `name` is that of the slice, and so of the file."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def name(self) -> str: ...


R = TypeVar("R", bound=Record)


class RecordFiles(ABC, Generic[R]):
    """The record files of one provider.

    Attributes:
        one: Template of the file's name in errors; {} stands for the slice's name.
        every: The folder's name in errors.

    Raises:
        CloudError: The files cannot be read or written.
    """

    one: ClassVar[str] = "the record of '{}'"
    every: ClassVar[str] = "the records"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @staticmethod
    @abstractmethod
    def parsed(fields: dict[str, Any]) -> R:
        """Return the record of these fields, as JSON has them.

        Raises:
            ValueError: Or KeyError or TypeError, when they are not those of a record.
        """

    def read(self, name: str) -> R | None:
        path = self.path(name)
        try:
            return self.parsed(cast(dict[str, Any], json.loads(path.read_text(encoding="utf-8"))))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CloudError(f"{self.one.format(name)} cannot be read", str(error), f"see {path}") from error

    def put(self, record: R) -> R:
        """Write a record completely or not at all."""
        path = self.path(record.name)
        try:
            make_private_folder(path.parent)
            write_whole(path, json.dumps(asdict(record), indent=1))
        except OSError as error:
            raise CloudError(f"{self.one.format(record.name)} cannot be written", str(error), f"see {path}") from error
        return record

    def drop(self, name: str) -> None:
        """Delete a record, if there is one."""
        path = self.path(name)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise CloudError(f"{self.one.format(name)} cannot be deleted", str(error), f"see {path}") from error

    def all(self) -> list[R]:
        """Return all records by name."""
        try:  # not glob(): it takes a folder that cannot be read for an empty one
            names = [path.stem for path in sorted(self._folder.iterdir()) if path.suffix == ".json"]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise CloudError(f"{self.every} cannot be read", str(error), f"see {self._folder}") from error
        return [record for name in names if (record := self.read(name)) is not None]

    def path(self, name: str, ending: str = ".json") -> Path:
        return self._folder / f"{name}{ending}"
