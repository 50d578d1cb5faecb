"""The trainer's model as transformers' Llama in Hugging Face's Trainer; needs `transformers` and `accelerate`.

    python scripts/bench/plain_hf.py DIM LAYERS HEADS KV_HEADS SEQ BATCH STEPS THREADS [WORD ...]

WORD is bf16, compile, cuda (train on a GPU), remat (gradient checkpointing), untied, vocab=N, ffn=N, or cpu (measure
CPU time). It prints the number of weights, tokens/s of each window of five steps, the peak of a GPU's memory and the
versions, as JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from typing import Any

import accelerate  # pyright: ignore[reportMissingImports]  # optional: only for comparison
import torch
import transformers  # pyright: ignore[reportMissingImports]  # as above
from transformers import (  # pyright: ignore[reportMissingImports]  # as above
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

WINDOW = 5
ON_GPU = "cuda" in sys.argv
clock = time.process_time if "cpu" in sys.argv and not ON_GPU else time.perf_counter


class Clock(TrainerCallback):
    def __init__(self, tokens: int) -> None:
        self.tokens, self.began = tokens, 0.0
        self.speeds: list[float] = []

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.began = clock()

    def on_step_end(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
        if state.global_step % WINDOW == 0:
            if ON_GPU:
                torch.cuda.synchronize()
            now = clock()
            self.speeds.append(WINDOW * self.tokens / (now - self.began))
            self.began = now


def given(name: str, default: int) -> int:
    return next((int(word.partition("=")[2]) for word in sys.argv if word.startswith(f"{name}=")), default)


def llama(dim: int, layers: int, heads: int, kv_heads: int, seq: int) -> LlamaForCausalLM:
    """Make the trainer's model, and check how transformers has interpreted the settings."""
    config = LlamaConfig(
        vocab_size=given("vocab", 256),
        hidden_size=dim,
        intermediate_size=given("ffn", -(-dim * 8 // 3 // 8) * 8),
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        rms_norm_eps=1e-5,
        tie_word_embeddings="untied" not in sys.argv,
        max_position_embeddings=seq,
        use_cache=False,
        attn_implementation="sdpa",
    )
    model = LlamaForCausalLM(config)
    first = model.model.layers[0]
    assert first.self_attn.head_dim == dim // heads
    assert model.config._attn_implementation == "sdpa"
    assert (model.lm_head.weight is model.model.embed_tokens.weight) == ("untied" not in sys.argv)
    assert all(weight.dtype == torch.float32 for weight in model.parameters())
    assert not any(name.endswith("bias") for name, _ in model.named_parameters())
    return model


def main() -> None:
    dim, layers, heads, kv_heads, seq, batch, steps, threads = map(int, sys.argv[1:9])
    torch.set_num_threads(threads)
    model = llama(dim, layers, heads, kv_heads, seq)
    rows = torch.randint(0, given("vocab", 256), (steps * batch, seq))
    data = [{"input_ids": row, "labels": row} for row in rows]  # the model shifts the labels
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            per_device_train_batch_size=batch,
            max_steps=steps,
            learning_rate=1e-3,
            weight_decay=0.1,
            adam_beta2=0.95,
            max_grad_norm=1.0,
            optim="adamw_torch_fused",
            bf16="bf16" in sys.argv,
            torch_compile="compile" in sys.argv,
            use_cpu=not ON_GPU,
            gradient_checkpointing="remat" in sys.argv,
            report_to=[],
            save_strategy="no",
            logging_steps=WINDOW,
            disable_tqdm=True,
        )
        clock = Clock(batch * seq)
        Trainer(model, arguments, train_dataset=data, callbacks=[clock]).train()
    weights = sum(weight.numel() for weight in model.parameters())
    versions = (
        f"transformers {transformers.__version__}, accelerate {accelerate.__version__}, torch {torch.__version__}"
    )
    memory = torch.cuda.max_memory_allocated() if ON_GPU else None
    report = {"weights": weights, "tokens_per_s": clock.speeds, "memory": memory, "versions": versions}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
