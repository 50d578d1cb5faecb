"""A host that breaks the protocol in its first messages is one failed host: no other host and no command suffers."""

from __future__ import annotations

import resource
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.evil_protocol import BANNER, evil_host, goodbye, key_exchange, key_reply, packet, text
from support.sshd import Farm, sshd_farm

from orchestrator.hosts import Failure
from orchestrator.remote.fleet import Fleet

_KEY = text(b"ssh-ed25519") + text(b"1" * 32)
_SIGNATURE = text(b"ssh-ed25519") + text(b"q" * 64)
_SENT = {
    "goodbye that is not UTF-8": goodbye(b"\xff\xfe bye"),
    "empty packet": struct.pack(">IB", 12, 11) + b"\0" * 11,
    "more padding than packet": struct.pack(">IB", 12, 255) + b"\0" * 11,
    "packet of no bytes": b"\0" * 100,
    "names that are not UTF-8": packet(b"\x14" + b"\0" * 16 + text(b"\xff\xff") * 10),
    "unknown message": packet(b"\xfa" + b"x" * 20),
    "point of three bytes": key_exchange() + key_reply(_KEY, b"y" * 3, _SIGNATURE),
    "point of order one": key_exchange() + key_reply(_KEY, b"\0" * 32, _SIGNATURE),
    "key of five bytes": key_exchange() + key_reply(text(b"ssh-ed25519") + text(b"1" * 5), b"y" * 32, _SIGNATURE),
    "key without a kind": key_exchange() + key_reply(text(b"\xff\xfe") + text(b"1" * 32), b"y" * 32, _SIGNATURE),
    "key of no bytes": key_exchange() + key_reply(b"", b"y" * 32, b""),
    "another message than the answer": key_exchange() * 2,
}


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    with sshd_farm(tmp_path_factory.mktemp("evil"), 1) as farm:
        yield farm


@pytest.mark.parametrize("sent", _SENT)
def test_host_that_breaks_the_protocol_is_one_lost_host(farm: Farm, tmp_path: Path, sent: str) -> None:
    pins = tmp_path / "known_hosts"
    with evil_host(BANNER + _SENT[sent]) as port:
        evil = replace(farm.addresses[0], rank=1, alias="evil", port=port, host="127.0.0.1", host_key=None)
        with Fleet([farm.addresses[0], replace(evil, known_hosts=pins)], deadline=5) as fleet:
            good, bad = (host.outcome for host in fleet.run("true", timeout=60).hosts)
    assert good.ok
    assert bad.failure is Failure.LOST, bad
    assert "during the handshake: " in bad.detail
    assert not pins.exists() or not pins.read_text(), "its key was pinned"


def test_packet_of_gigabytes_is_refused_when_it_is_announced(farm: Farm) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with evil_host(BANNER + struct.pack(">IB", 0x7FFFFFFC, 4), b"\0" * 65536) as port:
        evil = replace(farm.addresses[0], port=port, host="127.0.0.1")
        with Fleet([evil], deadline=20) as fleet:
            outcome = fleet.run("true", timeout=60).hosts[0].outcome
    assert outcome.failure is Failure.LOST
    assert "announced a packet of 2147483" in outcome.detail
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024, "KiB"
