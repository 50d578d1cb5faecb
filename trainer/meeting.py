"""Where the processes of a run find each other: rank 0 listens, the others knock until they are let in.

Who knocks says which run and attempt it belongs to, how many ranks it knows of and which it is. A stranger, a rank of
an earlier attempt and a second process with the same rank are turned away, each with the reason.
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
from trainer.wire import Closed, Foreign, Inbox, as_object, prepare, send

GREETING_SECONDS = 10.0
TORCHRUN_PORTS = 16
"""Under torchrun its agent may hold MASTER_PORT itself: rank 0 takes the first free one of the 16 above it (below it
near the end of the range), and the others try them all."""
_PAUSE = 0.1


@dataclass(frozen=True, slots=True)
class Meeting:
    """identity: the same on all ranks of one attempt at one run, and on no others."""

    world: World
    identity: str

    @property
    def host(self) -> str:
        return split_address("the coordinator", self.world.coordinator)[0]

    @property
    def ports(self) -> Sequence[int]:
        """To be tried in this order."""
        _, port = split_address("the coordinator", self.world.coordinator)
        if self.world.launcher != "torchrun":
            return (port,)
        step = 1 if port + TORCHRUN_PORTS < 65536 else -1
        return range(port + step, port + step * (TORCHRUN_PORTS + 1), step)


class Door:
    """Rank 0's side: lets ranks in, channel by channel, as long as the team lives."""

    def __init__(self, meeting: Meeting, deadline: float) -> None:
        """Raises OSError when no port can be had before the deadline (of time.monotonic())."""
        self._meeting = meeting
        self._token = secrets.token_hex(16)
        self._came: dict[tuple[int, int], Inbox] = {}
        self._changed = threading.Condition()
        self._closed_to = ""
        self._listener = _listen(meeting, deadline)
        threading.Thread(target=self._let_in, name="team-door", daemon=True).start()

    def wait_for_all(self, channel: int, deadline: float) -> dict[int, Inbox]:
        """By rank, all ranks but 0. Those that did not come in time are missing."""
        ranks = range(1, self._meeting.world.size)
        with self._changed:
            while not all((channel, rank) in self._came for rank in ranks):
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            return {rank: self._came[channel, rank] for rank in ranks if (channel, rank) in self._came}

    def nobody_new(self) -> None:
        """From now on a rank that is in stays the one."""
        with self._changed:
            self._closed_to = "this rank is already here"

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread in `accept`
        self._listener.close()
        with self._changed:
            for inbox in self._came.values():
                inbox.connection.close()

    def _let_in(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # closed
            # One thread each, for at most GREETING_SECONDS: somebody who says nothing keeps nobody waiting.
            threading.Thread(target=self._greet, args=(connection,), name="team-greeting", daemon=True).start()

    def _greet(self, connection: socket.socket) -> None:
        deadline = time.monotonic() + GREETING_SECONDS
        inbox = Inbox(prepare(connection))
        try:
            said = as_object(inbox.receive(deadline))
            refusal = self._refusal(said)
            if refusal:
                send(connection, {"refused": refusal}, deadline)
                connection.close()
                return
            key = int(said["channel"]), int(said["rank"])
            with self._changed:
                before = self._came.get(key)
                if before is not None and self._closed_to:
                    send(connection, {"refused": self._closed_to}, deadline)
                    connection.close()
                    return
                # The answer goes out first, so that nothing else can overtake it.
                send(connection, {"welcome": self._token}, deadline)
                self._came[key] = inbox
                self._changed.notify_all()
            if before is not None:
                before.connection.close()
        except (Closed, Foreign, TimeoutError, OSError):
            connection.close()

    def _refusal(self, said: Mapping[str, Any]) -> str:
        if "identity" not in said:
            return "not a rank of a trainer"
        world = self._meeting.world
        if said["identity"] != self._meeting.identity:
            return f"here is {self._meeting.identity}, not {said['identity']}"
        if said.get("size") != world.size:
            return f"here are {world.size} ranks, not {said.get('size')}"
        rank, channel = said.get("rank"), said.get("channel")
        if not isinstance(rank, int) or not 0 < rank < world.size or not isinstance(channel, int):
            return f"there is no rank {rank}"
        if channel and said.get("token") != self._token:
            return "this channel is of another meeting"
        return ""


def knock(meeting: Meeting, channel: int, token: str, deadline: float) -> tuple[Inbox, str]:
    """Another rank's side: a connection to rank 0, and the token for further channels.

    Tries until the deadline. Raises TimeoutError with the last refusal, or with why nobody could be asked.
    """
    greeting = {
        "identity": meeting.identity,
        "size": meeting.world.size,
        "rank": meeting.world.rank,
        "channel": channel,
        "token": token,
    }
    reason, refusal = "nobody listens there", ""
    while True:
        for port in meeting.ports:
            try:
                return _ask(meeting.host, port, greeting, deadline)
            except (Closed, Foreign, OSError) as error:
                reason = str(error) or reason
            except _Refused as refused:
                refusal = f"port {port} answers: {refused}"
        if time.monotonic() + _PAUSE > deadline:
            raise TimeoutError(refusal or reason)  # whoever refused may have given up itself since
        time.sleep(_PAUSE)


class _Refused(Exception):
    pass


def _ask(host: str, port: int, greeting: dict[str, Any], deadline: float) -> tuple[Inbox, str]:
    limit = min(deadline, time.monotonic() + GREETING_SECONDS)
    left = max(0.05, limit - time.monotonic())
    connection = prepare(socket.create_connection((host, port), timeout=left))
    try:
        send(connection, greeting, limit)
        inbox = Inbox(connection)
        answer = as_object(inbox.receive(limit))
    except BaseException:
        connection.close()
        raise
    if "welcome" not in answer:
        connection.close()
        raise _Refused(str(answer.get("refused", "something else")))
    return inbox, str(answer["welcome"])


def free_port(host: str) -> int:
    """A port of this machine that nobody listens on now."""
    family, place = _own_address(host, 0)
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind(place)
        return int(probe.getsockname()[1])


def _listen(meeting: Meeting, deadline: float) -> socket.socket:
    while True:
        failure: OSError | None = None
        for port in meeting.ports:
            family, place = _own_address(meeting.host, port)
            listener = socket.socket(family, socket.SOCK_STREAM)
            try:
                # The connections of an attempt before this one may still be in the kernel's memory.
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
        time.sleep(_PAUSE)  # an attempt before this one is still leaving


def _own_address(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    # A loopback coordinator is for this machine alone. Any other name may be one that this machine does not know
    # itself by (the outer address of a cloud's host), so all its addresses are listened on.
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        return socket.AF_INET, ("", port)
    if address.version == 6:
        return socket.AF_INET6, (host if address.is_loopback else "::", port)
    return socket.AF_INET, (str(address) if address.is_loopback else "", port)
