"""The SSH keys of a slice. All slices of an installation share one key pair of the user.

The hosts' private keys exist in memory and in the create request alone: no file and no row has one. Those of a request
that is sent again must be the same, so they follow from a secret of this computer and the slice's token. Another
computer has other keys; which ones the hosts have then, it takes from what the provider holds.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from filelock import FileLock

from orchestrator.paths import Paths
from orchestrator.private_files import make_private_folder, write_whole
from orchestrator.remote.keys import derive_host_key, make_host_key
from orchestrator.slices import SliceKeys

USER_KEY = "id_ed25519"
LOCK_SECONDS = 30.0
_HOST_SEED = "host-seed"
_OLD_HOST_KEYS = "hosts.json"  # in which an older orch kept the hosts' private keys


def make_slice_keys(paths: Paths, name: str, token: str, hosts: int) -> SliceKeys:
    """Return the keys of slice `name`: the same ones for the same token, on this computer."""
    folder = paths.keys(name)
    make_private_folder(folder)
    (folder / _OLD_HOST_KEYS).unlink(missing_ok=True)
    user_key, secret = make_user_key(paths), _host_secret(paths)
    pairs = [derive_host_key(secret, f"{token}/{rank}") for rank in range(hosts)]
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


def _host_secret(paths: Paths) -> bytes:
    """Return the secret of this computer from which its slices' host keys follow, made the first time."""
    path = paths.state / "keys" / _HOST_SEED
    make_private_folder(path.parent)
    with FileLock(path.with_name(".lock"), timeout=LOCK_SECONDS, mode=0o600):
        if not path.exists():
            write_whole(path, secrets.token_hex(32))
        return bytes.fromhex(path.read_text())
