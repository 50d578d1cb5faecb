"""The keys that a host may show.

A machine that orch made has a pinned key. For a person's own machine those count that their `known_hosts` has; where it
has none, the pin of the machine; where there is none, the first key that the machine shows, which is pinned.
"""

from __future__ import annotations

import base64
import shlex
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Protocol

from paramiko import SSHException
from paramiko.hostkeys import HostKeyEntry, HostKeys, InvalidHostKey

from orchestrator.hosts import Failure, HostAddress, HostPin, PinReason, describe_key, fingerprint
from orchestrator.remote.failures import HostFailure
from orchestrator.remote.keys import add_known_host, known_hosts_lock, replace_known_host

_CONFIRMED = "only if its administrator confirms that fingerprint: "
_ASK = "ask its administrator"
_RSA = ("rsa-sha2-512", "rsa-sha2-256")


class HostPins(Protocol):
    """The pins of people's own machines, which outlive clusters. Called from several threads."""

    @property
    def named(self) -> Collection[str]:
        """The fingerprints that a person named: a machine that presents one of them is pinned to it."""
        ...

    def find(self, address: HostAddress) -> HostPin | None:
        """Return the pin of a machine, or None."""
        ...

    def keep(self, address: HostAddress, pin: HostPin, reason: PinReason, instead_of: HostPin | None) -> HostPin:
        """Pin a key, and return the pin that holds: another process may have been faster."""
        ...


class Trust:
    """The keys that one host may show. With empty `blobs` the first key is accepted and kept."""

    def __init__(self, address: HostAddress, pins: HostPins | None = None) -> None:
        """Read what is known. pins: Those of people's own machines; without them a key is kept for one cluster."""
        self._address = address
        own = address.own
        self._personal = read_known_hosts(own.known_hosts, own.known_as) if own is not None else KnownKeys()
        self._pins = pins if own is not None else None
        self._pin = self._pins.find(address) if self._pins is not None else None
        self.blobs: Mapping[str, bytes] = self._personal.accepted or self._pinned()

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The host key algorithms of the known keys, to be requested first; () for any."""
        return tuple(name for kind in self.blobs for name in (_RSA if kind == "ssh-rsa" else (kind,)))

    @property
    def shows_others(self) -> bool:
        """Whether a host that has no such key is asked for another, so that the refusal can name it."""
        return self._address.own is not None

    def check(self, blob: bytes) -> None:
        """Raise HostFailure(IDENTITY) unless `blob`, a key in SSH wire format, is a known one."""
        own = self._address.own
        if blob in self._personal.revoked:
            raise self._refusal(blob, "which your known_hosts marks as revoked", _ASK)
        if self._personal.accepted or not self._is_named(blob):
            self._refuse_other(blob)
        if not self.blobs and own is not None and own.strict:
            why = "your known_hosts has none, and your ssh has StrictHostKeyChecking yes"
            raise self._refusal(blob, why, f"{_CONFIRMED}add it to your known_hosts")

    def accept(self, kind: str, blob: bytes) -> None:
        """Keep the key of a new host, after the host proved that it owns the key.

        That of a person's own machine is written to the cluster's file too, from which `orch ssh` reads it.
        """
        if self._pins is not None:
            self._pin_key(self._pins, kind, blob)
        elif not self.blobs:
            self._keep_for_cluster(kind, blob)
        self._refuse_other(blob)
        if self._address.own is not None:
            write_known_keys(self._address, self.blobs or {kind: blob})

    def _refuse_other(self, blob: bytes) -> None:
        """Raise HostFailure(IDENTITY) for another key than the known ones, where there are any."""
        if not self.blobs or blob in self.blobs.values():
            return
        own, remedy = self._address.own, ""
        if own is not None:
            forget = f"ssh-keygen -R {shlex.quote(own.known_as)}; " if self._personal.accepted else ""
            remedy = f"{_CONFIRMED}{forget}orch check hosts FILE --accept-host-key {fingerprint(blob)}"
        raise self._refusal(blob, self._expectation(), remedy)

    def _pin_key(self, pins: HostPins, kind: str, blob: bytes) -> None:
        """Pin the key where the machine has no pin, or where a person named it."""
        named = self._is_named(blob)
        if self._pin is not None and not named:
            return
        reason = PinReason.NAMED if named else PinReason.KNOWN if self._personal.accepted else PinReason.FIRST
        self._pin = pins.keep(self._address, self._new_pin(kind, blob), reason, self._pin)
        self.blobs = self._personal.accepted or self._pinned()

    def _keep_for_cluster(self, kind: str, blob: bytes) -> None:
        with known_hosts_lock(self._address.known_hosts):
            self.blobs = read_kept_keys(self._address)  # another process may have accepted a key meanwhile
            if not self.blobs:
                add_known_host(self._address.known_hosts, self._address.alias, _line(kind, blob))
                self.blobs = {kind: blob}

    def _new_pin(self, kind: str, blob: bytes) -> HostPin:
        return HostPin(name=self._address.pin_name, kind=kind, key=base64.b64encode(blob).decode("ascii"))

    def _pinned(self) -> Mapping[str, bytes]:
        if self._pin is not None:
            return {self._pin.kind: base64.b64decode(self._pin.key)}
        if self._address.host_key is None:
            return read_kept_keys(self._address)
        kind, text = self._address.host_key.split()[:2]
        return {kind: base64.b64decode(text)}

    def _is_named(self, blob: bytes) -> bool:
        return self._pins is not None and fingerprint(blob) in self._pins.named

    def _expectation(self) -> str:
        expected = ", ".join(describe_key(kind, known) for kind, known in self.blobs.items())
        if self._personal.accepted:
            return f"your known_hosts has {expected}"
        if self._pin is not None:
            return describe_pin(self._pin)
        return f"pinned is {expected}"

    def _refusal(self, blob: bytes, why: str, remedy: str) -> HostFailure:
        name = self._address.pin_name or self._address.alias
        return HostFailure(
            Failure.IDENTITY, f"{name} presented {describe_key(_kind(blob), blob)}, {why}", remedy=remedy
        )


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
    """Return whether an entry is about the host, whose name is lower case: by name, by a pattern, or by a hash."""
    patterns = [one if one.startswith("|1|") else one.lower() for one in entry.hostnames or []]
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
    try:  # a pipe would keep this waiting
        return file.read_text("utf-8", errors="replace").splitlines() if file.is_file() else []
    except OSError:
        return []


def describe_pin(pin: HostPin) -> str:
    """Return since when, and by whom, which key is pinned."""
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(pin.since))
    return f"pinned since {when} by {pin.actor.rpartition(':')[0]}: {pin}"


def write_known_keys(address: HostAddress, keys: Mapping[str, bytes]) -> None:
    """Make these keys the only ones that the cluster's file has for the host."""
    if read_kept_keys(address) != keys:
        replace_known_host(address.known_hosts, address.alias, [_line(kind, blob) for kind, blob in keys.items()])


def _line(kind: str, blob: bytes) -> str:
    return f"{kind} {base64.b64encode(blob).decode('ascii')}"


def _kind(blob: bytes) -> str:
    """Return the type of a key in SSH wire format: its first string."""
    length = int.from_bytes(blob[:4], "big")
    return blob[4 : 4 + length].decode("ascii", "replace")


def read_kept_keys(address: HostAddress) -> Mapping[str, bytes]:
    """Return the keys that the cluster's file has for the host, by their kind."""
    known = HostKeys()
    try:
        known.load(str(address.known_hosts))
    except FileNotFoundError:
        return {}
    except InvalidHostKey as error:
        raise HostFailure(Failure.IDENTITY, f"{address.known_hosts} has a broken line: {error.line}") from error
    found = known.lookup(address.alias)
    return {} if found is None else {kind: found[kind].asbytes() for kind in found}
