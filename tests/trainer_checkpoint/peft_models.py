"""Run transformers and peft in a process apart: `python peft_models.py make|load FOLDER FAMILY SIZES`.

make: write a small model to FOLDER/hf. load: write logits.npz with the logits of it, of it with FOLDER/adapter, and of
FOLDER/merged; save the adapter again to FOLDER/saved.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers


def main(command: str, folder: Path, family: str, sizes: str) -> None:
    torch.set_num_threads(1)
    if command == "make":
        config = transformers.AutoConfig.for_model(family, **json.loads(sizes))
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        draw = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for key, weight in model.named_parameters():
                weight.copy_(torch.randn(weight.shape, generator=draw) * 0.1 + ("norm" in key))
        model.save_pretrained(folder / "hf")
        return
    import peft

    rows = torch.arange(32).reshape(2, 16) * 7 % 256
    with torch.no_grad():
        base = _load(folder / "hf")
        found = {"base": base(rows).logits.numpy(), "merged": _load(folder / "merged")(rows).logits.numpy()}
        adapted: Any = peft.PeftModel.from_pretrained(base, folder / "adapter")
        found["adapted"] = adapted(rows).logits.numpy()
    adapted.save_pretrained(folder / "saved")
    np.savez(folder / "logits.npz", **found)


def _load(folder: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
