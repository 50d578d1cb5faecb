"""Reads a folder of Hugging Face: its config.json, and where each tensor is. The folder may come from anyone."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from trainer.checkpoint.dtypes import WIDTH, decode_values
from trainer.checkpoint.manifest import CorruptCheckpoint
from trainer.checkpoint.snapshot import HeaderEntry, parse_header
from trainer.engine import FloatArray
from trainer.errors import ConfigError

_PICKLES = (".bin", ".pt", ".pth", ".ckpt")
_HEADER_LIMIT = 32 << 20  # bytes; 100,000 tensors have 15 MB
_JSON_LIMIT = 32 << 20  # bytes of config.json, and of the index of 100,000 tensors


@dataclass(frozen=True, slots=True)
class Tensor:
    """The file and the entry that hold a tensor's values."""

    file: Path
    entry: HeaderEntry

    def read_values(self) -> FloatArray:
        """Return the values, flat and as float32.

        Raises:
            ConfigError: They cannot be read.
        """
        entry = self.entry
        try:
            with self.file.open("rb") as file:
                file.seek(entry.start)
                data = file.read(entry.end - entry.start)
            return decode_values(memoryview(data), entry.dtype)
        except OSError as error:
            raise ConfigError(f"{self.file} cannot be read: {error.strerror}") from error
        except (CorruptCheckpoint, ValueError) as error:
            raise ConfigError(f"{self.file}: {entry.key}: {error}") from error


def find_tensors(folder: Path) -> dict[str, Tensor]:
    """Return where each tensor is, by its name, over all files.

    Raises:
        ConfigError: A file is missing or no safetensors file.
    """
    index = folder / "model.safetensors.index.json"
    if not index.is_file() and not (folder / "model.safetensors").exists():
        _refuse_other_formats(folder)
    files = _list_files(index) if index.is_file() else [folder / "model.safetensors"]
    return {entry.key: Tensor(file, entry) for file in files for entry in _read_entries(file)}


def _refuse_other_formats(folder: Path) -> None:
    """Raise ConfigError that names the way out of weights in files of another kind."""
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        raise ConfigError(f"{folder} cannot be read: {error.strerror}") from error
    found = next((name for name in names if name.endswith(_PICKLES)), None)
    if found is not None:
        raise ConfigError(
            f"{folder} has {found} and no safetensors file: a pickle can run any program, so it is never loaded here; "
            "where you trust it, let transformers convert it: "
            f"AutoModelForCausalLM.from_pretrained({str(folder)!r}).save_pretrained(NEW_FOLDER)"
        )
    if single := next((name for name in names if name.endswith(".safetensors")), None):
        raise ConfigError(f"{folder} has {single}, but no model.safetensors and no index of several: name it so")


def read_json_object(path: Path) -> dict[str, Any]:
    """Return the content of a file of the folder.

    Raises:
        ConfigError: It cannot be read, or is no JSON object.
    """
    _require_file(path)
    try:
        with path.open("rb") as file:
            text = file.read(_JSON_LIMIT + 1)
        if len(text) > _JSON_LIMIT:
            raise ConfigError(f"{path} has more than {_JSON_LIMIT >> 20} MiB: it is no file of a model's settings")
        content: Any = json.loads(text)
        if not isinstance(content, dict):
            raise TypeError(f"it is a {type(content).__name__}")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path} is not a JSON object: {error}") from error
    return cast("dict[str, Any]", content)


def _list_files(index: Path) -> list[Path]:
    named: Any = read_json_object(index).get("weight_map")
    if not isinstance(named, dict):
        raise ConfigError(f"{index}: weight_map does not name the file of each tensor")
    names = sorted({str(name) for name in cast("dict[str, Any]", named).values()})
    for name in names:
        if Path(name).name != name or "\0" in name:
            raise ConfigError(f"{index}: weight_map names {name!r}, which is not a file of its folder")
    return [index.parent / name for name in names]


def _read_entries(file: Path) -> Sequence[HeaderEntry]:
    _require_file(file)
    try:
        with file.open("rb") as opened:
            length = opened.read(8)
            size = int.from_bytes(length, "little")
            if len(length) < 8 or size > _HEADER_LIMIT:
                raise ConfigError(f"{file}: not a safetensors file")
            entries = parse_header(length + opened.read(size))
            whole = file.stat().st_size
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
    except CorruptCheckpoint as error:
        raise ConfigError(f"{file}: {error}") from error
    for entry in entries:
        _check_extent(file, entry, 8 + size, whole)
    return entries


def _check_extent(file: Path, entry: HeaderEntry, first: int, whole: int) -> None:
    """Check that an entry's bytes are values in the file, and as many as its shape has."""
    if entry.end > whole:
        raise ConfigError(f"{file} ends too early: {entry.key} is incomplete")
    needed = math.prod(entry.shape) * WIDTH.get(entry.dtype, 0)
    if entry.start < first or (entry.dtype in WIDTH and entry.end - entry.start != needed):
        raise ConfigError(f"{file}: {entry.key} does not have the bytes of its shape {list(entry.shape)}")


def _require_file(path: Path) -> None:
    """Refuse what is not there, and what would block or never end, such as a pipe or a device."""
    if not path.exists():
        raise ConfigError(f"{path}: no such file: name a folder as transformers saves a model")
    if not path.is_file():
        raise ConfigError(f"{path} is not a file")
