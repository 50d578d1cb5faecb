"""Imports a Hugging Face Llama folder as a checkpoint of weights alone, at step 0, from which a run can begin."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from trainer.checkpoint import llama
from trainer.checkpoint.dtypes import decode_values
from trainer.checkpoint.epoch import utc_timestamp
from trainer.checkpoint.layout import part_name, run_folder
from trainer.checkpoint.manifest import CorruptCheckpoint, Manifest, Part, StepFolder
from trainer.checkpoint.snapshot import PART_BYTES, HeaderEntry, PartBuffer, group_pieces, parse_header
from trainer.checkpoint.store import open_store
from trainer.checkpoint.writer import publish_manifest, upload_part
from trainer.config import Config, ModelConfig
from trainer.errors import ConfigError, StorageError
from trainer.options import flatten_config
from trainer.shape.architecture import Parameter, count_parameters
from trainer.shape.box import Box, TensorRegion

_HEADER_LIMIT = 100 << 20  # bytes; the same as the safetensors library's


@dataclass(frozen=True, slots=True)
class _Source:
    """The file and the entry that hold a tensor's values."""

    file: Path
    entry: HeaderEntry


def import_weights(folder: Path, place: str, report: Callable[[str], None], part_bytes: int = PART_BYTES) -> None:
    """Write the checkpoint.

    Args:
        folder: With config.json and safetensors files.
        place: Where the checkpoint is written; it must not hold any.
        report: Receives what was written and how to train from it.
        part_bytes: Size at which a part is closed.

    Raises:
        ConfigError: The folder is no Llama that this trainer can train, or the place holds checkpoints.
        StorageError: A file cannot be read or written.
    """
    settings = _read_json(folder / "config.json")
    model = llama.parse_hf_config(settings)
    names = llama.map_parameter_names(model)
    sources = _sources(folder)
    _check(names, sources, model)
    store = open_store(place, create=True)
    if any(StepFolder.parse(name) is not None for name in store.list_folders()):
        raise ConfigError(f"{store.uri} already holds checkpoints: name another place")
    theirs = {f"model/{parameter.name}": name for name, parameter in names.items()}
    pieces = [TensorRegion(f"model/{p.name}", p.shape, Box.whole(p.shape)) for p in names.values()]
    parts, folder_of_weights = list[Part](), StepFolder(0)
    for index, group in enumerate(group_pieces(pieces, part_bytes)):
        buffer = PartBuffer(group)
        for piece, view in buffer.views.items():
            view.reshape(-1)[:] = _read(sources[theirs[piece.name]])
        parts.append(upload_part(store, folder_of_weights.name, part_name(0, index), buffer))
    run_id = run_folder(store.uri).rpartition("/")[2] if store.uri.endswith("/checkpoints") else "import"
    manifest = Manifest(
        step=0,
        run_id=run_id,
        attempt=1,
        world=1,
        time=utc_timestamp(),
        weights_only=True,
        parts=tuple(parts),
        data=None,
        config=flatten_config(replace(Config(), model=model)),
        folder=folder_of_weights.name,
    )
    failure = publish_manifest(store, manifest, None, report)
    if failure:
        raise StorageError(failure)
    report(f"{count_parameters(model):,} weights in {store.uri}/{folder_of_weights.name}; to train from them:")
    report(f"  python -m trainer checkpoint.start={store.uri}/{folder_of_weights.name} {_words(model)} ...")
    if (folder / "tokenizer.json").is_file():
        report(f"  with data of the same tokens: prepare SOURCE FOLDER tokenizer={folder / 'tokenizer.json'}")


def _words(model: ModelConfig) -> str:
    """Return the key=value words that configure this model."""
    table, usual = flatten_config(replace(Config(), model=model)), flatten_config(Config())
    keys = [key for key in table if key.startswith("model.") and table[key] != usual[key]]
    return " ".join(f"{key}={str(table[key]).lower()}" for key in keys)


def _sources(folder: Path) -> dict[str, _Source]:
    """Return where each tensor is, by its name, over all files.

    Raises:
        StorageError: A file is missing or no safetensors file.
    """
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        named: Any = _read_json(index).get("weight_map")
        if not isinstance(named, dict):
            raise StorageError(f"{index}: weight_map does not name the file of each tensor")
        names = cast("dict[str, Any]", named).values()
        files = [folder / name for name in sorted({str(name) for name in names})]
    else:
        files = [folder / "model.safetensors"]
    return {entry.key: _Source(file, entry) for file in files for entry in _entries(file)}


def _entries(file: Path) -> Sequence[HeaderEntry]:
    try:
        with file.open("rb") as opened:
            length = opened.read(8)
            size = int.from_bytes(length, "little")
            if len(length) < 8 or size > _HEADER_LIMIT:
                raise StorageError(f"{file}: not a safetensors file")
            return parse_header(length + opened.read(size))
    except OSError as error:
        raise StorageError(f"{file} cannot be read: {error.strerror}") from error
    except CorruptCheckpoint as error:
        raise StorageError(f"{file}: {error}") from error


def _check(names: Mapping[str, Parameter], sources: Mapping[str, _Source], model: ModelConfig) -> None:
    """Check that the tensors are those of the model, in its shapes.

    Raises:
        ConfigError: A tensor is missing, unknown or of another shape.
    """
    for theirs, parameter in names.items():
        if theirs not in sources:
            raise ConfigError(f"the folder has no tensor {theirs}, which config.json needs")
        if sources[theirs].entry.shape != parameter.shape:
            found, needed = list(sources[theirs].entry.shape), list(parameter.shape)
            raise ConfigError(f"{theirs} has the shape {found}, but config.json needs {needed}")
    # A tied head may be stored all the same; old files hold the rotary angles, which follow from the settings.
    unknown = [
        name
        for name in sources
        if name not in names
        and not name.endswith("rotary_emb.inv_freq")
        and not (model.tied and name == "lm_head.weight")
    ]
    if unknown:
        raise ConfigError(f"the folder has tensors that this trainer's Llama lacks, such as {unknown[0]}")


def _read(source: _Source) -> Any:
    """Return a tensor's values, flat and as float32."""
    entry = source.entry
    try:
        with source.file.open("rb") as file:
            file.seek(entry.start)
            data = file.read(entry.end - entry.start)
        if len(data) != entry.end - entry.start:
            raise StorageError(f"{source.file} ends too early: {entry.key} is incomplete")
        return decode_values(memoryview(data), entry.dtype)
    except OSError as error:
        raise StorageError(f"{source.file} cannot be read: {error.strerror}") from error
    except (CorruptCheckpoint, ValueError) as error:
        raise StorageError(f"{source.file}: {entry.key}: {error}") from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = dict(json.loads(path.read_bytes()))
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        raise StorageError(f"{path} is not a JSON object: {error}") from error
    return content
