"""`python -m trainer export PLACE FOLDER`: a checkpoint's weights for Hugging Face's libraries."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import cast, get_args

from trainer.checkpoint.dtypes import FileDType
from trainer.checkpoint.weights_export import ExportRequest, export_weights
from trainer.config import Doc
from trainer.console import Console
from trainer.environment import World
from trainer.errors import ConfigError, Exit
from trainer.options import Key

SUMMARY = (
    "a checkpoint's weights for Hugging Face's libraries: export PLACE FOLDER [dtype=bf16] [--average] [--adapter]"
)

HELP = """\
  python -m trainer export PLACE FOLDER [dtype=fp32|bf16|fp16] [tokenizer=PATH] [--average] [--adapter]

PLACE      file://, s3:// or gs:// folder of checkpoints, or a path; its newest intact one is taken. With /step-00001200
           at the end: that one.
FOLDER     is made, whole or not at all: config.json, model.safetensors (several with an index above 5 GB),
           generation_config.json, the files of the tokenizer and the chat template, as the model and the data had them.
dtype      of the written weights; default: fp32, as they are trained.
tokenizer  another tokenizer.json, or a folder with one; the files beside it are taken along.
--average  the averaged weights of a run with optim.ema.
--adapter  of a run with lora.rank: its adapters alone, as peft reads them (adapter_config.json and
           adapter_model.safetensors). Without it they are merged into the weights.

Examples:
  python -m trainer export s3://bucket/run1/checkpoints run1-hf dtype=bf16
  python -m trainer export ./run1/checkpoints/step-00001200 run1-hf --average
"""

_LIKE_A_KEY = re.compile(r"[a-z_.]+=")  # a place of such a name is written ./NAME

_KEYS: Mapping[str, Key] = MappingProxyType(
    {
        key.name: key
        for key in (
            Key(name="dtype", kind=get_args(FileDType), default="fp32", doc=Doc(text="type of the written weights")),
            Key(name="tokenizer", kind=str, default="", doc=Doc(text="another tokenizer.json, or its folder")),
        )
    }
)


def run(words: Sequence[str]) -> int:
    """Export the weights.

    Raises:
        ConfigError: The words are wrong, or the checkpoint lacks what is requested.
        StorageError: The checkpoint cannot be read, or the folder cannot be written.
    """
    export_weights(_parse_request(words), Console(World()).print_on_first)
    return Exit.OK


def _parse_request(words: Sequence[str]) -> ExportRequest:
    places = [word for word in words if not word.startswith("--") and word.partition("=")[0] not in _KEYS]
    options = [word for word in words if word.startswith("--")]
    mistyped = [place for place in places if _LIKE_A_KEY.match(place)]  # which would become a folder of that name
    unknown = [*mistyped, *places[2:], *(word for word in options if word not in ("--average", "--adapter"))]
    if unknown:
        near = difflib.get_close_matches(unknown[0].partition("=")[0], _KEYS, n=1)
        hint = f"did you mean {near[0]}=?" if near else "`python -m trainer export --help` lists them"
        raise ConfigError(f"unknown word {unknown[0]!r}; {hint}")
    if len(places) < 2:
        raise ConfigError("two places are needed: python -m trainer export CHECKPOINTS FOLDER")
    values = {name: key.default for name, key in _KEYS.items()}
    for word in words:
        name, _, text = word.partition("=")
        if name in _KEYS:
            values[name] = _KEYS[name].parse_value(text)
    return ExportRequest(
        place=places[0],
        folder=Path(places[1]).expanduser().absolute(),
        dtype=cast("FileDType", values["dtype"]),
        average="--average" in options,
        adapter="--adapter" in options,
        tokenizer=str(values["tokenizer"]),
    )
