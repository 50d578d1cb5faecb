"""The public address of this computer, which a firewall rule admits and no other."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Sequence
from ipaddress import IPv4Address
from typing import Protocol
from urllib.parse import urlsplit

from orchestrator.conversation import make_bounded_response
from orchestrator.errors import CloudError

# The first that answers counts. Google's was in the help of Google Domains until 2023 and is documented no longer;
# Amazon's is in the EC2 User Guide ("Security group rules", 2025).
PLACES = ("https://domains.google.com/checkip", "https://checkip.amazonaws.com/")
ASK_SECONDS = 5.0  # each
KEPT_SECONDS = 60.0  # a laptop may move while a command runs
_LONGEST_ANSWER = 256  # bytes


class Session(Protocol):
    """The credentials of one provider, as far as the address needs them.

    Attributes:
        loopback: Whether the cloud runs on this computer.
    """

    @property
    def loopback(self) -> bool: ...


def caller_address(session: Session, places: Sequence[str] = PLACES, *, instead: str = "access: iap") -> str:
    """Return one global IPv4 address, the only kind that the hosts have; on the loopback, that which its hosts see.

    `instead` is the setting that needs no such address, for the error.

    Raises:
        CloudError: No service reports it.
    """
    if session.loopback:
        return _source_address()
    tried: list[str] = []
    for place in places:
        name = urlsplit(place).hostname or place
        try:
            return _checked(_ask(place))
        except (OSError, http.client.HTTPException, ValueError) as error:
            tried.append(f"{name}: {' '.join(str(error).split())[:100] or type(error).__name__}")
    raise CloudError(
        "the public address of this computer is not known",
        "\n".join(tried),
        f"name it: ssh_cidr: YOUR.ADDRESS/32   or choose {instead}",
    )


class CallerAddress:
    """The address of this computer as CIDR, asked for once a minute at most."""

    def __init__(self, session: Session, *, instead: str = "access: iap") -> None:
        self._session = session
        self._instead = instead
        self._known = ("", 0.0)

    def read(self) -> str:
        """Return the address, such as 203.0.113.7/32.

        Raises:
            CloudError: No service reports it.
        """
        address, at = self._known
        if not address or time.monotonic() - at > KEPT_SECONDS:
            address = f"{caller_address(self._session, instead=self._instead)}/32"
            self._known = (address, time.monotonic())
        return address


def _source_address() -> str:
    """Return the address from which this computer reaches its own loopback; nothing is sent.

    In a network namespace with a route for 127.0.0.0/8 it is that of the namespace.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("127.0.0.1", 9))
        return str(probe.getsockname()[0])


def _ask(place: str) -> str:
    """Return the first line of a page.

    It is requested over IPv4, so that there is one address, and past any HTTP proxy, as SSH goes past it too.
    """
    parts = urlsplit(place)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.netloc, timeout=ASK_SECONDS, source_address=("0.0.0.0", 0))  # noqa: S104 - IPv4, no server
    connection.response_class = make_bounded_response(ASK_SECONDS, _LONGEST_ANSWER)
    try:
        connection.request("GET", parts.path or "/")
        answer = connection.getresponse()
        if answer.status != 200:
            raise ValueError(f"it answered {answer.status}")
        return answer.read(_LONGEST_ANSWER).decode("ascii").strip()
    finally:
        connection.close()


def _checked(word: str) -> str:
    address = IPv4Address(word)
    if not address.is_global or address.is_multicast:
        raise ValueError(f"{address} is not a public address")
    return str(address)
