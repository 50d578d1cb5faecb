"""The trainer's model as torchtitan's Llama 3 in torchtitan's own Trainer, on one GPU; needs `torchtitan` 0.2.

    python scripts/bench/plain_titan.py DIM LAYERS HEADS KV_HEADS SEQ BATCH STEPS THREADS [WORD ...]

WORD is compile (each block and the loss, as its documentation recommends), float8 (products of blocks, scaled by
tensor), selective or full (its recomputation; otherwise none; remat is full), vocab=N or ffn=N. Its head is never the
embedding, so compare with model.tied=false. Rows are random tokens, and nothing is saved. It prints the number of
weights, tokens/s of each window of five steps, the peak of the GPU's memory and the versions, as JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

WINDOW = 5


def part(module: str) -> Any:
    """Import a module of torchtitan, which is optional and has no types."""
    return importlib.import_module(f"torchtitan{module}")


class Rows:
    """Random tokens in the shape of its data loader's results."""

    def __init__(self, batch: int, seq: int, vocab: int) -> None:
        self.shape, self.vocab = (batch, seq + 1), vocab

    def __iter__(self) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
        while True:
            rows = torch.randint(0, self.vocab, self.shape)
            yield {"input": rows[:, :-1].contiguous()}, rows[:, 1:].contiguous()


def make_rows(batch: int, seq: int, vocab: int, **_: Any) -> Rows:
    return Rows(batch, seq, vocab)


class Clock:
    """Replaces `train_step` of its Trainer by the same with a clock."""

    def __init__(self, trainer: Any) -> None:
        self.trainer, self.step = trainer, trainer.train_step
        self.speeds: list[float] = []
        self.peak, self.began = 0, 0.0
        trainer.train_step = self

    def __call__(self, rows: Any) -> None:
        if self.trainer.step == 1:
            self.began = time.perf_counter()
        self.step(rows)
        on_gpu = torch.cuda.is_available()
        if on_gpu:
            self.peak = max(self.peak, torch.cuda.max_memory_allocated())  # its own report resets the counter
        if self.trainer.step % WINDOW == 0:
            if on_gpu:
                torch.cuda.synchronize()
            training = self.trainer.job_config.training
            now = time.perf_counter()
            self.speeds.append(WINDOW * training.local_batch_size * training.seq_len / (now - self.began))
            self.began = now


def main() -> None:
    dim, layers, heads, kv_heads, seq, batch, steps, threads = map(int, sys.argv[1:9])
    words = set(sys.argv[9:])
    given = {name: int(value) for name, sign, value in (word.partition("=") for word in words) if sign}
    vocab, ffn = given.get("vocab", 256), given.get("ffn", dim * 8 // 3)
    torch.set_num_threads(threads)
    llama, protocols = part(".models.llama3"), part(".protocols.train_spec")
    shape = llama.TransformerModelArgs(
        dim=dim, n_layers=layers, n_heads=heads, n_kv_heads=kv_heads, vocab_size=vocab, norm_eps=1e-5
    )
    # It takes 2/3 of 4 x dim, times the factor, up to the next multiple: the exact width here.
    shape.multiple_of, shape.ffn_dim_multiplier = ffn, ffn / int(8 * dim / 3)
    spec = protocols.TrainSpec(
        model_cls=llama.Transformer,
        model_args={"bench": shape},
        parallelize_fn=llama.parallelize_llama,
        pipelining_fn=None,
        build_optimizers_fn=part(".components.optimizer").build_optimizers,
        build_lr_schedulers_fn=part(".components.lr_scheduler").build_lr_schedulers,
        build_dataloader_fn=partial(make_rows, batch, seq, vocab),
        build_tokenizer_fn=None,
        build_loss_fn=part(".components.loss").build_cross_entropy_loss,
    )
    protocols.register_train_spec("bench", spec)
    for name, value in (("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "localhost")):
        os.environ[name] = value
    os.environ.setdefault("MASTER_PORT", "29555")
    with tempfile.TemporaryDirectory() as folder:
        config = part(".config").JobConfig()
        config.job.dump_folder = folder
        config.model.name = config.model.flavor = "bench"
        config.training.local_batch_size, config.training.seq_len, config.training.steps = batch, seq, steps
        config.metrics.log_freq = WINDOW
        config.compile.enable = "compile" in words
        if "float8" in words:
            part(".components.quantization.float8")  # registers the converter
            config.model.converters = ["quantize.linear.float8"]
            config.quantize.linear.float8.filter_fqns = ["output"]
        modes = {"selective": "selective", "full": "full", "remat": "full"}
        config.activation_checkpoint.mode = next((mode for word, mode in modes.items() if word in words), "none")
        trainer = part(".train").Trainer(config)
        clock = Clock(trainer)
        trainer.train()
        trainer.close()
    report = {
        "weights": sum(weight.numel() for weight in trainer.model_parts[0].parameters()),
        "tokens_per_s": clock.speeds,
        "memory": clock.peak or None,
        "versions": f"torchtitan {part('').__version__}, torch {torch.__version__}",
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
