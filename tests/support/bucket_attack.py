"""What someone with write access to a bucket can do: replace files of a checkpoint and correct its manifest."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
from pathlib import Path
from typing import Any

from trainer.checkpoint.manifest import PROGRAM_FORMAT, Manifest, StepFolder


class RunsCommand:
    """A value whose pickle runs a command as it is loaded."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


def newest_checkpoint(bucket: Path) -> Path:
    """Return the folder of the newest checkpoint below a folder."""
    return max((path.parent for path in bucket.rglob("manifest.json")), key=lambda path: path.name)


def read_manifest(checkpoint: Path) -> Manifest:
    folder = StepFolder.parse(checkpoint.name)
    assert folder is not None
    return Manifest.from_json((checkpoint / "manifest.json").read_bytes(), folder, (PROGRAM_FORMAT,))


def list_saved(checkpoint: Path) -> dict[str, Path]:
    """Return the objects of a checkpoint by the names of the files that the program saved."""
    return {part.file: checkpoint / part.name for part in read_manifest(checkpoint).parts}


def replace_file(checkpoint: Path, file: str, content: bytes) -> None:
    """Replace a file of a checkpoint, and give its manifest the size and the digest of the new one."""
    path = checkpoint / "manifest.json"
    manifest = json.loads(path.read_text())
    part = next(part for part in manifest["parts"] if part["file"] == file)
    (checkpoint / part["name"]).write_bytes(content)
    part |= {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    path.write_text(json.dumps(manifest, indent=1))


def remove_signature(checkpoint: Path) -> None:
    """Leave a manifest as a program without a key writes it."""
    path = checkpoint / "manifest.json"
    manifest = json.loads(path.read_text())
    assert manifest.pop("signature")
    path.write_text(json.dumps(manifest, indent=1))


def pickle_command(command: str) -> bytes:
    return pickle.dumps(RunsCommand(command))


def save_command(command: str) -> bytes:
    """Return what `torch.save` writes of a value that runs a command."""
    import torch

    into = io.BytesIO()
    torch.save(RunsCommand(command), into)
    return into.getvalue()


def hide_in_shards(checkpoint: Path, command: str) -> None:
    """Give a value of a DCP checkpoint that is no tensor a pickle that runs a command, and leave the rest as it is."""
    from torch.distributed.checkpoint.metadata import BytesStorageMetadata

    saved = list_saved(checkpoint)
    index = pickle.loads(saved[".metadata"].read_bytes())
    values = {name for name, kind in index.state_dict_metadata.items() if isinstance(kind, BytesStorageMetadata)}
    hidden = save_command(command)
    for at, place in index.storage_data.items():
        if at.fqn not in values:
            continue
        content = saved[place.relative_path].read_bytes()
        replace_file(checkpoint, place.relative_path, content + hidden)
        place.offset, place.length = len(content), len(hidden)
    replace_file(checkpoint, ".metadata", pickle.dumps(index))
