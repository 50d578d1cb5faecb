"""The team over TCP: a star around rank 0, with one connection from each rank for each channel.

Every rank learns which rank is lost: rank 0 detects it by the end of its connection or by the time limit, and sends it
to the others.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import selectors
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from trainer.config import DistConfig
from trainer.environment import World
from trainer.errors import PeerError
from trainer.rendezvous import Rendezvous, RendezvousServer, connect_to_first_rank, find_free_port
from trainer.team import Team
from trainer.wire import ConnectionClosed, Inbox, InvalidMessage, PeerUnreachable, encode_value, send_bytes, send_value

GRACE = 5.0  # seconds beyond rank 0's limit, so that its message of who is missing arrives first


def join_team(world: World, config: DistConfig, identity: str = "") -> Team:
    """Meet the other ranks.

    Args:
        world: Which rank this process is.
        config: Time limits.
        identity: The run and the attempt, the same on all ranks.

    Raises:
        PeerError: Some ranks did not arrive within config.join_timeout; it names the coordinator and the missing ranks.
    """
    if world.size == 1:
        return SingleProcessTeam(world)
    deadline = time.monotonic() + config.join_timeout
    rendezvous = Rendezvous(world, identity)
    try:
        if world.is_first:
            server = RendezvousServer(rendezvous, deadline)
            team = TcpTeam(rendezvous, config.timeout, server=server)
        else:
            inbox, token = connect_to_first_rank(rendezvous, 0, "", deadline)
            team = TcpTeam(rendezvous, config.timeout, token=token, inboxes={0: inbox})
    except OSError as error:  # TimeoutError too
        raise _rendezvous_error(world, config, str(error.strerror or error)) from error
    try:
        team.gather(None, limit=max(0.1, deadline - time.monotonic()))
    except PeerError as error:
        team.close()
        raise _rendezvous_error(world, config, str(error)) from error
    if team.server is not None:
        team.server.reject_second_ranks()
    return team


class SingleProcessTeam:
    """A team of one rank, without connections; values still pass through JSON, so that they come back alike."""

    def __init__(self, world: World) -> None:
        self.world = world

    def gather(self, value: Any) -> list[Any]:
        return [json.loads(json.dumps(value))]

    def side_channel(self, timeout: float) -> Team:
        return self

    def rendezvous_address(self) -> str:
        return f"127.0.0.1:{find_free_port('127.0.0.1')}"

    def close(self) -> None:
        return None


class TcpTeam:
    """One channel of a team of several processes."""

    def __init__(
        self,
        rendezvous: Rendezvous,
        timeout: float,
        *,
        server: RendezvousServer | None = None,
        token: str = "",
        inboxes: Mapping[int, Inbox] | None = None,
        channel: int = 0,
        numbers: Iterable[int] | None = None,
    ) -> None:
        """Use the given connections.

        Args:
            rendezvous: Where the ranks meet.
            timeout: Seconds for each call.
            server: Rank 0's.
            token: Admits this rank to further channels.
            inboxes: By rank; rank 0 has one for each other rank, the others one for rank 0.
            channel: Number of the channel.
            numbers: Numbers of further channels.
        """
        self.world = rendezvous.world
        self.server = server
        self._rendezvous = rendezvous
        self._timeout = timeout
        self._token = token
        self._inboxes = dict(inboxes or {})
        self._channel = channel
        self._numbers = iter(itertools.count(1) if numbers is None else numbers)

    def gather(self, value: Any, *, limit: float | None = None) -> list[Any]:
        """Return every rank's value, in rank order.

        Args:
            value: JSON-able and small.
            limit: Seconds, instead of the channel's own timeout.
        """
        seconds = self._timeout if limit is None else limit
        if self.world.is_first:
            return self._collect(value, seconds)
        return self._contribute(value, seconds)

    def side_channel(self, timeout: float) -> Team:
        return self.channel(timeout)

    def channel(self, timeout: float) -> TcpTeam:
        """Open a further channel.

        Rank 0 need not be here yet: its server admits ranks, and rank 0 collects them when it first uses the channel.
        """
        number = next(self._numbers)
        inboxes: dict[int, Inbox] = {}
        if not self.world.is_first:
            try:
                inbox, _ = connect_to_first_rank(
                    self._rendezvous, number, self._token, time.monotonic() + min(timeout, self._timeout)
                )
            except OSError as error:
                raise self._lost(0, str(error)) from error
            inboxes[0] = inbox
        return TcpTeam(
            self._rendezvous,
            timeout,
            server=self.server,
            token=self._token,
            inboxes=inboxes,
            channel=number,
            numbers=self._numbers,
        )

    def rendezvous_address(self) -> str:
        host = self._rendezvous.host
        port = self.gather(find_free_port(host) if self.world.is_first else None)[0]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def close(self) -> None:
        for inbox in self._inboxes.values():
            with contextlib.suppress(OSError):
                inbox.connection.close()
        if self.server is not None and self._channel == 0:
            self.server.close()

    def listen(self, lost: Callable[[int, str], None], over: Callable[[], bool]) -> None:
        """Wait until a rank is lost, then call `lost(rank, why)`; return when all have left or `over()` is true.

        For a channel used by nothing else, in its own thread. Checks `over` twice a second.
        """
        inboxes = self._wait_for_inboxes(time.monotonic() + self._timeout)
        with selectors.DefaultSelector() as selector:
            for rank, inbox in inboxes.items():
                with contextlib.suppress(ValueError):  # closed already: this rank is leaving
                    selector.register(inbox.connection, selectors.EVENT_READ, (rank, inbox))
            while selector.get_map() and not over():
                for key, _ in selector.select(0.5):
                    rank, inbox = key.data
                    departure = _read_departure(rank, inbox)
                    if departure is None:
                        continue
                    selector.unregister(inbox.connection)
                    if departure != (rank, ""):
                        self._send_to_all(inboxes, {"lost": departure[0], "why": departure[1]}, except_rank=rank)
                        lost(*departure)
                        return

    def say_goodbye(self, why: str = "") -> None:
        """Report on a `listen` channel that this rank leaves.

        Args:
            why: One line, unless the run is done.
        """
        self._send_to_all(self._inboxes, {"bye": why}, except_rank=-1)

    def _wait_for_inboxes(self, deadline: float) -> Mapping[int, Inbox]:
        if self.server is not None and not self._inboxes:
            came = self.server.wait_for_all(self._channel, deadline)
            missing = [rank for rank in range(1, self.world.size) if rank not in came]
            self._inboxes = came
            if missing:
                self._fail(missing[0], f"{_format_ranks(missing)} did not come")
        return self._inboxes

    def _collect(self, value: Any, seconds: float) -> list[Any]:
        deadline = time.monotonic() + seconds
        inboxes = self._wait_for_inboxes(deadline)
        values: dict[int, Any] = {0: json.loads(json.dumps(value))}
        with selectors.DefaultSelector() as selector:
            for rank, inbox in inboxes.items():
                with contextlib.suppress(ValueError):  # closed already: this rank is leaving
                    selector.register(inbox.connection, selectors.EVENT_READ, (rank, inbox))
                # A fast rank's next value may have arrived together with an earlier one.
                self._take(rank, inbox, values, selector)
            while len(values) < self.world.size:
                left = deadline - time.monotonic()
                if left <= 0:
                    missing = [rank for rank in inboxes if rank not in values]
                    self._fail(missing[0], f"{_format_ranks(missing)} did not answer (limit {seconds:g} s)")
                for key, _ in selector.select(left):
                    rank, inbox = key.data
                    try:
                        inbox.pull()
                    except ConnectionClosed as error:
                        self._fail(rank, _describe_departure(error))
                    self._take(rank, inbox, values, selector)
        result = [values[rank] for rank in range(self.world.size)]
        answer = encode_value({"all": result})
        for rank, inbox in inboxes.items():
            try:
                send_bytes(inbox.connection, answer, deadline + GRACE)
            except (ConnectionClosed, TimeoutError) as error:
                self._fail(rank, _describe_departure(error))
        return result

    def _take(self, rank: int, inbox: Inbox, values: dict[int, Any], selector: selectors.BaseSelector) -> None:
        try:
            complete, value = inbox.take()
        except InvalidMessage as error:
            self._fail(rank, str(error))
        else:
            if complete:
                values[rank] = value["mine"]
                selector.unregister(inbox.connection)

    def _contribute(self, value: Any, seconds: float) -> list[Any]:
        inbox = self._inboxes[0]
        deadline = time.monotonic() + seconds + GRACE
        try:
            # Rank 0 may already have sent that a rank is lost and closed: its message is read below.
            with contextlib.suppress(ConnectionClosed):
                send_value(inbox.connection, {"mine": value}, deadline)
            answer = inbox.receive(deadline)
        except ConnectionClosed as error:
            raise self._lost(0, _describe_departure(error)) from error
        except InvalidMessage as error:
            raise self._lost(0, str(error)) from error
        except TimeoutError as error:
            raise self._lost(0, f"it did not answer (limit {seconds:g} s)") from error
        if "lost" in answer:
            raise self._lost(answer["lost"], answer["why"])
        values: list[Any] = answer["all"]
        return values

    def _fail(self, rank: int, why: str) -> None:
        self._send_to_all(self._inboxes, {"lost": rank, "why": why}, except_rank=rank)
        raise self._lost(rank, why)

    def _send_to_all(self, inboxes: Mapping[int, Inbox], value: Any, *, except_rank: int) -> None:
        for rank, inbox in inboxes.items():
            if rank != except_rank:
                with contextlib.suppress(ConnectionClosed, TimeoutError):
                    send_value(inbox.connection, value, time.monotonic() + 1.0)

    def _lost(self, rank: int, why: str) -> PeerError:
        return PeerError(f"rank {self.world.rank} lost rank {rank}: {why}")


def _read_departure(rank: int, inbox: Inbox) -> tuple[int, str] | None:
    """Return (lost rank, why), (rank, "") after a goodbye, or None when no complete message has come.

    The main thread may close the connection at any moment of this: then this rank is leaving, and has lost no one.
    """
    try:
        inbox.connection.settimeout(1.0)
        inbox.pull()
        complete, value = inbox.take()
    except TimeoutError:
        return None
    except (ConnectionClosed, InvalidMessage, OSError) as error:  # OSError: settimeout on a closed socket
        return (rank, "") if inbox.connection.fileno() == -1 else (rank, _describe_departure(error))
    if not complete:
        return None
    if "lost" in value:
        return int(value["lost"]), str(value["why"])
    return rank, f"it ended with {value['bye']}" if value["bye"] else ""


def _describe_departure(error: Exception) -> str:
    return "it cannot be reached any more" if isinstance(error, PeerUnreachable) else "it has left"


def _format_ranks(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    more = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}{more}"


def _rendezvous_error(world: World, config: DistConfig, why: str) -> PeerError:
    return PeerError(
        f"rank {world.rank} of {world.size} could not meet the others at {world.coordinator} "
        f"within {config.join_timeout:g} s: {why}"
    )
