"""The trainer's model as torchtitan's Llama 3 in torchtitan's own Trainer, on one GPU; needs `torchtitan` 0.2.

    python scripts/bench/plain_titan.py DIM LAYERS HEADS KV_HEADS SEQ BATCH STEPS THREADS [WORD ...]

WORD is compile (each block and the loss, as its documentation recommends), selective or full (its recomputation;
otherwise none; remat is full), vocab=N or ffn=N. Its head is never the embedding, so compare with model.tied=false.
Rows are random tokens, and nothing is saved. It prints the number of weights, tokens/s of each window of five steps,
the peak of the GPU's memory and the versions, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import torch
import torchtitan  # pyright: ignore[reportMissingImports]  # optional: only for comparison
from torchtitan.components.loss import build_cross_entropy_loss  # pyright: ignore[reportMissingImports]  # as above
from torchtitan.components.lr_scheduler import build_lr_schedulers  # pyright: ignore[reportMissingImports]  # as above
from torchtitan.components.optimizer import build_optimizers  # pyright: ignore[reportMissingImports]  # as above
from torchtitan.config import JobConfig  # pyright: ignore[reportMissingImports]  # as above
from torchtitan.models.llama3 import (  # pyright: ignore[reportMissingImports]  # as above
    Transformer,
    TransformerModelArgs,
    parallelize_llama,
)
from torchtitan.protocols.train_spec import (  # pyright: ignore[reportMissingImports]  # as above
    TrainSpec,
    register_train_spec,
)
from torchtitan.train import Trainer  # pyright: ignore[reportMissingImports]  # as above

WINDOW = 5


class Rows:
    """Random tokens in the shape of its data loader's results."""

    def __init__(self, batch: int, seq: int, vocab: int) -> None:
        self.shape, self.vocab = (batch, seq + 1), vocab

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        while True:
            rows = torch.randint(0, self.vocab, self.shape)
            yield {"input": rows[:, :-1].contiguous()}, rows[:, 1:].contiguous()


class Timed(Trainer):
    """The Trainer with a clock."""

    speeds: list[float]
    peak = 0

    def train_step(self, data_iterator: Any) -> None:
        if self.step == 1:
            self.speeds, self.began = [], time.perf_counter()
        super().train_step(data_iterator)
        if torch.cuda.is_available():
            self.peak = max(self.peak, torch.cuda.max_memory_allocated())  # its own report resets the counter
        if self.step % WINDOW == 0:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            training = self.job_config.training
            now = time.perf_counter()
            self.speeds.append(WINDOW * training.local_batch_size * training.seq_len / (now - self.began))
            self.began = now


def main() -> None:
    dim, layers, heads, kv_heads, seq, batch, steps, threads = map(int, sys.argv[1:9])
    words = set(sys.argv[9:])
    given = {name: int(value) for name, sign, value in (word.partition("=") for word in words) if sign}
    vocab, ffn = given.get("vocab", 256), given.get("ffn", dim * 8 // 3)
    torch.set_num_threads(threads)
    shape = TransformerModelArgs(
        dim=dim, n_layers=layers, n_heads=heads, n_kv_heads=kv_heads, vocab_size=vocab, norm_eps=1e-5
    )
    # It takes 2/3 of 4 x dim, times the factor, up to the next multiple: the exact width here.
    shape.multiple_of, shape.ffn_dim_multiplier = ffn, ffn / int(8 * dim / 3)
    spec = TrainSpec(
        model_cls=Transformer,
        model_args={"bench": shape},
        parallelize_fn=parallelize_llama,
        pipelining_fn=None,
        build_optimizers_fn=build_optimizers,
        build_lr_schedulers_fn=build_lr_schedulers,
        build_dataloader_fn=lambda **_: Rows(batch, seq, vocab),
        build_tokenizer_fn=None,
        build_loss_fn=build_cross_entropy_loss,
    )
    register_train_spec("bench", spec)
    for name, value in (("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "localhost")):
        os.environ[name] = value
    os.environ.setdefault("MASTER_PORT", "29555")
    with tempfile.TemporaryDirectory() as folder:
        config = JobConfig()
        config.job.dump_folder = folder
        config.model.name = config.model.flavor = "bench"
        config.training.local_batch_size, config.training.seq_len, config.training.steps = batch, seq, steps
        config.metrics.log_freq = WINDOW
        config.compile.enable = "compile" in words
        modes = {"selective": "selective", "full": "full", "remat": "full"}
        config.activation_checkpoint.mode = next((mode for word, mode in modes.items() if word in words), "none")
        trainer = Timed(config)
        trainer.train()
        trainer.close()
    report = {
        "weights": sum(weight.numel() for weight in trainer.model_parts[0].parameters()),
        "tokens_per_s": trainer.speeds,
        "memory": trainer.peak or None,
        "versions": f"torchtitan {torchtitan.__version__}, torch {torch.__version__}",
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
