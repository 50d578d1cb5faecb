"""The team over TCP: a star around rank 0, one connection of each rank for each channel.

Whoever is lost is named on every rank: rank 0 notices it by its connection's end or by the time limit, and tells the
others.
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
from trainer.meeting import Door, Meeting, free_port, knock
from trainer.team import Team
from trainer.wire import Closed, Foreign, Inbox, Unreachable, packed, send, send_bytes

GRACE = 5.0  # seconds more than rank 0's limit, so that its word of who is missing arrives first


def join(world: World, config: DistConfig, identity: str = "") -> Team:
    """Meet the other ranks. identity: the run and the attempt, the same on all ranks.

    Raises PeerError, naming the coordinator and who is missing, when they do not come within config.join_timeout.
    """
    if world.size == 1:
        return Alone(world)
    deadline = time.monotonic() + config.join_timeout
    meeting = Meeting(world, identity)
    try:
        if world.is_first:
            door = Door(meeting, deadline)
            team = TcpTeam(meeting, config.timeout, door=door)
        else:
            inbox, token = knock(meeting, 0, "", deadline)
            team = TcpTeam(meeting, config.timeout, token=token, inboxes={0: inbox})
    except OSError as error:  # TimeoutError too
        raise _not_met(world, config, str(error.strerror or error)) from error
    try:
        team.gather(None, limit=max(0.1, deadline - time.monotonic()))
    except PeerError as error:
        team.close()
        raise _not_met(world, config, str(error)) from error
    if team.door is not None:
        team.door.nobody_new()
    return team


class Alone:
    """A team of one: nothing to open. Values go through JSON all the same, so that they come back alike."""

    def __init__(self, world: World) -> None:
        self.world = world

    def gather(self, value: Any) -> list[Any]:
        return [json.loads(json.dumps(value))]

    def side_channel(self, timeout: float) -> Team:
        return self

    def meeting_place(self) -> str:
        return f"127.0.0.1:{free_port('127.0.0.1')}"

    def close(self) -> None:
        return None


class TcpTeam:
    """door: rank 0's. inboxes: by rank; rank 0 has one for each other rank, the others one for rank 0."""

    def __init__(
        self,
        meeting: Meeting,
        timeout: float,
        *,
        door: Door | None = None,
        token: str = "",
        inboxes: Mapping[int, Inbox] | None = None,
        channel: int = 0,
        numbers: Iterable[int] | None = None,
    ) -> None:
        self.world = meeting.world
        self.door = door
        self._meeting = meeting
        self._timeout = timeout
        self._token = token
        self._inboxes = dict(inboxes or {})
        self._channel = channel
        self._numbers = iter(itertools.count(1) if numbers is None else numbers)

    def gather(self, value: Any, *, limit: float | None = None) -> list[Any]:
        """limit: seconds, instead of the channel's own."""
        seconds = self._timeout if limit is None else limit
        if self.world.is_first:
            return self._collect(value, seconds)
        return self._contribute(value, seconds)

    def side_channel(self, timeout: float) -> Team:
        return self.channel(timeout)

    def channel(self, timeout: float) -> TcpTeam:
        """Rank 0 need not be here yet: its door answers, and it looks who came when it first uses the channel."""
        number = next(self._numbers)
        inboxes: dict[int, Inbox] = {}
        if not self.world.is_first:
            try:
                inbox, _ = knock(self._meeting, number, self._token, time.monotonic() + min(timeout, self._timeout))
            except OSError as error:
                raise self._lost(0, str(error)) from error
            inboxes[0] = inbox
        return TcpTeam(
            self._meeting,
            timeout,
            door=self.door,
            token=self._token,
            inboxes=inboxes,
            channel=number,
            numbers=self._numbers,
        )

    def meeting_place(self) -> str:
        host = self._meeting.host
        port = self.gather(free_port(host) if self.world.is_first else None)[0]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def close(self) -> None:
        for inbox in self._inboxes.values():
            with contextlib.suppress(OSError):
                inbox.connection.close()
        if self.door is not None and self._channel == 0:
            self.door.close()

    def listen(self, lost: Callable[[int, str], None], over: Callable[[], bool]) -> None:
        """Until a rank is gone: then `lost(rank, why)`. Until all have said goodbye, or `over()`: then return.

        For a channel used by nothing else, in a thread of its own. Looks at `over` twice a second.
        """
        inboxes = self._complete(time.monotonic() + self._timeout)
        with selectors.DefaultSelector() as selector:
            for rank, inbox in inboxes.items():
                selector.register(inbox.connection, selectors.EVENT_READ, (rank, inbox))
            while selector.get_map() and not over():
                for key, _ in selector.select(0.5):
                    rank, inbox = key.data
                    gone = _news(rank, inbox)
                    if gone is None:
                        continue
                    selector.unregister(inbox.connection)
                    if gone != (rank, ""):
                        self._tell(inboxes, {"lost": gone[0], "why": gone[1]}, except_rank=rank)
                        lost(*gone)
                        return

    def say_goodbye(self, why: str = "") -> None:
        """On a channel that others `listen` on: this rank leaves; why: in one line, when it is not the run's end."""
        self._tell(self._inboxes, {"bye": why}, except_rank=-1)

    def _complete(self, deadline: float) -> Mapping[int, Inbox]:
        if self.door is not None and not self._inboxes:
            came = self.door.wait_for_all(self._channel, deadline)
            missing = [rank for rank in range(1, self.world.size) if rank not in came]
            self._inboxes = came
            if missing:
                self._fail(missing[0], f"{_names(missing)} did not come")
        return self._inboxes

    def _collect(self, value: Any, seconds: float) -> list[Any]:
        deadline = time.monotonic() + seconds
        inboxes = self._complete(deadline)
        values: dict[int, Any] = {0: json.loads(json.dumps(value))}
        with selectors.DefaultSelector() as selector:
            for rank, inbox in inboxes.items():
                selector.register(inbox.connection, selectors.EVENT_READ, (rank, inbox))
                # What a quick rank has sent may have come together with what was taken before.
                self._take(rank, inbox, values, selector)
            while len(values) < self.world.size:
                left = deadline - time.monotonic()
                if left <= 0:
                    missing = [rank for rank in inboxes if rank not in values]
                    self._fail(missing[0], f"{_names(missing)} did not answer (limit {seconds:g} s)")
                for key, _ in selector.select(left):
                    rank, inbox = key.data
                    try:
                        inbox.pull()
                    except Closed as error:
                        self._fail(rank, _left(error))
                    self._take(rank, inbox, values, selector)
        result = [values[rank] for rank in range(self.world.size)]
        answer = packed({"all": result})
        for rank, inbox in inboxes.items():
            try:
                send_bytes(inbox.connection, answer, deadline + GRACE)
            except (Closed, TimeoutError) as error:
                self._fail(rank, _left(error))
        return result

    def _take(self, rank: int, inbox: Inbox, values: dict[int, Any], selector: selectors.BaseSelector) -> None:
        try:
            complete, value = inbox.take()
        except Foreign as error:
            self._fail(rank, str(error))
        else:
            if complete:
                values[rank] = value["mine"]
                selector.unregister(inbox.connection)

    def _contribute(self, value: Any, seconds: float) -> list[Any]:
        inbox = self._inboxes[0]
        deadline = time.monotonic() + seconds + GRACE
        try:
            # An answer may be there before this is sent: that a rank is lost. It is read below in any case.
            with contextlib.suppress(Closed):
                send(inbox.connection, {"mine": value}, deadline)
            answer = inbox.receive(deadline)
        except Closed as error:
            raise self._lost(0, _left(error)) from error
        except Foreign as error:
            raise self._lost(0, str(error)) from error
        except TimeoutError as error:
            raise self._lost(0, f"it did not answer (limit {seconds:g} s)") from error
        if "lost" in answer:
            raise self._lost(answer["lost"], answer["why"])
        values: list[Any] = answer["all"]
        return values

    def _fail(self, rank: int, why: str) -> None:
        self._tell(self._inboxes, {"lost": rank, "why": why}, except_rank=rank)
        raise self._lost(rank, why)

    def _tell(self, inboxes: Mapping[int, Inbox], value: Any, *, except_rank: int) -> None:
        for rank, inbox in inboxes.items():
            if rank != except_rank:
                with contextlib.suppress(Closed, TimeoutError):
                    send(inbox.connection, value, time.monotonic() + 1.0)

    def _lost(self, rank: int, why: str) -> PeerError:
        return PeerError(f"rank {self.world.rank} lost rank {rank}: {why}")


def _news(rank: int, inbox: Inbox) -> tuple[int, str] | None:
    """(lost rank, why); (rank, "") when it said goodbye; None when nothing complete has come."""
    try:
        inbox.connection.settimeout(1.0)
        inbox.pull()
        complete, value = inbox.take()
    except TimeoutError:
        return None
    except (Closed, Foreign) as error:
        return rank, _left(error)
    if not complete:
        return None
    if "lost" in value:
        return int(value["lost"]), str(value["why"])
    return rank, f"it ended with {value['bye']}" if value["bye"] else ""


def _left(error: Exception) -> str:
    return "it cannot be reached any more" if isinstance(error, Unreachable) else "it has left"


def _names(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    more = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}{more}"


def _not_met(world: World, config: DistConfig, why: str) -> PeerError:
    return PeerError(
        f"rank {world.rank} of {world.size} could not meet the others at {world.coordinator} "
        f"within {config.join_timeout:g} s: {why}"
    )
