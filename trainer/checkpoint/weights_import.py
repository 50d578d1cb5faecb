"""Imports a folder of a Hugging Face model as a checkpoint of weights alone, at step 0, from which a run can begin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from trainer.checkpoint import families
from trainer.checkpoint.epoch import utc_timestamp
from trainer.checkpoint.family_names import FileTensor, map_parameter_names
from trainer.checkpoint.hf_folder import Tensor, find_tensors, read_json_object
from trainer.checkpoint.layout import part_name, run_folder
from trainer.checkpoint.manifest import Manifest, Part, StepFolder
from trainer.checkpoint.snapshot import PART_BYTES, PartBuffer, group_pieces
from trainer.checkpoint.store import open_store
from trainer.checkpoint.tokenizer_file import make_byte_tokenizer
from trainer.checkpoint.writer import publish_manifest, upload_part
from trainer.config import BYTE_VOCAB, Config, ModelConfig
from trainer.errors import ConfigError, StorageError
from trainer.options import flatten_config, parse_config
from trainer.shape.architecture import count_parameters, list_parameters
from trainer.shape.box import Box, TensorRegion


def import_weights(folder: Path, place: str, report: Callable[[str], None], part_bytes: int = PART_BYTES) -> None:
    """Write the checkpoint.

    Args:
        folder: With config.json and safetensors files.
        place: Where the checkpoint is written; it must not hold any.
        report: Receives what was written and how to train from it.
        part_bytes: Size at which a part is closed.

    Raises:
        ConfigError: The folder has no model that this trainer can train, or the place holds checkpoints.
        StorageError: The checkpoint cannot be written.
    """
    model = families.parse_hf_config(read_json_object(folder / "config.json"))
    tensors = find_tensors(folder)
    _check_settings(model, tensors)
    names = map_parameter_names(model)
    _check(names, tensors, model)
    store = open_store(place, create=True)
    if any(StepFolder.parse(name) is not None for name in store.list_folders()):
        raise ConfigError(f"{store.uri} already holds checkpoints: name another place")
    theirs: dict[str, list[tuple[str, FileTensor]]] = {}
    for name, one in names.items():
        theirs.setdefault(f"model/{one.parameter.name}", []).append((name, one))
    pieces = [TensorRegion(f"model/{p.name}", p.shape, Box.whole(p.shape)) for p in list_parameters(model)]
    parts, folder_of_weights = list[Part](), StepFolder(0)
    for index, group in enumerate(group_pieces(pieces, part_bytes)):
        buffer = PartBuffer(group)
        for piece, view in buffer.views.items():
            for name, one in theirs[piece.name]:
                one.select_values(view).reshape(-1)[:] = tensors[name].read_values()
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
    data, note = _describe_data(folder, model)
    start = f"{store.uri}/{folder_of_weights.name}"
    report(f"  python -m trainer checkpoint.start={start} {_words(model)} data={data} ...")
    report(f"  {note}")


def _describe_data(folder: Path, model: ModelConfig) -> tuple[str, str]:
    """Return what `data` names, and how it is made of text."""
    file = folder / "tokenizer.json"
    if file.is_file() and file.read_bytes() != make_byte_tokenizer():
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
        raise ConfigError(f"the folder has tensors that its config.json has not, such as {unknown[0]}")
