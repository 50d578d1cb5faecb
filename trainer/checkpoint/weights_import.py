"""Imports a folder of a Hugging Face model as a checkpoint of weights alone, at step 0, from which a run can begin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from trainer.checkpoint import families
from trainer.checkpoint.byte_tokenizer import is_byte_tokenizer
from trainer.checkpoint.config_keys import list_unused_keys
from trainer.checkpoint.description import TOKENIZER, Description, read_described_files, store_description
from trainer.checkpoint.epoch import shorten, utc_timestamp
from trainer.checkpoint.family_names import FileTensor, map_parameter_names
from trainer.checkpoint.hf_folder import Tensor, find_tensors, read_json_object
from trainer.checkpoint.layout import part_name, run_folder
from trainer.checkpoint.manifest import Manifest, Part, StepFolder
from trainer.checkpoint.snapshot import PART_BYTES, PartBuffer, group_pieces
from trainer.checkpoint.store import Store, open_store
from trainer.checkpoint.writer import publish_manifest, upload_part
from trainer.config import AUTO, BYTE_VOCAB, Config, ModelConfig
from trainer.data.tokens.roles import find_end, read_tokens
from trainer.engine import FloatArray
from trainer.errors import ConfigError, StorageError
from trainer.options import flatten_config, parse_config
from trainer.shape.architecture import count_parameters, list_parameters
from trainer.shape.box import Box, TensorRegion

_MOST_NAMES = 5


def import_weights(
    folder: Path,
    place: str,
    report: Callable[[str], None],
    part_bytes: int = PART_BYTES,
    *,
    rows: int | None = None,
) -> None:
    """Write the checkpoint.

    Args:
        folder: With config.json and safetensors files.
        place: Where the checkpoint is written; it must not hold any.
        report: Receives what was written and how to train from it.
        part_bytes: Size at which a part is closed.
        rows: Rows of the embedding and of the head; 0: as many as the tokenizer has tokens; None: as in the folder.

    Raises:
        ConfigError: The folder has no model that this trainer can train, or the place holds checkpoints.
        StorageError: The checkpoint cannot be written.
    """
    config = read_json_object(folder / "config.json")
    stored, tensors = families.parse_hf_config(config), find_tensors(folder)
    described = _describe(folder)
    model = _resize(stored, described, rows)
    _check_settings(model, tensors)
    names = map_parameter_names(stored)
    _check(names, tensors, stored)
    store = open_store(place, create=True)
    if any(StepFolder.parse(name) is not None for name in store.list_folders()):
        raise ConfigError(f"{store.uri} already holds checkpoints: name another place")
    for line in [*list_unused_keys(config), *_list_tokens_without_rows(described, model)]:
        report(line)
    store_description(store, described)
    parts, folder_of_weights = _upload_weights(store, model, names, tensors, part_bytes), StepFolder(0)
    run_id = run_folder(store.uri).rpartition("/")[2] if store.uri.endswith("/checkpoints") else "import"
    manifest = Manifest(
        step=0,
        run_id=run_id,
        attempt=1,
        world=1,
        time=utc_timestamp(),
        weights_only=True,
        parts=parts,
        data=None,
        config=flatten_config(replace(Config(), model=model)),
        description=described.digest,
        folder=folder_of_weights.name,
    )
    failure = publish_manifest(store, manifest, None, report)
    if failure:
        raise StorageError(failure)
    report(f"{count_parameters(model):,} weights in {store.uri}/{folder_of_weights.name}; to train from them:")
    data, note = _describe_data(folder, described, model)
    start = f"{store.uri}/{folder_of_weights.name}"
    report(f"  python -m trainer checkpoint.start={start} {_words(model)} data={data} ...")
    report(f"  {note}")


def _describe(folder: Path) -> Description:
    """Return the description of the model and its tokenizer."""
    found = Description(files=read_described_files(folder))
    tokens = read_tokens(found)
    return replace(found, end=tokens.numbers.get(find_end(found, tokens)))


def _resize(model: ModelConfig, described: Description, rows: int | None) -> ModelConfig:
    """Return the model with that many rows in its embedding and its head.

    Raises:
        ConfigError: The tokenizer is unknown, or rows would be lost.
    """
    if rows is None:
        return model
    if rows == AUTO:
        numbers = read_tokens(described).numbers.values()
        if not numbers:
            raise ConfigError("resize=auto: the folder has no tokenizer.json that names tokens: give a number")
        rows = max(model.tokens, max(numbers) + 1)
    if rows < model.tokens:
        raise ConfigError(f"resize={rows}: the model has {model.tokens} tokens, and none can be removed")
    return replace(model, vocab=rows)


def _list_tokens_without_rows(described: Description, model: ModelConfig) -> list[str]:
    """Return a note on tokens of the tokenizer for which the embedding has no row."""
    numbers = read_tokens(described).numbers
    beyond = sorted((number, text) for text, number in numbers.items() if number >= model.tokens)
    if not beyond:
        return []
    names = ", ".join(repr(text) for _, text in beyond[:_MOST_NAMES])
    more = f" and {len(beyond) - _MOST_NAMES:,} more" if len(beyond) > _MOST_NAMES else ""
    what = f"the embedding has {model.tokens:,} rows, and none for {len(beyond):,} tokens of the tokenizer"
    return [f"note: {what}: {names}{more}; data with them needs resize=auto, which adds rows"]


def _upload_weights(
    store: Store, model: ModelConfig, names: Mapping[str, FileTensor], tensors: Mapping[str, Tensor], part_bytes: int
) -> tuple[Part, ...]:
    """Upload all weights, and return their parts."""
    theirs: dict[str, list[tuple[str, FileTensor]]] = {}
    for name, one in names.items():
        theirs.setdefault(f"model/{one.parameter.name}", []).append((name, one))
    pieces = [TensorRegion(f"model/{p.name}", p.shape, Box.whole(p.shape)) for p in list_parameters(model)]
    parts = list[Part]()
    for index, group in enumerate(group_pieces(pieces, part_bytes)):
        buffer = PartBuffer(group)
        for piece, view in buffer.views.items():
            for name, one in theirs[piece.name]:
                _fill(one.select_values(view), tensors[name].read_values(), one)
        parts.append(upload_part(store, StepFolder(0).name, part_name(0, index), buffer))
    return tuple(parts)


def _fill(view: FloatArray, values: FloatArray, tensor: FileTensor) -> None:
    """Fill a tensor; rows that the file does not have get the mean of its rows.

    So the logits of added tokens begin as those of a usual one, and an untrained one is seldom generated.
    """
    stored = values.reshape(tensor.shape)
    view[: len(stored)] = stored
    if len(stored) < len(view):
        view[len(stored) :] = stored.mean(axis=0, dtype=np.float64)


def _describe_data(folder: Path, described: Description, model: ModelConfig) -> tuple[str, str]:
    """Return what `data` names, and how it is made of text."""
    file, text = folder / TOKENIZER, described.files.get(TOKENIZER, "")
    if text and not is_byte_tokenizer(text):
        return "FOLDER", f"with text of the same tokens: python -m trainer prepare SOURCE FOLDER tokenizer={file}"
    if model.tokens == BYTE_VOCAB:
        return "SOURCE", "with text as it is: 256 tokens are the bytes of text"
    return "FOLDER", (
        f"{folder} has no tokenizer.json, so bring the model's own: "
        "python -m trainer prepare SOURCE FOLDER tokenizer=tokenizer.json"
    )


def _check_settings(model: ModelConfig, tensors: Mapping[str, Tensor]) -> None:
    """Check that the trainer takes the settings, before anything is computed with them.

    Raises:
        ConfigError: It does not, or a count is beyond what the files hold.
    """
    if model.layers > len(tensors):
        raise ConfigError(f"config.json has num_hidden_layers={model.layers}, but the folder {len(tensors)} tensors")
    if model.experts > len(tensors):
        raise ConfigError(f"config.json has {model.experts} experts, but the folder {len(tensors)} tensors")
    try:
        parse_config(_words(model).split())
    except ConfigError as error:
        raise ConfigError(f"config.json cannot be used: {error}") from error


def _words(model: ModelConfig) -> str:
    """Return the key=value words that configure this model."""
    table, usual = flatten_config(replace(Config(), model=model)), flatten_config(Config())
    keys = [key for key in table if key.startswith("model.") and table[key] != usual[key]]
    return " ".join(f"{key}={str(table[key]).lower()}" for key in keys)


def _check(names: Mapping[str, FileTensor], tensors: Mapping[str, Tensor], model: ModelConfig) -> None:
    """Check that the tensors are those of the model, in its shapes.

    Raises:
        ConfigError: A tensor is missing, unknown or of another shape.
    """
    for theirs, one in names.items():
        if theirs not in tensors:
            raise ConfigError(f"the folder has no tensor {theirs}, which config.json needs")
        if tensors[theirs].entry.shape != one.shape:
            found, needed = list(tensors[theirs].entry.shape), list(one.shape)
            raise ConfigError(f"{theirs} has the shape {found}, but config.json needs {needed}")
    # A tied head may be stored all the same; old files hold the rotary angles, which follow from the settings.
    unknown = [
        name
        for name in tensors
        if name not in names
        and not name.endswith("rotary_emb.inv_freq")
        and not (model.tied and name == "lm_head.weight")
    ]
    if unknown:
        raise ConfigError(f"the folder has tensors that its config.json has not, such as {shorten(unknown[0])}")
