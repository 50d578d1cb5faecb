"""The keys that a host may show.

A machine that orch made has a pinned key. For a person's own machine those count that their `known_hosts` has; where it
has none, the first key that the machine showed, which is kept.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from paramiko import SSHException
from paramiko.hostkeys import HostKeyEntry, HostKeys, InvalidHostKey

from orchestrator.hosts import Failure, HostAddress
from orchestrator.remote.failures import HostFailure
from orchestrator.remote.keys import add_known_host, known_hosts_lock, write_known_hosts

_RSA = ("rsa-sha2-512", "rsa-sha2-256")


class Trust:
    """The keys that one host may show. With empty `blobs` the first key is accepted and kept."""

    def __init__(self, address: HostAddress) -> None:
        self._address = address
        own = address.own
        self._personal = read_known_hosts(own.known_hosts, own.known_as) if own is not None else KnownKeys()
        self.blobs: Mapping[str, bytes] = self._personal.accepted or _pinned(address)

    @property
    def algorithms(self) -> tuple[str, ...] | None:
        """The host key algorithms to request; None for any."""
        if not self.blobs:
            return None
        return tuple(name for kind in self.blobs for name in (_RSA if kind == "ssh-rsa" else (kind,)))

    def check(self, blob: bytes) -> None:
        """Raise HostFailure(IDENTITY) unless `blob`, a key in SSH wire format, is a known one."""
        shown = f"{self._address.alias} showed the key {fingerprint(blob)}"
        if blob in self._personal.revoked:
            raise HostFailure(Failure.IDENTITY, f"{shown}, which your known_hosts marks as revoked")
        if self.blobs and blob not in self.blobs.values():
            expected = ", ".join(fingerprint(known) for known in self.blobs.values())
            where = "your known_hosts has" if self._personal.accepted else "pinned is"
            raise HostFailure(Failure.IDENTITY, f"{shown}, {where} {expected}")
        if not self.blobs and self._address.own is not None and self._address.own.strict:
            raise HostFailure(
                Failure.IDENTITY, f"{shown}, your known_hosts has none, and your ssh has StrictHostKeyChecking yes"
            )

    def accept(self, kind: str, blob: bytes) -> None:
        """Keep the key of a new host, after the host proved that it owns the key."""
        if self._personal.accepted:
            self._keep_personal(kind, blob)
        if self.blobs:
            return
        with known_hosts_lock(self._address.known_hosts):
            self.blobs = _stored(self._address)  # another process may have accepted a key meanwhile
            if not self.blobs:
                line = f"{kind} {base64.b64encode(blob).decode('ascii')}"
                add_known_host(self._address.known_hosts, self._address.alias, line)
                self.blobs = {kind: blob}
        self.check(blob)

    def _keep_personal(self, kind: str, blob: bytes) -> None:
        """Pin what the person's own file has, so that `orch ssh` accepts exactly this key."""
        if _stored(self._address).get(kind) != blob:
            line = f"{kind} {base64.b64encode(blob).decode('ascii')}"
            write_known_hosts(self._address.known_hosts, [replace(self._address, host_key=line, jump=None)])


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownKeys:
    """What a person's known_hosts files have about a host: keys by their kind, and keys that are revoked."""

    accepted: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    revoked: frozenset[bytes] = frozenset()


def read_known_hosts(files: Sequence[Path], name: str) -> KnownKeys:
    """Return the keys of a host, as sshd(8) describes the format. Lines that cannot be read count for nothing.

    Certificates of hosts (`@cert-authority`) are not served: such a host is accepted by its plain key.
    """
    known, accepted, revoked = HostKeys(), dict[str, bytes](), set[bytes]()
    for line in (line for file in files for line in _lines(file)):
        marker, _, rest = line.partition(" ") if line.startswith("@") else ("", "", line)
        try:
            entry = HostKeyEntry.from_line(rest.strip())
        except (InvalidHostKey, SSHException, ValueError):
            continue
        if entry is None or not _names(known, entry, name):
            continue
        if marker == "@revoked":
            revoked.add(entry.key.asbytes())
        elif not marker:
            accepted.setdefault(entry.key.get_name(), entry.key.asbytes())
    return KnownKeys(accepted=accepted, revoked=frozenset(revoked))


def _names(known: HostKeys, entry: HostKeyEntry, name: str) -> bool:
    """Return whether an entry is about the host: by name, by a pattern, or by a hash of the name."""
    patterns = entry.hostnames or []
    if any(one.startswith("!") and fnmatchcase(name, one[1:]) for one in patterns):
        return False
    return any(
        known.hash_host(name, one) == one if one.startswith("|1|") else fnmatchcase(name, _plain_brackets(one))
        for one in patterns
    )


def _plain_brackets(pattern: str) -> str:
    """Return the pattern with `[` taken literally, as in `[host]:2222`: ssh's patterns have only * and ?."""
    return pattern.replace("[", "[[]")


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _pinned(address: HostAddress) -> Mapping[str, bytes]:
    if address.host_key is None:
        return _stored(address)
    kind, text = address.host_key.split()[:2]
    return {kind: base64.b64decode(text)}


def _stored(address: HostAddress) -> Mapping[str, bytes]:
    known = HostKeys()
    try:
        known.load(str(address.known_hosts))
    except FileNotFoundError:
        return {}
    except InvalidHostKey as error:
        raise HostFailure(Failure.IDENTITY, f"{address.known_hosts} has a broken line: {error.line}") from error
    found = known.lookup(address.alias)
    return {} if found is None else {kind: found[kind].asbytes() for kind in found}


def fingerprint(blob: bytes) -> str:
    """Return the fingerprint of a key as ssh prints it."""
    digest = base64.b64encode(hashlib.sha256(blob).digest()).decode("ascii").rstrip("=")
    return f"SHA256:{digest}"
