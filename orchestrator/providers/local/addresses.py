"""Loopback addresses for pretend hosts.

On Linux all of 127.0.0.0/8 is this computer, so each host gets an address of its own; elsewhere only 127.0.0.1 can be
bound, and the hosts differ by port.
"""

from __future__ import annotations

import errno
import hashlib
import socket
from collections.abc import Sequence
from dataclasses import dataclass

# Below the ports that systems give to outgoing connections (32768 and up on Linux) and off torch's usual 29500.
_FIRST_PORT, _LAST_PORT = 20000, 28999
_TRIES = 200


@dataclass(frozen=True, slots=True)
class Place:
    """Where one host listens."""

    host: str
    port: int


def choose_places(seed: str, count: int) -> tuple[Place, ...]:
    """Places for `count` hosts, the same for the same seed unless something else holds a port."""
    number = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big")
    hosts = [loopback_address(number + rank) for rank in range(count)]
    if not all(_can_use(host) for host in hosts[:1] + hosts[-1:]):
        hosts = ["127.0.0.1"] * count
    first_port = _FIRST_PORT + number % (_LAST_PORT - _FIRST_PORT)
    places: list[Place] = []
    for host in hosts:
        places.append(_free_place(host, first_port, places))
    return tuple(places)


def keep_free(places: Sequence[Place], ranks: Sequence[int], *, other: bool = False) -> tuple[Place, ...]:
    """The same places, with another port for those of `ranks` whose port something else holds by now.

    other: another port for each of `ranks`, even where theirs seems free.
    """
    kept = list(places)
    for rank in ranks:
        taken = [place for index, place in enumerate(kept) if index != rank or other]
        kept[rank] = _free_place(kept[rank].host, kept[rank].port, taken)
    return tuple(kept)


def is_free(place: Place) -> bool:
    """Can sshd listen there now?"""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as sshd does
        try:
            probe.bind((place.host, place.port))
            probe.listen(1)
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True


def loopback_address(number: int) -> str:
    """One of the 254 x 256 x 254 addresses from 127.1.0.1 to 127.254.255.254."""
    rest, last = divmod(number, 254)
    second, third = divmod(rest, 256)
    return f"127.{second % 254 + 1}.{third}.{last + 1}"


def _free_place(host: str, port: int, others: Sequence[Place]) -> Place:
    taken = {place.port for place in others if place.host == host}
    for step in range(_TRIES):
        place = Place(host, _FIRST_PORT + (port - _FIRST_PORT + step) % (_LAST_PORT - _FIRST_PORT))
        if place.port not in taken and is_free(place):
            return place
    raise OSError(errno.EADDRINUSE, f"no free port at {host} among {_TRIES} from {port}")


def _can_use(host: str) -> bool:
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind((host, 0))
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            return False
        raise
    return True
