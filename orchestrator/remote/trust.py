"""The keys that a host may show: the pinned one, or for a user's own host the first one it showed."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping

from paramiko.hostkeys import HostKeys, InvalidHostKey

from orchestrator.hosts import Failure, HostAddress
from orchestrator.remote.failures import HostFailure
from orchestrator.remote.keys import add_known_host, known_hosts_lock

_RSA = ("rsa-sha2-512", "rsa-sha2-256")


class Trust:
    """The keys that one host may show. With empty `blobs` the first key is accepted and kept."""

    def __init__(self, address: HostAddress) -> None:
        self._address = address
        self.blobs: Mapping[str, bytes] = _pinned(address)

    @property
    def algorithms(self) -> tuple[str, ...] | None:
        """The host key algorithms to request; None for any."""
        if not self.blobs:
            return None
        return tuple(name for kind in self.blobs for name in (_RSA if kind == "ssh-rsa" else (kind,)))

    def check(self, blob: bytes) -> None:
        """Raise HostFailure(IDENTITY) unless `blob`, a key in SSH wire format, is a known one."""
        if self.blobs and blob not in self.blobs.values():
            expected = ", ".join(_fingerprint(known) for known in self.blobs.values())
            raise HostFailure(
                Failure.IDENTITY,
                f"{self._address.alias} showed the key {_fingerprint(blob)}, pinned is {expected}",
            )

    def accept(self, kind: str, blob: bytes) -> None:
        """Keep the key of a new host, after the host proved that it owns the key."""
        if self.blobs:
            return
        with known_hosts_lock(self._address.known_hosts):
            self.blobs = _stored(self._address)  # another process may have accepted a key meanwhile
            if not self.blobs:
                line = f"{kind} {base64.b64encode(blob).decode('ascii')}"
                add_known_host(self._address.known_hosts, self._address.alias, line)
                self.blobs = {kind: blob}
        self.check(blob)


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


def _fingerprint(blob: bytes) -> str:
    digest = base64.b64encode(hashlib.sha256(blob).digest()).decode("ascii").rstrip("=")
    return f"SHA256:{digest}"
