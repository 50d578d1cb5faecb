"""`python -m trainer import FOLDER PLACE`: a Hugging Face model as a checkpoint to begin from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trainer.checkpoint.weights_import import import_weights
from trainer.config import AUTO, Doc
from trainer.console import Console
from trainer.environment import World
from trainer.errors import ConfigError, Exit
from trainer.options import Key

SUMMARY = (
    "a Hugging Face model (Llama, Mistral, Mixtral, Qwen, Gemma) as a checkpoint to train from: import FOLDER PLACE"
)

HELP = """\
  python -m trainer import FOLDER PLACE [resize=auto|N]

FOLDER  config.json and model.safetensors (or several with an index) in fp32, bf16 or fp16. Its tokenizer, chat template
        and settings of generation are kept beside the checkpoints, and `export` writes them again.
PLACE   file://, s3:// or gs:// folder, or a path, without checkpoints: step-00000000 is written there, weights alone.
resize  rows of the embedding and of the head, for tokens that were added to the tokenizer; auto: as many as it has.
        New rows begin as the mean of the others.

A run begins from it with checkpoint.start=PLACE/step-00000000 and the model.* words that are printed; its optimizer
starts at zero, its data at the first row.

Examples:
  python -m trainer import ./llama-1b s3://bucket/llama-1b
  python -m trainer import ./llama-1b-with-more-tokens ./base resize=auto
  python -m trainer checkpoint.start=s3://bucket/llama-1b/step-00000000 model.dim=2048 ... data=s3://bucket/tokens
  orch train H100:8 --bucket s3://bucket checkpoint.start=s3://bucket/llama-1b/step-00000000 model.dim=2048 ...
"""


_RESIZE = Key(
    name="resize", kind=int, default=AUTO, doc=Doc(text="rows of the embedding and of the head", least=1, auto=True)
)


def run(words: Sequence[str]) -> int:
    """Import the weights.

    Raises:
        ConfigError: The words are wrong, or the folder has no model that this trainer can train.
        StorageError: The checkpoint cannot be written.
    """
    settings = [word for word in words if word.startswith(f"{_RESIZE.name}=")]
    places = [word for word in words if word not in settings]
    if len(places) != 2:
        raise ConfigError("two places are needed: python -m trainer import FOLDER PLACE")
    rows = int(_RESIZE.parse_value(settings[-1].partition("=")[2])) if settings else None
    import_weights(Path(places[0]).expanduser(), places[1], Console(World()).print_on_first, rows=rows)
    return Exit.OK
