"""`python -m trainer import FOLDER PLACE`: a Hugging Face model as a checkpoint to begin from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trainer.checkpoint.weights_import import import_weights
from trainer.console import Console
from trainer.environment import World
from trainer.errors import ConfigError, Exit

SUMMARY = (
    "a Hugging Face model (Llama, Mistral, Mixtral, Qwen, Gemma) as a checkpoint to train from: import FOLDER PLACE"
)

HELP = """\
  python -m trainer import FOLDER PLACE

FOLDER  config.json and model.safetensors (or several with an index) in fp32, bf16 or fp16.
PLACE   file://, s3:// or gs:// folder, or a path, without checkpoints: step-00000000 is written there, weights alone.

A run begins from it with checkpoint.start=PLACE/step-00000000 and the model.* words that are printed; its optimizer
starts at zero, its data at the first row.

Examples:
  python -m trainer import ./llama-1b s3://bucket/llama-1b
  python -m trainer checkpoint.start=s3://bucket/llama-1b/step-00000000 model.dim=2048 ... data=s3://bucket/tokens
  orch train H100:8 --bucket s3://bucket checkpoint.start=s3://bucket/llama-1b/step-00000000 model.dim=2048 ...
"""


def run(words: Sequence[str]) -> int:
    """Import the weights.

    Raises:
        ConfigError: The words are wrong, or the folder has no model that this trainer can train.
        StorageError: The checkpoint cannot be written.
    """
    if len(words) != 2:
        raise ConfigError("two places are needed: python -m trainer import FOLDER PLACE")
    import_weights(Path(words[0]).expanduser(), words[1], Console(World()).print_on_first)
    return Exit.OK
