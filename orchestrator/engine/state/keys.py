"""The SSH keys of a slice, made once before its create request and found again by every later command.

All slices of an installation share one key pair of the user. Each host's own key is made here too, so that it is pinned
before the host exists.
"""

from __future__ import annotations

import json
from pathlib import Path

from filelock import FileLock

from orchestrator.paths import Paths
from orchestrator.private_files import make_private_folder, write_whole
from orchestrator.remote.keys import make_host_key
from orchestrator.slices import SliceKeys

USER_KEY = "id_ed25519"
LOCK_SECONDS = 30.0


def load_slice_keys(paths: Paths, name: str, hosts: int) -> SliceKeys:
    """Return the keys of slice `name`, and make them the first time."""
    folder = paths.keys(name)
    user_key = make_user_key(paths)
    stored = folder / "hosts.json"
    if not stored.exists():
        pairs = [make_host_key() for _ in range(hosts)]
        make_private_folder(folder)
        write_whole(stored, json.dumps(pairs))
    pairs = [(str(private), str(public)) for private, public in json.loads(stored.read_text())]
    return SliceKeys(
        user_public=user_key.with_suffix(".pub").read_text().strip(),
        identity_file=str(user_key),
        known_hosts=str(folder / "known_hosts"),
        host_private=tuple(private for private, _ in pairs),
        host_public=tuple(public for _, public in pairs),
    )


def delete_slice_keys(paths: Paths, name: str) -> None:
    """Delete the keys of a slice that no longer exists."""
    folder = paths.keys(name)
    if not folder.exists():
        return
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


def make_user_key(paths: Paths) -> Path:
    """Return the private key of this computer, made the first time; the public one lies beside it."""
    path = paths.state / "keys" / USER_KEY
    make_private_folder(path.parent)
    # Two concurrent first commands must agree on one key.
    with FileLock(path.with_name(".lock"), timeout=LOCK_SECONDS, mode=0o600):
        if not path.exists():
            private, public = make_host_key()
            write_whole(path.with_suffix(".pub"), f"{public} orch\n")
            write_whole(path, private)
    return path
