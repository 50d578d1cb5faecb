"""A minimal torch loop of the trainer's model, written by hand, with which throughput.py compares the engine.

    python scripts/bench/plain_torch.py DIM LAYERS HEADS KV_HEADS SEQ BATCH STEPS THREADS [WORD ...]

WORD is bf16 (autocast), narrow (weights and moments are also bf16, a less exact training), compile (the model is one
program), step (torch.compile for the whole step with clipping and optimizer) or cpu (CPU time). It prints the number
of weights, tokens/s of each window of five steps and the versions, as JSON.
"""

from __future__ import annotations

import json
import sys
import time

import torch
import torch.nn.functional as F  # noqa: N812  # its usual name
from torch import Tensor, nn

VOCAB = 256
WINDOW = 5


class Block(nn.Module):
    def __init__(self, dim: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head = heads, kv_heads, dim // heads
        hidden = -(-dim * 8 // 3 // 8) * 8
        self.norm1, self.norm2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.qkv = nn.Linear(dim, (heads + 2 * kv_heads) * self.head, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        self.gate, self.up = nn.Linear(dim, hidden, bias=False), nn.Linear(dim, hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, dim = x.shape
        mixed = self.qkv(self.norm1(x)).view(batch, length, -1, self.head).transpose(1, 2)
        q, k, v = mixed.split([self.heads, self.kv_heads, self.kv_heads], dim=1)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = (t.repeat_interleave(self.heads // self.kv_heads, dim=1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, dim))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    def __init__(self, dim: int, layers: int, heads: int, kv_heads: int, length: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, dim)
        self.blocks = nn.ModuleList(Block(dim, heads, kv_heads) for _ in range(layers))
        self.norm = nn.RMSNorm(dim)
        head = dim // heads
        angles = torch.outer(torch.arange(length).float(), 10_000.0 ** -(torch.arange(0, head, 2) / head))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, rows: Tensor) -> Tensor:
        x = self.embedding(rows[:, :-1])
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits = F.linear(self.norm(x), self.embedding.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten())


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


def main() -> None:
    dim, layers, heads, kv_heads, seq, batch, steps, threads = map(int, sys.argv[1:9])
    words = set(sys.argv[9:])
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = Model(dim, layers, heads, kv_heads, seq)
    if "narrow" in words:
        model.bfloat16()
    step_model = torch.compile(model, dynamic=False) if "compile" in words else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)

    def step(rows: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled="bf16" in words):
            loss = step_model(rows)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    one = torch.compile(step, dynamic=False) if "step" in words else step
    rows = torch.randint(0, VOCAB, (steps, batch, seq + 1))
    clock = time.process_time if "cpu" in words else time.perf_counter
    speeds: list[float] = []
    began = clock()
    for number in range(steps):
        loss = one(rows[number])
        if (number + 1) % WINDOW == 0:
            loss.item()
            now = clock()
            speeds.append(WINDOW * batch * seq / (now - began))
            began = now
    weights = sum(weight.numel() for weight in model.parameters())
    print(json.dumps({"weights": weights, "tokens_per_s": speeds, "versions": f"torch {torch.__version__}"}))


if __name__ == "__main__":
    main()
