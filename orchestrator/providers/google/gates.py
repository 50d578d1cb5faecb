"""What this computer knows of the ways to a slice's hosts: rules that were made, a key that was let in. Small files.

Written before anything is made, so that what is left behind is found again after a crash at any point.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from orchestrator.errors import CloudError
from orchestrator.providers.google.access import Access, Way


@dataclass(frozen=True, slots=True)
class Gate:
    """The way to one slice's hosts. rules: targets of the requests that take its firewall rules away.

    opened: whether the slice was accepted. user, os_key: of OS Login, "" without it.
    """

    name: str
    token: str
    project: str
    zone: str
    way: Way
    jump: str
    rules: tuple[str, ...]
    opened: bool = False
    user: str = ""
    os_key: str = ""

    @property
    def access(self) -> Access:
        return Access(self.way, self.jump)


class Gates:
    """Raises CloudError when the files cannot be read or written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def used(self) -> bool:
        """Whether a rule was ever made from here."""
        return self._folder.is_dir()

    def read(self, name: str) -> Gate | None:
        path = self._path(name)
        try:
            fields = cast(dict[str, Any], json.loads(path.read_text(encoding="utf-8")))
            fields |= {"way": Way(fields["way"]), "rules": tuple(fields["rules"])}
            return Gate(**fields)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CloudError(f"how '{name}' is reached cannot be read", str(error), f"see {path}") from error

    def write(self, gate: Gate) -> Gate:
        """Whole or not at all."""
        path = self._path(gate.name)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                json.dump(asdict(gate), file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError as error:
            raise CloudError(f"how '{gate.name}' is reached cannot be written", str(error), f"see {path}") from error
        return gate

    def drop(self, name: str) -> None:
        self._path(name).unlink(missing_ok=True)

    def all(self) -> list[Gate]:
        try:
            names = [path.stem for path in sorted(self._folder.iterdir()) if path.suffix == ".json"]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise CloudError("the ways to Google's hosts cannot be read", str(error), f"see {self._folder}") from error
        return [gate for name in names if (gate := self.read(name)) is not None]

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"
