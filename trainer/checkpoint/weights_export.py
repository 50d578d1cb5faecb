"""Exports a checkpoint for Hugging Face's libraries: weights or adapters, with the files of model and tokenizer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from trainer.checkpoint import families, reader
from trainer.checkpoint.adapters_export import (
    SETTINGS_FILE,
    WEIGHTS_FILE,
    make_adapter_config,
    map_adapter_names,
    read_merged_tensor,
    read_tensor,
)
from trainer.checkpoint.description import CONFIG
from trainer.checkpoint.dtypes import SAFETENSORS, TORCH, WIDTH, FileDType, encode_values
from trainer.checkpoint.exported_description import find_exported_description
from trainer.checkpoint.exported_settings import ExportedModel, make_settings
from trainer.checkpoint.family_names import FileTensor, map_parameter_names
from trainer.checkpoint.layout import split_uri
from trainer.checkpoint.manifest import StepFolder
from trainer.checkpoint.reader import Checkpoint
from trainer.checkpoint.regions import Contents, open_contents
from trainer.checkpoint.restore_plan import read_lora_config, read_model_config
from trainer.checkpoint.store import open_store
from trainer.config import LoraConfig, ModelConfig
from trainer.engine import FloatArray
from trainer.environment import World
from trainer.errors import ConfigError, StorageError
from trainer.shape.architecture import Parameter
from trainer.tcp_team import SingleProcessTeam

SHARD_BYTES = 5_000_000_000
"""Above it the weights are divided over several files with an index, as transformers does by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """What to export, and where to.

    Attributes:
        place: A folder of checkpoints, or of one step.
        folder: Created; complete or absent.
        dtype: Of the written weights.
        average: Export the averaged weights.
        adapter: Export the LoRA adapters alone, as peft reads them; else they are merged into the weights.
        tokenizer: Path of a tokenizer.json or of its folder; "": that of the checkpoint.
        shard_bytes: Size above which the weights are split into several files.
    """

    place: str
    folder: Path
    dtype: FileDType = "fp32"
    average: bool = False
    adapter: bool = False
    tokenizer: str = ""
    shard_bytes: int = SHARD_BYTES


def export_weights(request: ExportRequest, report: Callable[[str], None]) -> None:
    """Write the folder, complete or not at all.

    Raises:
        ConfigError: The folder exists, or the checkpoint lacks what is requested.
        StorageError: The checkpoint cannot be read, or the folder cannot be written.
    """
    if request.folder.exists() and (not request.folder.is_dir() or any(request.folder.iterdir())):
        raise ConfigError(f"{request.folder} exists: name a new folder")
    checkpoint = find_checkpoint(request.place, report)
    manifest = checkpoint.manifest
    model = read_model_config(manifest.config)
    lora = read_lora_config(manifest.config)
    if request.adapter and not lora.rank:
        raise ConfigError(f"checkpoint {manifest.step} has no adapters: it was made with lora.rank=0")
    families.find_family(model)  # raises for a model that no base for the adapters could have, too
    contents = open_contents(checkpoint.store, manifest)
    kind = "average" if request.average else "model"
    if not any(name.startswith(f"{kind}/") for name in contents.tensors):
        raise ConfigError(f"checkpoint {manifest.step} has no averaged weights: it was made with optim.ema=0")
    description = find_exported_description(checkpoint, model, request.tokenizer, report)
    untrained = manifest.data is None and CONFIG in description.files  # an import has no rows
    seq_len = 0 if untrained else int(manifest.config.get("seq_len", 2048))
    exported = ExportedModel(description=description, model=model, seq_len=seq_len, dtype=TORCH[request.dtype])
    staged = request.folder.with_name(f".{request.folder.name}.part")
    try:
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir(parents=True)
        if request.adapter:
            size = _write_adapters(staged, contents, kind, model, lora, request)
        else:
            size = _write_weights(staged, contents, kind, model, lora, request)
        for name, text in make_settings(exported, adapter=request.adapter).items():
            (staged / name).write_bytes(text.encode())
        if request.folder.exists():
            request.folder.rmdir()
        staged.rename(request.folder)
    except OSError as error:
        raise StorageError(f"{request.folder} cannot be written: {error.strerror}") from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)  # already renamed unless something failed
    what = ("averaged " if request.average else "") + ("adapters" if request.adapter else "weights")
    report(f"{what} of step {manifest.step} in {request.folder} ({size / 1e6:,.1f} MB, {request.dtype})")


def find_checkpoint(place: str, report: Callable[[str], None]) -> Checkpoint:
    """Return the step that `place` ends with, or the newest intact one.

    Raises:
        StorageError: There is none.
    """
    uri, step = split_uri(place)
    store = open_store(uri)
    folders = store.list_folders()
    if step is None and "checkpoints" in folders and not any(StepFolder.parse(name) is not None for name in folders):
        store = open_store(f"{store.uri}/checkpoints")  # the run's folder was meant
    reasons: list[str] = []
    found = reader.find_newest_checkpoint(store, SingleProcessTeam(World()), reasons.append, up_to=step)
    if step is not None and (found is None or found.manifest.step != step):
        raise StorageError(f"{place}: {reasons[0] if reasons else 'no such checkpoint'}")
    for reason in reasons:
        report(reason)
    if found is None:
        raise StorageError(f"{place}: no intact checkpoint there: name the folder or bucket of a run's checkpoints")
    return found


def _write_adapters(
    folder: Path, contents: Contents, kind: str, model: ModelConfig, lora: LoraConfig, request: ExportRequest
) -> int:
    """Write the adapters and their settings; return the bytes of all values."""
    _write_json(folder / SETTINGS_FILE, make_adapter_config(model, lora))
    shard = [(theirs, FileTensor(parameter=one)) for theirs, one in map_adapter_names(model, lora).items()]
    return _write_file(folder / WEIGHTS_FILE, shard, lambda one: read_tensor(contents, kind, one), request.dtype)


def _write_weights(
    folder: Path, contents: Contents, kind: str, model: ModelConfig, lora: LoraConfig, request: ExportRequest
) -> int:
    """Write the weights; return the bytes of all values."""
    dtype = SAFETENSORS[request.dtype]
    shards = list(_shards(map_parameter_names(model), WIDTH[dtype], request.shard_bytes))
    weight_map: dict[str, str] = {}
    total = 0
    for number, shard in enumerate(shards, 1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors" if len(shards) > 1 else "model.safetensors"
        weight_map |= dict.fromkeys((theirs for theirs, _ in shard), name)
        total += _write_file(
            folder / name,
            shard,
            lambda one: read_merged_tensor(contents, kind, one, model, lora),
            request.dtype,
        )
    if len(shards) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        _write_json(folder / "model.safetensors.index.json", index)
    return total


def _write_file(
    path: Path, shard: Sequence[tuple[str, FileTensor]], read: Callable[[Parameter], FloatArray], dtype: FileDType
) -> int:
    """Write one safetensors file; return the bytes of its values."""
    total, width = 0, SAFETENSORS[dtype]
    with path.open("wb") as file:
        _write_header(file, shard, width)
        held: tuple[Parameter, FloatArray] | None = None  # experts are neighbours, and read once
        for theirs, one in shard:
            if held is None or held[0] != one.parameter:
                held = None  # not two of them in memory
                held = one.parameter, read(one.parameter)
            values = encode_values(one.select_values(held[1]), width)
            if width == "F16" and not np.isfinite(values).all():
                raise ConfigError(f"{theirs} has values beyond the range of fp16: use dtype=bf16")
            file.write(values.reshape(-1).data.cast("B"))
            total += values.nbytes
    return total


def _shards(names: Mapping[str, FileTensor], width: int, limit: int) -> Iterator[Sequence[tuple[str, FileTensor]]]:
    shard: list[tuple[str, FileTensor]] = []
    for theirs, tensor in names.items():
        if shard and width * (sum(other.size for _, other in shard) + tensor.size) > limit:
            yield shard
            shard = []
        shard.append((theirs, tensor))
    yield shard


def _write_header(file: BinaryIO, shard: Sequence[tuple[str, FileTensor]], dtype: str) -> None:
    # transformers refuses a file that does not say for which framework it was written.
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    start = 0
    for theirs, tensor in shard:
        end = start + WIDTH[dtype] * tensor.size
        entries[theirs] = {"dtype": dtype, "shape": tensor.shape, "data_offsets": [start, end]}
        start = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")
