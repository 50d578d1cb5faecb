"""The rendezvous of a run's processes: rank 0 listens, the others connect until they are admitted.

Each greeting names the run, the attempt, the number of ranks and the rank. Another program, a rank of an earlier
attempt and a second process with the same rank are rejected, each with the reason.
"""

from __future__ import annotations

import contextlib
import ipaddress
import secrets
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainer.environment import World, split_address
from trainer.wire import (
    MAX_BYTES,
    MAX_GREETING_BYTES,
    ConnectionClosed,
    Inbox,
    InvalidMessage,
    as_object,
    configure_socket,
    send_value,
)

GREETING_SECONDS = 10.0
TORCHRUN_PORTS = 16
"""Under torchrun its agent may hold MASTER_PORT itself: rank 0 takes the first free one of the 16 above it (below it
near the end of the range), and the others try them all."""
_PAUSE = 0.1


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Where the ranks of one attempt meet.

    Attributes:
        world: Which rank this process is.
        identity: The same on all ranks of one attempt at one run, and on no others.
    """

    world: World
    identity: str

    @property
    def host(self) -> str:
        return split_address("the coordinator", self.world.coordinator)[0]

    @property
    def ports(self) -> Sequence[int]:
        """The ports, in the order in which they are tried."""
        _, port = split_address("the coordinator", self.world.coordinator)
        if self.world.launcher != "torchrun":
            return (port,)
        step = 1 if port + TORCHRUN_PORTS < 65536 else -1
        return range(port + step, port + step * (TORCHRUN_PORTS + 1), step)


class RendezvousServer:
    """Rank 0's side: admits ranks, channel by channel, while the team exists."""

    def __init__(self, rendezvous: Rendezvous, deadline: float) -> None:
        """Listen.

        Raises:
            OSError: No port is free before the deadline (of time.monotonic()).
        """
        self._rendezvous = rendezvous
        self._token = secrets.token_hex(16)
        self._inboxes: dict[tuple[int, int], Inbox] = {}
        self._changed = threading.Condition()
        self._rejection = ""
        self._listener = _listen(rendezvous, deadline)
        threading.Thread(target=self._accept_connections, name="rendezvous", daemon=True).start()

    def wait_for_all(self, channel: int, deadline: float) -> dict[int, Inbox]:
        """Return the connections of all ranks but 0, by rank; those that did not arrive by the deadline are missing."""
        ranks = range(1, self._rendezvous.world.size)
        with self._changed:
            while not all((channel, rank) in self._inboxes for rank in ranks):
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            return {rank: self._inboxes[channel, rank] for rank in ranks if (channel, rank) in self._inboxes}

    def reject_second_ranks(self) -> None:
        """Reject, from now on, a second process for a rank that has arrived."""
        with self._changed:
            self._rejection = "this rank is already here"

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread in `accept`
        self._listener.close()
        with self._changed:
            for inbox in self._inboxes.values():
                inbox.connection.close()

    def _accept_connections(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # closed
            # One thread each, for at most GREETING_SECONDS: a silent connection delays no other.
            threading.Thread(
                target=self._admit_rank, args=(connection,), name="rendezvous-greeting", daemon=True
            ).start()

    def _admit_rank(self, connection: socket.socket) -> None:
        deadline = time.monotonic() + GREETING_SECONDS
        inbox = Inbox(configure_socket(connection), MAX_GREETING_BYTES)
        try:
            greeting = as_object(inbox.receive(deadline))
            refusal = self._refusal(greeting)
            if refusal:
                send_value(connection, {"refused": refusal}, deadline)
                connection.close()
                return
            inbox.limit = MAX_BYTES
            key = int(greeting["channel"]), int(greeting["rank"])
            with self._changed:
                before = self._inboxes.get(key)
                if before is not None and self._rejection:
                    send_value(connection, {"refused": self._rejection}, deadline)
                    connection.close()
                    return
                # The answer goes out first, so that nothing else can overtake it.
                send_value(connection, {"welcome": self._token}, deadline)
                self._inboxes[key] = inbox
                self._changed.notify_all()
            if before is not None:
                before.connection.close()
        except (ConnectionClosed, InvalidMessage, TimeoutError, OSError):
            connection.close()

    def _refusal(self, greeting: Mapping[str, Any]) -> str:
        if "identity" not in greeting:
            return "not a rank of a trainer"
        world = self._rendezvous.world
        identity, given = self._rendezvous.identity, str(greeting["identity"])
        if given != identity:
            # Only a rank of the same run learns the identity: it is what lets a rank in.
            is_same_run = given.partition(" attempt ")[0] == identity.partition(" attempt ")[0]
            return f"this is {identity if is_same_run else 'another run'}, not {given}"
        if greeting.get("size") != world.size:
            return f"this run has {world.size} ranks, not {greeting.get('size')}"
        rank, channel = greeting.get("rank"), greeting.get("channel")
        if not isinstance(rank, int) or not 0 < rank < world.size or not isinstance(channel, int):
            return f"there is no rank {rank}"
        if channel and greeting.get("token") != self._token:
            return "this channel belongs to another rendezvous"
        return ""


def connect_to_first_rank(rendezvous: Rendezvous, channel: int, token: str, deadline: float) -> tuple[Inbox, str]:
    """Connect to rank 0; return the connection and the token for further channels.

    Raises:
        TimeoutError: The deadline passed; with the last rejection, or why no connection was possible.
    """
    greeting = {
        "identity": rendezvous.identity,
        "size": rendezvous.world.size,
        "rank": rendezvous.world.rank,
        "channel": channel,
        "token": token,
    }
    reason, refusal = "nothing listens there", ""
    while True:
        for port in rendezvous.ports:
            try:
                return _request_admission(rendezvous.host, port, greeting, deadline)
            except (ConnectionClosed, InvalidMessage, OSError) as error:
                reason = str(error) or reason
            except _Refused as refused:
                refusal = f"port {port} answers: {refused}"
        if time.monotonic() + _PAUSE > deadline:
            raise TimeoutError(refusal or reason)  # the last reason may only be that the rejecting process has ended
        time.sleep(_PAUSE)


class _Refused(Exception):
    pass


def _request_admission(host: str, port: int, greeting: dict[str, Any], deadline: float) -> tuple[Inbox, str]:
    limit = min(deadline, time.monotonic() + GREETING_SECONDS)
    left = max(0.05, limit - time.monotonic())
    connection = configure_socket(socket.create_connection((host, port), timeout=left))
    try:
        send_value(connection, greeting, limit)
        inbox = Inbox(connection)
        answer = as_object(inbox.receive(limit))
    except BaseException:
        connection.close()
        raise
    if "welcome" not in answer:
        connection.close()
        raise _Refused(str(answer.get("refused", "something else")))
    return inbox, str(answer["welcome"])


def find_free_port(host: str) -> int:
    """Return a port of this machine on which no process listens now, on any address of the host's family.

    The servers of torch and JAX listen on all addresses, also where the host is one of loopback.
    """
    family, _ = _own_address(host, 0)
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def _listen(rendezvous: Rendezvous, deadline: float) -> socket.socket:
    while True:
        failure: OSError | None = None
        for port in rendezvous.ports:
            family, place = _own_address(rendezvous.host, port)
            listener = socket.socket(family, socket.SOCK_STREAM)
            try:
                # The kernel may still hold connections of an earlier attempt.
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(place)
                listener.listen(1024)
            except OSError as error:
                listener.close()
                failure = error
                continue
            return listener
        if failure is not None and time.monotonic() + _PAUSE > deadline:
            raise failure
        time.sleep(_PAUSE)  # an earlier attempt may still be ending


def _own_address(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    # A loopback coordinator is for this machine alone. Any other name may be unknown to this machine itself (the
    # external address of a cloud's host), so rank 0 listens on all addresses.
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        return socket.AF_INET, ("", port)
    if address.version == 6:
        return socket.AF_INET6, (host if address.is_loopback else "::", port)
    return socket.AF_INET, (str(address) if address.is_loopback else "", port)
