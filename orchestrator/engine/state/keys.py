"""The SSH keys of a slice. All slices of an installation share one key pair of the user.

The hosts' private keys exist in memory and in the create request alone: no file and no row has one. Those of a request
that is sent again must be the same, so they follow from a secret of this computer and the slice's token. Another
computer has other keys; which ones the hosts have then, it takes from what the provider holds.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shlex
import stat
from pathlib import Path

from filelock import FileLock

from orchestrator.computer import Computer, read_computer
from orchestrator.engine.state.recovery_key import read_recovery_key
from orchestrator.errors import OrchError, UserError
from orchestrator.paths import Paths
from orchestrator.private_files import make_private_folder, write_whole
from orchestrator.remote.keys import derive_host_key, make_host_key, read_public_key
from orchestrator.slices import SliceKeys
from orchestrator.task.config import load_config

USER_KEY = "id_ed25519"
LOCK_SECONDS = 30.0
_HOST_SEED = "host-seed"
ENGINE_KEY = "ORCH_ENGINE_KEY"  # path of the key that all engines of an installation share, from a mounted secret
ENGINE = "engine"  # what the computer with that key is called


def make_slice_keys(paths: Paths, name: str, token: str, hosts: int) -> SliceKeys:
    """Return the keys of slice `name`: the same ones for the same token, on this computer."""
    folder = paths.keys(name)
    make_private_folder(folder)
    user_key, secret = make_user_key(paths), _host_secret(paths)
    pairs = [derive_host_key(secret, f"{token}/{rank}") for rank in range(hosts)]
    return SliceKeys(
        user_public=user_key.with_suffix(".pub").read_text().strip(),
        identity_file=str(user_key),
        known_hosts=str(folder / "known_hosts"),
        host_private=tuple(private for private, _ in pairs),
        host_public=tuple(public for _, public in pairs),
        recovery_public=read_recovery_key(load_config(os.environ)),
    )


def delete_slice_keys(paths: Paths, name: str) -> None:
    """Delete the keys of a slice that no longer exists."""
    folder = paths.keys(name)
    if not folder.exists():
        return
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


def identify_computer(paths: Paths) -> tuple[Computer, str]:
    """Return this computer, and its public key without a comment.

    Engines with one key are one computer, on whatever disks they run: its id is made of the key.

    Raises:
        OrchError: The id or the key cannot be read or made.
    """
    try:
        public = " ".join(make_user_key(paths).with_suffix(".pub").read_text().split()[:2])
    except OSError as error:
        where = paths.state / "keys"
        raise OrchError("this computer's key cannot be read or made", str(error), f"see {where}") from error
    if not os.environ.get(ENGINE_KEY):
        return read_computer(paths.state), public
    return Computer(id=hashlib.sha256(public.encode()).hexdigest()[:12], host=ENGINE), public


def make_user_key(paths: Paths) -> Path:
    """Return the private key of this computer, made the first time; the public one lies beside it.

    Where ORCH_ENGINE_KEY names a key, it is a link to that one, so that nothing of it is written to this disk.

    Raises:
        UserError: The key that ORCH_ENGINE_KEY names cannot be used.
    """
    path = paths.state / "keys" / USER_KEY
    if not os.environ.get(ENGINE_KEY) and path.exists() and not path.is_symlink():
        return path  # written last; a disk that is only read needs no lock
    make_private_folder(path.parent)
    # Two concurrent first commands must agree on one key.
    with FileLock(path.with_name(".lock"), timeout=LOCK_SECONDS, mode=0o600):
        if given := os.environ.get(ENGINE_KEY):
            _link_engine_key(Path(given).expanduser().absolute(), path)
        elif path.is_symlink():
            raise UserError(
                f"the key of this state folder is that of an engine, and {ENGINE_KEY} is not set",
                f"{path} leads to {path.readlink()}",
                f"export {ENGINE_KEY}={path.readlink()}   or use another ORCH_HOME",
            )
        elif not path.exists():
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


def _link_engine_key(given: Path, path: Path) -> None:
    """Make `path` a link to the engine's key, with its public half beside it. Raises UserError."""
    if path.exists() and not path.is_symlink():
        raise UserError(
            f"{ENGINE_KEY} is set, and this state folder has another key",
            f"{path} is the key of this computer, which hosts may know",
            f"run the engine with another ORCH_HOME, or unset {ENGINE_KEY}",
        )
    try:
        mode = stat.S_IMODE(given.stat().st_mode)
        if mode & 0o077:
            why = f"others may read it (mode {mode:04o}); OpenSSH ignores such a key"
            raise UserError(f"{ENGINE_KEY}={given} cannot be used", why, f"chmod 600 {shlex.quote(str(given))}")
        public = read_public_key(given)
    except (OSError, ValueError) as error:
        why = " ".join(str(error).split())[:200] or type(error).__name__
        next_step = "name a private key without a passphrase: ssh-keygen -t ed25519 -N '' -f KEY"
        raise UserError(f"{ENGINE_KEY}={given} cannot be used", why, next_step) from error
    write_whole(path.with_suffix(".pub"), f"{public} orch\n")
    if not path.is_symlink() or path.readlink() != given:
        path.unlink(missing_ok=True)
        path.symlink_to(given)
