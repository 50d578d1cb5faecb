"""Token shards of chats in which no token is trained on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from trainer.data.index import INDEX_NAME


def mask_all(folder: Path) -> None:
    """Make every token of shards one that is not trained on, as an earlier version stored chats without replies."""
    text = json.loads((folder / INDEX_NAME).read_text())
    for shard in text["shards"]:
        tokens = np.fromfile(folder / shard["name"], text["dtype"])
        np.where(tokens < 0, tokens, ~tokens).tofile(folder / shard["name"])
        shard["trained"] = 0
    (folder / INDEX_NAME).write_text(json.dumps(text))
