"""The description of model and tokenizer for an export: of the checkpoint, of its data, or of what the user names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainer.checkpoint.byte_tokenizer import describe_bytes, is_byte_tokenizer
from trainer.checkpoint.description import (
    CONFIG,
    MODEL_FILES,
    TEMPLATE,
    TOKENIZER,
    TOKENIZER_CONFIG,
    Description,
    find_description,
    read_described_files,
)
from trainer.checkpoint.families import make_hf_config, parse_hf_config
from trainer.checkpoint.reader import Checkpoint
from trainer.config import BYTE_VOCAB, DataConfig, ModelConfig
from trainer.data.described import PLAIN_TEMPLATE, find_data_description
from trainer.data.sources import HUB_SCHEME
from trainer.data.tokens.roles import find_end, read_tokens
from trainer.data.tokens.tokenizer_check import read_tokenizer_file
from trainer.data.tokens.tokenizers import AUTO, BYTES
from trainer.errors import ConfigError, DataError, StorageError

Report = Callable[[str], None]


def find_exported_description(checkpoint: Checkpoint, model: ModelConfig, given: str, report: Report) -> Description:
    """Return all that is known, and report what is missing.

    Args:
        checkpoint: What is exported.
        model: Of the checkpoint.
        given: A tokenizer.json that the user named, or the folder of one; "" for none.
        report: Receives one line for what is missing.

    Raises:
        ConfigError: The named file cannot be read.
        StorageError: The bucket fails.
    """
    manifest = checkpoint.manifest
    found = find_description(checkpoint.store, manifest.description, report)
    if found is None:
        found = _find_in_data(checkpoint, model)
    if given:
        found = _join_given(found, model, given)
    has_template = TEMPLATE in found.files or "chat_template" in found.read_object(TOKENIZER_CONFIG)
    if not has_template and is_byte_tokenizer(found.files.get(TOKENIZER, "")):
        found = replace(found, files={**found.files, TEMPLATE: PLAIN_TEMPLATE})  # that of chat=auto with these tokens
    if TOKENIZER not in found.files:
        report("note: no tokenizer.json is written: none was found; name it with tokenizer=PATH")
    began = manifest.data is None or manifest.config.get("checkpoint.start")
    if began and CONFIG not in found.files:
        report(
            "note: nothing is known of the model that this checkpoint began from: positions are those of its rows, and "
            "special tokens may be missing; tokenizer=FOLDER of that model brings them"
        )
    return found


def _find_in_data(checkpoint: Checkpoint, model: ModelConfig) -> Description:
    """Return what the data of a checkpoint says; that of an earlier version, or of a run whose data was not at hand."""
    config = checkpoint.manifest.config
    setting, source = str(config.get("data.tokenizer", AUTO)), str(config.get("data.source", ""))
    weights = str(config.get("data.weights", ""))
    found = None
    if source and HUB_SCHEME not in source:  # an export fetches no data set
        with suppress(StorageError):  # a bucket that cannot be reached from here
            found = find_data_description(DataConfig(source=source, weights=weights), model)
    if found is None and setting not in (AUTO, BYTES) and Path(setting).expanduser().is_file():
        found = _read_given(setting)
    if found is None and model.tokens == BYTE_VOCAB and setting in (AUTO, BYTES):
        found = describe_bytes()
    return found or Description()


def _join_given(found: Description, model: ModelConfig, given: str) -> Description:
    """Return the description with the tokenizer that the user named, and with the model's files where it has none."""
    named = _read_given(given)
    config = named.read_object(CONFIG)
    if CONFIG in found.files or not config or not _is_same_model(config, model):
        named = replace(named, files={name: text for name, text in named.files.items() if name not in MODEL_FILES})
    return found.join(named)


def _read_given(word: str) -> Description:
    """Return the description of the folder of a tokenizer.json.

    Raises:
        ConfigError: The file cannot be read.
    """
    path = Path(word).expanduser()
    folder = path if path.is_dir() else path.parent
    files = read_described_files(folder)
    if not path.is_dir():
        try:
            files[TOKENIZER] = read_tokenizer_file(word).decode()
        except DataError as error:
            raise ConfigError(str(error)) from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"tokenizer={word}: not a tokenizer.json: {error}") from error
    if TOKENIZER not in files:
        raise ConfigError(f"tokenizer={word}: the folder has no {TOKENIZER}")
    found = Description(files=files)
    tokens = read_tokens(found)
    return replace(found, end=tokens.numbers.get(find_end(found, tokens)))


def _is_same_model(config: Mapping[str, Any], model: ModelConfig) -> bool:
    """Return whether a config.json describes the checkpoint's model, apart from the number of tokens."""
    try:
        found = parse_hf_config(config)
    except ConfigError:
        return False
    return make_hf_config(replace(found, vocab=model.tokens), 1, "float32") == make_hf_config(model, 1, "float32")
