"""The same model as transformers' Llama in Hugging Face's Trainer. Needs `transformers` and `accelerate` installed.

    python scripts/bench/plain_hf.py DIM LAYERS HEADS KV_HEADS SEQ BATCH STEPS THREADS

Prints tokens/s of each window of five steps, as JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from typing import Any

import torch
from transformers import (  # pyright: ignore[reportMissingImports]  # optional: a yardstick, no dependency
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

WINDOW = 5


class Clock(TrainerCallback):
    def __init__(self, tokens: int) -> None:
        self.tokens, self.began = tokens, 0.0
        self.speeds: list[float] = []

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.began = time.perf_counter()

    def on_step_end(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
        if state.global_step % WINDOW == 0:
            now = time.perf_counter()
            self.speeds.append(WINDOW * self.tokens / (now - self.began))
            self.began = now


def main() -> None:
    dim, layers, heads, kv_heads, seq, batch, steps, threads = map(int, sys.argv[1:9])
    torch.set_num_threads(threads)
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=dim,
        intermediate_size=-(-dim * 8 // 3 // 8) * 8,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        tie_word_embeddings=True,
        max_position_embeddings=seq,
    )
    rows = torch.randint(0, 256, (steps * batch, seq + 1))
    data = [{"input_ids": row[:-1], "labels": row[:-1]} for row in rows]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            per_device_train_batch_size=batch,
            max_steps=steps,
            learning_rate=1e-3,
            weight_decay=0.1,
            optim="adamw_torch_fused",
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            logging_steps=WINDOW,
            disable_tqdm=True,
        )
        clock = Clock(batch * seq)
        Trainer(LlamaForCausalLM(config), arguments, train_dataset=data, callbacks=[clock]).train()
    print(json.dumps(clock.speeds))


if __name__ == "__main__":
    main()
