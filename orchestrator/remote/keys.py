"""Host keys made by orch, and the known_hosts file that pins them under a resource's name."""

from __future__ import annotations

import hashlib
import hmac
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from filelock import FileLock

from orchestrator.hosts import HostAddress
from orchestrator.private_files import make_private_folder
from orchestrator.remote.private_key_file import format_private_key, format_public_key

_LOCK_SECONDS = 30.0


def make_host_key() -> tuple[str, str]:
    """Return a new Ed25519 key: the private key file in OpenSSH's format, and the line "ssh-ed25519 AAAA..."."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private.decode("ascii"), public.decode("ascii")


def derive_host_key(secret: bytes, name: str) -> tuple[str, str]:
    """Return the Ed25519 key that follows from a secret and a name, in the forms of `make_host_key`."""
    seed = hmac.new(secret, b"orch host key\0" + name.encode(), hashlib.sha256).digest()
    key = Ed25519PrivateKey.from_private_bytes(seed).public_key()
    public = key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return format_private_key(seed + public), format_public_key(public)


def derive_public_key(private: str) -> str:
    """Return the line "ssh-ed25519 AAAA..." of a private key file without a passphrase. Raises ValueError."""
    key = serialization.load_ssh_private_key(private.encode(), None).public_key()
    return key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode("ascii")


def read_public_key(path: Path) -> str:
    """Return the public line of a private key file in OpenSSH's format.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is no such key, or it has a passphrase.
    """
    key = serialization.load_ssh_private_key(path.read_bytes(), None)
    line = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return line.decode("ascii")


def known_hosts_line(alias: str, public_line: str, port: int | None = None) -> str:
    """Return one line of known_hosts. With HostKeyAlias OpenSSH searches the bare alias, so port is None there."""
    kind, blob = public_line.split()[:2]
    name = alias if port in (None, 22) else f"[{alias}]:{port}"
    return f"{name} {kind} {blob}\n"


def write_known_hosts(path: Path, addresses: Iterable[HostAddress]) -> None:
    """Pin the keys of `addresses` (and of their jump hosts) in `path`, in one step.

    A pinned alias loses its other lines; lines of other aliases (keys that were accepted once) stay.
    """
    pinned: dict[str, str] = {}
    for address in addresses:
        hop: HostAddress | None = address
        while hop is not None:
            if hop.host_key is not None:
                pinned[hop.alias] = known_hosts_line(hop.alias, hop.host_key)
            hop = hop.jump
    with known_hosts_lock(path):
        kept = [line for line in _lines(path) if line.split(" ", 1)[0] not in pinned]
        _replace(path, "".join([*kept, *pinned.values()]))


def replace_known_host(path: Path, alias: str, public_lines: Iterable[str]) -> None:
    """Make these the only keys that `path` has for one alias, in one step."""
    with known_hosts_lock(path):
        kept = [line for line in _lines(path) if line.split(" ", 1)[0] != alias]
        _replace(path, "".join([*kept, *(known_hosts_line(alias, line) for line in public_lines)]))


def add_known_host(path: Path, alias: str, public_line: str) -> None:
    """Append one key to `path`; the caller holds `lock_of(path)`."""
    _replace(path, "".join([*_lines(path), known_hosts_line(alias, public_line)]))


def known_hosts_lock(path: Path) -> FileLock:
    """Return the lock that every writer of `path` holds. Makes the folder of the lock file."""
    make_private_folder(path.parent)
    return FileLock(f"{path}.lock", timeout=_LOCK_SECONDS, mode=0o600)


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text("utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return []
    return [line + "\n" for line in text.splitlines()]


def _replace(path: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
