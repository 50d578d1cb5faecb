"""The keys of hosts in a person's own files: known_hosts (sshd(8)) and RevokedHostKeys (ssh_config(5))."""

from __future__ import annotations

import base64
import hmac
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeAlias

Keys: TypeAlias = tuple[tuple[str, bytes], ...]
"""Keys of one host: the kind of each, such as "ssh-ed25519", and the key in SSH wire format."""

_KINDS = ("ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521")
_KRL_MAGIC = b"SSHKRL\n\0"  # PROTOCOL.krl of OpenSSH
_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownKeys:
    """What known_hosts files have about a host: its keys, keys that are revoked, and the last line that is broken."""

    accepted: Keys = ()
    revoked: frozenset[bytes] = frozenset()
    broken: str = ""


def read_known_hosts(files: Sequence[Path], name: str) -> KnownKeys:
    """Return the keys of a host, whose name is lower case. Lines that cannot be read count for nothing.

    Certificates of hosts (`@cert-authority`) are not served: such a host is accepted by its plain key.
    """
    accepted, revoked, broken = dict[tuple[str, bytes], None](), set[bytes](), ""
    for line in (line for file in files for line in _lines(file)):
        words = line.split(None, 4)
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if len(words) < 3 or marker not in ("", "@revoked") or not _names(words[0], name):
            continue
        key = _key(words[1], words[2])
        if key is None:
            broken = line
        elif marker:
            revoked.add(key[1])
        else:
            accepted[key] = None
    return KnownKeys(accepted=tuple(accepted), revoked=frozenset(revoked), broken=broken)


def is_revoked_by(file: Path, kind: str, blob: bytes) -> bool:
    """Return whether RevokedHostKeys names a key: a list of keys, or a key revocation list of ssh-keygen.

    Raises:
        OSError, SubprocessError: The file cannot be read. OpenSSH refuses every host then.
    """
    if file.is_fifo():  # it would keep this waiting
        raise OSError("it is a pipe")
    with file.open("rb") as content:
        if content.read(len(_KRL_MAGIC)) != _KRL_MAGIC:
            return any(_key(*words[:2]) == (kind, blob) for words in map(str.split, _lines(file)) if len(words) > 1)
    with tempfile.NamedTemporaryFile("w", suffix=".pub") as key:
        key.write(f"{kind} {base64.b64encode(blob).decode('ascii')}\n")
        key.flush()
        argv = ["ssh-keygen", "-Q", "-f", str(file), key.name]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False)
    return done.returncode != 0


def _key(kind: str, text: str) -> tuple[str, bytes] | None:
    try:
        blob = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return (kind, blob) if kind in _KINDS and key_kind(blob) == kind else None


def key_kind(blob: bytes) -> str:
    """Return the type of a key in SSH wire format: its first string."""
    length = int.from_bytes(blob[:4], "big")
    return blob[4 : 4 + length].decode("ascii", "replace")


def _names(written: str, name: str) -> bool:
    """Return whether the first word of an entry means the host: by its name, by a pattern, or by a hash."""
    if written.startswith("|1|"):
        return _is_hash_of(written, name)
    patterns = written.lower().split(",")
    if any(one.startswith("!") and _fits(one[1:], name) for one in patterns):
        return False
    return any(_fits(one, name) for one in patterns)


def _fits(pattern: str, name: str) -> bool:
    """Match as ssh does, whose patterns have only * and ?: `[` is literal, as in `[host]:2222`."""
    return fnmatchcase(name, pattern.replace("[", "[[]"))


def _is_hash_of(written: str, name: str) -> bool:
    try:
        salt, digest = (base64.b64decode(part) for part in written.removeprefix("|1|").split("|"))
    except ValueError:
        return False
    return hmac.compare_digest(hmac.digest(salt, name.encode(), "sha1"), digest)


def _lines(file: Path) -> Iterator[str]:
    try:  # a pipe would keep this waiting
        text = file.read_bytes().decode("utf-8", "replace") if file.is_file() else ""
    except OSError:
        return
    yield from (line for line in text.split("\n") if not line.lstrip().startswith("#"))
