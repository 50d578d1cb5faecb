"""Checkpoints of own programs whose writer is unknown: they lack the signature of their run's key."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass

from orchestrator.storage.bucket import Bucket
from orchestrator.storage.checkpoints import Checkpoint, iterate_checkpoints, read_same_manifest
from trainer.checkpoint.manifest import PROGRAM_FORMAT
from trainer.checkpoint.signature import is_manifest_signed

MOST_UNSIGNED = 20
"""Checkpoints that are shown, and that a person can agree to in one answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsignedCheckpoint:
    """A complete checkpoint without its run's signature.

    Attributes:
        digest: SHA-256 of its manifest, which has the digests of its files.
    """

    checkpoint: Checkpoint
    digest: str


def find_unsigned(bucket: Bucket, run_id: str, key: bytes, agreed: Collection[str]) -> tuple[UnsignedCheckpoint, ...]:
    """Return the checkpoints that a resume would come to before a signed one, newest first.

    Args:
        bucket: The bucket.
        run_id: The run.
        key: Of the run; empty where it is not known, and nothing counts as signed.
        agreed: Digests of manifests to which someone has agreed; they count as signed.

    Raises:
        OrchError: What Bucket methods raise.
    """
    found: list[UnsignedCheckpoint] = []
    for one in iterate_checkpoints(bucket, run_id):
        if not isinstance(one, Checkpoint):
            continue
        if one.manifest.format != PROGRAM_FORMAT or is_manifest_signed(one.manifest, key):
            break
        digest = hashlib.sha256(read_same_manifest(bucket, one)).hexdigest()
        if digest in agreed or len(found) == MOST_UNSIGNED:
            break
        found.append(UnsignedCheckpoint(checkpoint=one, digest=digest))
    return tuple(found)
