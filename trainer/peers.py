"""Notices within two seconds that another rank is gone, whatever this rank's main thread is waiting in; within twenty,
where its host or the network vanished without a word.

An engine that waits for a dead peer may take minutes to say so, or abort. Here a thread holds a channel of its own to
rank 0; when a rank ends without a goodbye, this process ends as well, unless the main thread gets there first.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import TracebackType

from trainer.errors import Exit, PeerError, TrainerError
from trainer.tcp_team import TcpTeam
from trainer.team import Team

PATIENCE = 1.5  # seconds in which the main thread may end in its own words


class PeerWatch:
    """Enter it once all ranks have met; every rank must."""

    def __init__(self, team: Team, timeout: float) -> None:
        """timeout: seconds until all ranks must have entered it."""
        self._channel = team.channel(timeout) if isinstance(team, TcpTeam) else None
        self._rank = team.world.rank
        self._over = threading.Event()
        self._noticed = threading.Event()
        self._news = ""
        self._said_goodbye = False
        self._thread = threading.Thread(target=self._listen, name="peers", daemon=True)

    def over(self) -> None:
        """All that matters is done: from now on a rank may be gone."""
        self._over.set()

    @contextmanager
    def in_own_words(self) -> Generator[None]:
        """What fails within is this rank's own fault: the others are told at once, and however long this rank takes to
        write down what is left, it is not ended because they leave."""
        try:
            yield
        except PeerError:
            raise
        except BaseException as error:
            self._over.set()
            self._say_goodbye(error)
            raise

    def explained(self, error: PeerError) -> PeerError:
        """The same, with who is lost and why, where that is known by now."""
        if self._channel is None:
            return error
        self._noticed.wait(0.5)
        if str(error).startswith(_lost_words(self._rank)):
            head, _, left = str(error).rpartition(": it has left")
            return PeerError(self._news) if not left and self._news.startswith(f"{head}: ") else error
        return PeerError(f"{self._news}; {error}") if self._news else error

    def __enter__(self) -> PeerWatch:
        if self._channel is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._say_goodbye(error)

    def _say_goodbye(self, error: BaseException | None) -> None:
        if self._channel is not None and not self._said_goodbye:
            self._said_goodbye = True
            self._channel.say_goodbye(_in_short(error))

    def _listen(self) -> None:
        channel = self._channel
        if channel is None:
            return
        try:
            channel.listen(self._lost, self._over.is_set)
        except PeerError as error:
            self._end(str(error))

    def _lost(self, rank: int, why: str) -> None:
        self._end(f"{_lost_words(self._rank)}{rank}: {why}")

    def _end(self, message: str) -> None:
        self._news = message
        self._noticed.set()
        if self._over.wait(PATIENCE):
            return
        sys.stdout.flush()
        sys.stderr.write(f"error[{PeerError.code}]: {message}\n")
        sys.stderr.flush()
        os._exit(Exit.FAILURE)  # the main thread may stand in native code, where no exception reaches it


def _lost_words(rank: int) -> str:
    return f"rank {rank} lost rank "


def _in_short(error: BaseException | None) -> str:
    if error is None:
        return ""
    if isinstance(error, TrainerError):
        return f"error[{error.code}]: {error}"
    return f"{type(error).__name__}: {error}".splitlines()[0]
