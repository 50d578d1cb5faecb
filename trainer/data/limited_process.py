"""A child process that answers requests within limits of memory and processor time.

A chat template or a tokenizer may come from anyone. Jinja and the `tokenizers` library run what it says without a
limit, so they do it here: the process is started once, and answers one request after the other. The system ends it when
an answer takes too much processor time (SIGPROF, also within a library), and when its parent ends. Before it answers, a
handler may ask its parent for more, as for the next bytes of a file.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from trainer.errors import TrainerError

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_STALLED = 20  # a process that is not scheduled gets so many times its processor time before it is given up
_END_SECONDS = 5.0


class LimitedProcessError(TrainerError):
    """The process did not answer; the message is the reason alone.

    Attributes:
        ended: The process ended, and answers nothing further.
        by_limit: It passed a limit, or the reason is in what it ran.
    """

    def __init__(self, reason: str, *, ended: bool = False, by_limit: bool = True) -> None:
        super().__init__(reason)
        self.ended = ended
        self.by_limit = by_limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a process.

    Attributes:
        memory: Bytes of address space, beyond what Python and its libraries have before the first request.
        seconds: Of processor time: of the start, and of an answer whose request names no other number.
    """

    memory: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Question:
    question: Any


class AskParent:
    """Asks the process that waits for the answer; where the argument of a handler is this class, it gets one."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def __call__(self, question: Any) -> Any:
        self._pipe.send((True, _Question(question)))
        return self._pipe.recv()


class LimitedProcess:
    """The parent's end; at most one request is in flight, because two could block each other in full pipes."""

    def __init__(self, open_handler: Callable[[Any], Callable[[Any], Any]], argument: Any, limits: Limits) -> None:
        """Start the process.

        Args:
            open_handler: Called in the process, once, within the limits. Its result answers the requests.
            argument: Of `open_handler`.
            limits: Of the process.
        """
        # spawn: a fork would copy the locks of other threads in their present state.
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._limits = limits
        self._seconds = limits.seconds
        self._started = False
        self._process = context.Process(
            target=_serve, args=(os.getpid(), open_handler, argument, limits, other), daemon=True
        )
        self._process.start()
        other.close()

    def wait_for_start(self) -> None:
        """Wait until the process can answer.

        Raises:
            LimitedProcessError: `open_handler` failed.
        """
        if not self._started:
            self.receive()
            self._started = True

    def ask(self, request: Any, seconds: float = 0.0, answer: Callable[[Any], Any] | None = None) -> Any:
        """Send a request and return the answer; `answer` answers what the handler asks by `AskParent` before.

        Raises:
            LimitedProcessError: There is none.
        """
        self.send(request, seconds)
        while isinstance(value := self.receive(), _Question) and answer is not None:
            found = answer(value.question)
            try:
                self._pipe.send(found)
            except OSError as error:
                raise self._explain_end() from error
        return value

    def send(self, request: Any, seconds: float = 0.0) -> None:
        """Send a request, for which the process may take the processor for `seconds`; 0: as its limits are.

        Raises:
            LimitedProcessError: The process ended.
        """
        self.wait_for_start()
        self._seconds = seconds or self._limits.seconds
        try:
            self._pipe.send((self._seconds, request))
        except OSError as error:
            raise self._explain_end() from error

    def receive(self) -> Any:
        """Return the answer to the request in flight.

        Raises:
            LimitedProcessError: There is none.
        """
        try:
            if not self._pipe.poll(_STALLED * (self._seconds + self._limits.seconds)):
                self._process.kill()
                raise LimitedProcessError("it did not answer in time", ended=True)
            answered, value = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise self._explain_end() from error
        if not answered:
            raise LimitedProcessError(value)
        return value

    def end(self) -> None:
        """End the process and wait for it."""
        self._pipe.close()
        self._process.join(_END_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _explain_end(self) -> LimitedProcessError:
        self._process.join(_END_SECONDS)
        status = self._process.exitcode
        if status == -signal.SIGPROF:
            reason = f"it took more than {self._seconds:,.0f} s of processor time"
        elif status == -signal.SIGABRT:  # Rust's allocator, where there is no memory
            reason = f"it needed more than {format_memory(self._limits.memory)} of memory"
        elif status == -signal.SIGSEGV:
            reason = "it calls itself without an end, or what it reads is malformed"
        else:
            return LimitedProcessError(f"status {status}", ended=True, by_limit=False)
        return LimitedProcessError(reason, ended=True)


def format_memory(count: int) -> str:
    """Return a number of bytes for people."""
    return f"{count / (1 << 30):.3g} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.3g} MiB"


def _serve(
    parent: int,
    open_handler: Callable[[Any], Callable[[Any], Any]],
    argument: Any,
    limits: Limits,
    pipe: Connection,
) -> None:
    _end_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the first process; its end closes the pipe
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    if os.environ.get("TRAINER_DEBUG") != "1":
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # libraries write there before they raise or abort
    _limit_memory(limits.memory)
    if argument is AskParent:
        argument = AskParent(pipe)
    handlers: list[Callable[[Any], Any]] = []
    reply = _answer(lambda: handlers.append(open_handler(argument)), limits.seconds, limits)
    while True:
        try:
            pipe.send(reply)
            if not handlers:
                return
            seconds, request = pipe.recv()
        except (EOFError, OSError):
            return
        reply = _answer(partial(handlers[0], request), seconds, limits)


def _answer(action: Callable[[], Any], seconds: float, limits: Limits) -> tuple[bool, Any]:
    """Return whether the action succeeded, and its result or the reason why not; end the process after `seconds`."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        return _call(action, limits)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _call(action: Callable[[], Any], limits: Limits) -> tuple[bool, Any]:
    try:
        return True, action()
    except MemoryError:
        return False, f"it needed more than {format_memory(limits.memory)} of memory"
    except RecursionError:
        return False, "it calls itself without an end"
    except TrainerError as error:
        return False, str(error)
    except BaseException as error:  # a panic of Rust is no Exception
        lines = str(error).strip().splitlines() or [""]
        return False, f"{type(error).__name__}: {lines[0][:300]}"


def _limit_memory(count: int) -> None:
    """Limit the address space to what the process has now and `count` bytes."""
    try:
        with Path("/proc/self/statm").open(encoding="ascii") as file:
            present = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not Linux, where the limit would not be kept either
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = present + count
    resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def _end_with(parent: int) -> None:
    """Have the system end this process when its parent ends, also while it computes."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it has ended before that
        os._exit(1)
