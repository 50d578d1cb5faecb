"""Which checkpoints an own program loads: files of a program may be code, and a bucket has other writers.

With the run's key (ORCH_RUN_KEY), only those that carry its signature, or whose manifest someone has agreed to
(ORCH_TRUSTED_CHECKPOINTS). Without a key, those of a local folder, which is as safe as the program beside it, and those
of a bucket only after the same consent.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from ..checkpoint.manifest import Manifest
from ..checkpoint.signature import is_manifest_signed
from ..checkpoint.store import Store
from ..environment import Run
from ..errors import StorageError

ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """What a start of the program loads.

    Attributes:
        key: Of the run; empty for none.
        agreed: SHA-256 of manifests to which someone agreed, or ALL.
        resumed_by: The command that asks for consent; "" without orch.
        is_local: Whether the folder of checkpoints is on this computer's disks.
    """

    key: bytes = field(repr=False)
    agreed: frozenset[str]
    resumed_by: str
    is_local: bool

    def check(self, store: Store, manifest: Manifest, text: bytes) -> None:
        """Refuse a checkpoint that anyone could have written, before a file of it is read.

        Args:
            store: The folder of checkpoints.
            manifest: Of the checkpoint.
            text: The content of its file.

        Raises:
            StorageError: No one agreed to it, and it does not carry the signature of this run.
        """
        digest = hashlib.sha256(text).hexdigest()
        if ALL in self.agreed or digest in self.agreed or is_manifest_signed(manifest, self.key):
            return
        if not self.key and self.is_local:
            return
        what = f"{store.uri}/{manifest.folder} does not carry the signature of this run, so it is not loaded"
        if not self.key:
            what = f"{store.uri}/{manifest.folder} is not loaded: without ORCH_RUN_KEY its writer is unknown"
        raise StorageError(
            f"{what}: whoever can write there may have put code into it. If it is yours, "
            + (self.resumed_by or f"set ORCH_TRUSTED_CHECKPOINTS={digest}, and from then on an ORCH_RUN_KEY")
        )


def make_trust(run: Run, store: Store, *, resumable: bool) -> Trust:
    """Return what a start of a program loads from a folder of checkpoints.

    Args:
        run: As the launcher set it.
        store: The folder.
        resumable: Whether `orch resume` looks into this folder.
    """
    command = f"agree to it: orch resume {run.run_id} --trust-bucket" if resumable else ""
    return Trust(key=run.key, agreed=run.trusted, resumed_by=command, is_local=store.uri.startswith("file://"))
