"""A checkpoint's weights as a folder that Hugging Face's libraries read: config.json, model.safetensors, tokenizer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from trainer.checkpoint import llama, reader
from trainer.checkpoint.fitting import model_of
from trainer.checkpoint.layout import split_uri, step_of
from trainer.checkpoint.numbers import SAFETENSORS, TORCH, WIDTH, encode
from trainer.checkpoint.reader import Checkpoint
from trainer.checkpoint.regions import Contents, open_contents
from trainer.checkpoint.store import open_store
from trainer.checkpoint.vocabulary import Vocabulary, find_vocabulary
from trainer.config import DTypeName, ModelConfig
from trainer.environment import World
from trainer.errors import ConfigError, StorageError
from trainer.shape.architecture import Parameter
from trainer.tcp_team import Alone

SHARD_BYTES = 5_000_000_000
"""Above it the weights are divided over several files with an index, as transformers does by default."""


@dataclass(frozen=True, slots=True)
class Wish:
    """place: a checkpoints' folder, or a step's. average: the averaged weights. tokenizer: a path; "": find it."""

    place: str
    folder: Path
    dtype: DTypeName = "fp32"
    average: bool = False
    tokenizer: str = ""
    shard_bytes: int = SHARD_BYTES


def export(wish: Wish, report: Callable[[str], None]) -> None:
    """Write the folder, whole or not at all. Raises ConfigError and StorageError."""
    if wish.folder.exists() and (not wish.folder.is_dir() or any(wish.folder.iterdir())):
        raise ConfigError(f"{wish.folder} is there already: name a folder that is not")
    checkpoint = find(wish.place, report)
    manifest = checkpoint.manifest
    model = model_of(manifest.config)
    contents = open_contents(checkpoint.store, manifest)
    kind = "average" if wish.average else "model"
    if not any(name.startswith(f"{kind}/") for name in contents.tensors):
        raise ConfigError(f"checkpoint {manifest.step} has no averaged weights: it was made with optim.ema=0")
    vocabulary = find_vocabulary(manifest.config, model, wish.tokenizer)
    staged = wish.folder.with_name(f".{wish.folder.name}.part")
    try:
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir(parents=True)
        size = _write_weights(staged, contents, kind, model, wish)
        _write_settings(staged, manifest.config, model, wish, vocabulary)
        if wish.folder.exists():
            wish.folder.rmdir()
        staged.rename(wish.folder)
    except OSError as error:
        raise StorageError(f"{wish.folder} cannot be written: {error.strerror}") from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)  # gone already unless something failed
    for line in vocabulary.notes:
        report(line)
    what = "averaged weights" if wish.average else "weights"
    report(f"{what} of step {manifest.step} in {wish.folder} ({size / 1e6:,.1f} MB, {wish.dtype})")


def find(place: str, report: Callable[[str], None]) -> Checkpoint:
    """The step that `place` ends with, or the newest intact one. Raises StorageError."""
    uri, step = split_uri(place)
    store = open_store(uri)
    folders = store.folders()
    if step is None and "checkpoints" in folders and not any(step_of(name) is not None for name in folders):
        store = open_store(f"{store.uri}/checkpoints")  # the run's folder was meant
    reasons: list[str] = []
    found = reader.newest(store, Alone(World()), reasons.append, up_to=step)
    if step is not None and (found is None or found.manifest.step != step):
        raise StorageError(f"{place}: {reasons[0] if reasons else 'no such checkpoint'}")
    for reason in reasons:
        report(reason)
    if found is None:
        raise StorageError(f"{place}: no intact checkpoint there")
    return found


def _write_weights(folder: Path, contents: Contents, kind: str, model: ModelConfig, wish: Wish) -> int:
    """Returns the bytes of all values."""
    dtype = SAFETENSORS[wish.dtype]
    shards = list(_shards(llama.names(model), WIDTH[dtype], wish.shard_bytes))
    weight_map: dict[str, str] = {}
    total = 0
    for number, shard in enumerate(shards, 1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors" if len(shards) > 1 else "model.safetensors"
        with (folder / name).open("wb") as file:
            _write_header(file, shard, dtype)
            for theirs, parameter in shard:
                values = encode(contents.whole(f"{kind}/{parameter.name}"), dtype)
                if dtype == "F16" and not np.isfinite(values).all():
                    raise ConfigError(f"{theirs} has values beyond the range of fp16: use dtype=bf16")
                file.write(values.reshape(-1).data.cast("B"))
                weight_map[theirs] = name
                total += values.nbytes
    if len(shards) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        _write_json(folder / "model.safetensors.index.json", index)
    return total


def _shards(names: Mapping[str, Parameter], width: int, limit: int) -> Iterator[Sequence[tuple[str, Parameter]]]:
    shard: list[tuple[str, Parameter]] = []
    for theirs, parameter in names.items():
        if shard and width * (sum(other.size for _, other in shard) + parameter.size) > limit:
            yield shard
            shard = []
        shard.append((theirs, parameter))
    yield shard


def _write_header(file: BinaryIO, shard: Sequence[tuple[str, Parameter]], dtype: str) -> None:
    # transformers refuses a file that does not say for which framework it was written.
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    start = 0
    for theirs, parameter in shard:
        end = start + WIDTH[dtype] * parameter.size
        entries[theirs] = {"dtype": dtype, "shape": parameter.shape, "data_offsets": [start, end]}
        start = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)


def _write_settings(
    folder: Path, config: Mapping[str, Any], model: ModelConfig, wish: Wish, vocabulary: Vocabulary
) -> None:
    seq_len = int(config.get("seq_len", 2048))
    _write_json(folder / "config.json", llama.config_of(model, seq_len, TORCH[wish.dtype], vocabulary.end))
    ends = {"bos_token_id": vocabulary.end, "eos_token_id": vocabulary.end}
    _write_json(folder / "generation_config.json", {"_from_model_config": True, **ends})
    if vocabulary.text:
        (folder / "tokenizer.json").write_bytes(vocabulary.text)
        _write_json(
            folder / "tokenizer_config.json",
            {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": seq_len, **vocabulary.special},
        )


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}, indent=2) + "\n")
