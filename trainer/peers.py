"""Detects a lost rank: within two seconds if its process ended, within twenty if its host or network vanished silently.

An engine that waits for a lost peer may take minutes to report it, or abort. Here a thread holds its own channel to
rank 0; when a rank ends without a goodbye, this process ends as well, unless the main thread ends first.
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

GRACE_SECONDS = 1.5  # seconds in which the main thread may end with its own error


class PeerWatch:
    """Ends this process when another rank is lost; every rank must enter it once all have met."""

    def __init__(self, team: Team, timeout: float) -> None:
        """Open the channel.

        Args:
            team: All ranks of the run.
            timeout: Seconds until all ranks must have opened it.
        """
        self._channel = team.channel(timeout) if isinstance(team, TcpTeam) else None
        self._rank = team.world.rank
        self._finished = threading.Event()
        self._noticed = threading.Event()
        self._loss_message = ""
        self._said_goodbye = False
        self._thread = threading.Thread(target=self._listen, name="peers", daemon=True)

    def finish(self) -> None:
        """Record that everything that matters is done: from now on a rank may leave."""
        self._finished.set()

    @contextmanager
    def reporting_own_failure(self) -> Generator[None]:
        """Report an exception within as this rank's own failure, immediately, to all other ranks.

        However long this rank takes to write its last files, it is not ended because the others leave.
        """
        try:
            yield
        except PeerError:
            raise
        except BaseException as error:
            self._finished.set()
            self._say_goodbye(error)
            raise

    def explain_loss(self, error: PeerError) -> PeerError:
        """Return the error with which rank is lost and why, where that is known by now."""
        if self._channel is None:
            return error
        self._noticed.wait(0.5)
        if str(error).startswith(_loss_prefix(self._rank)):
            head, _, left = str(error).rpartition(": it has left")
            return PeerError(self._loss_message) if not left and self._loss_message.startswith(f"{head}: ") else error
        return PeerError(f"{self._loss_message}; {error}") if self._loss_message else error

    def __enter__(self) -> PeerWatch:
        if self._channel is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finished.set()
        self._say_goodbye(error)

    def _say_goodbye(self, error: BaseException | None) -> None:
        if self._channel is not None and not self._said_goodbye:
            self._said_goodbye = True
            self._channel.say_goodbye(_summarize_error(error))

    def _listen(self) -> None:
        channel = self._channel
        if channel is None:
            return
        try:
            channel.listen(self._lost, self._finished.is_set)
        except PeerError as error:
            self._exit_process(str(error))

    def _lost(self, rank: int, why: str) -> None:
        self._exit_process(f"{_loss_prefix(self._rank)}{rank}: {why}")

    def _exit_process(self, message: str) -> None:
        self._loss_message = message
        self._noticed.set()
        if self._finished.wait(GRACE_SECONDS):
            return
        sys.stdout.flush()
        sys.stderr.write(f"error[{PeerError.code}]: {message}\n")
        sys.stderr.flush()
        os._exit(Exit.FAILURE)  # the main thread may be in native code, which no exception reaches


def _loss_prefix(rank: int) -> str:
    return f"rank {rank} lost rank "


def _summarize_error(error: BaseException | None) -> str:
    if error is None:
        return ""
    if isinstance(error, TrainerError):
        return f"error[{error.code}]: {error}"
    return f"{type(error).__name__}: {error}".splitlines()[0]
