"""`python -m trainer check`: does the chosen device compute, and compute the same as the processor?"""

from __future__ import annotations

import math

import torch

from trainer.accelerators.registry import open_accelerator
from trainer.config import Config
from trainer.environment import World
from trainer.errors import DeviceError
from trainer.model import Transformer

_TOLERANCE = {"fp32": 1e-3, "bf16": 5e-2}


def check(config: Config) -> str:
    """One line that says what works. Raises DeviceError."""
    accelerator = open_accelerator(config.device, World())
    count = math.lcm(4, accelerator.parts)
    rows = torch.arange(count * (config.seq_len + 1)).remainder(256).to(torch.uint8).view(count, -1).numpy()
    model = Transformer(config.model, config.seq_len)
    model.initialise(config.seed)
    expected = model(torch.as_tensor(rows)).item()
    try:
        model = model.to(accelerator.device)
        with accelerator.autocast(config.dtype):
            loss = model(accelerator.to_device(rows))
        loss.backward()
        accelerator.boundary()
        accelerator.synchronize()
        found = loss.item()
    except RuntimeError as error:
        raise DeviceError(f"device={accelerator.name}: a small model does not run: {error}") from error
    if abs(found - expected) > _TOLERANCE[config.dtype]:
        raise DeviceError(f"device={accelerator.name}: loss {found} instead of {expected}: it computes wrongly")
    described = accelerator.describe()
    return f"ok: {accelerator.name} ({described.name}), {config.dtype}, torch {torch.__version__}"
