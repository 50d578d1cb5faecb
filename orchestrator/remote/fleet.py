"""Commands on all hosts of a cluster at once: wide, bounded, one result for every host."""

from __future__ import annotations

import contextlib
import functools
import queue
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

from paramiko import PKey
from tenacity import (
    Retrying,
    retry_if_exception,
    stop_after_attempt,
    stop_after_delay,
    stop_any,
    stop_when_event_set,
    wait_exponential,
    wait_random,
)
from tenacity.nap import sleep_using_event

from orchestrator.errors import UserError
from orchestrator.hosts import Failure, HostAddress, HostOutcome
from orchestrator.remote.command import Command, Conversation, Ended, Halt
from orchestrator.remote.connect import Link, load_key, plain_config
from orchestrator.remote.failures import HostFailure
from orchestrator.remote.scripts import shell_command

Input: TypeAlias = "bytes | memoryview"

_ATTEMPTS = 4  # connections in all before a host that refuses is given up by `run`
_END_GRACE = 2.0  # seconds between TERM and KILL for a command that is ended early
_LONGEST_LINE = 300  # characters of `last_line`


@dataclass(frozen=True, slots=True)
class HostResult:
    """One host's outcome and the last bytes of its merged output."""

    outcome: HostOutcome
    output: bytes


@dataclass(frozen=True, slots=True)
class FleetResult:
    """One result for every host that was asked, in rank order. first_failure: the first in time."""

    hosts: tuple[HostResult, ...]
    first_failure: HostOutcome | None = None

    @property
    def ok(self) -> bool:
        return all(host.outcome.ok for host in self.hosts)

    @property
    def outcomes(self) -> tuple[HostOutcome, ...]:
        return tuple(host.outcome for host in self.hosts)

    @property
    def failed(self) -> tuple[HostOutcome, ...]:
        return tuple(host.outcome for host in self.hosts if not host.outcome.ok)

    def by_rank(self, rank: int) -> HostResult:
        """Raises KeyError for a rank that was not asked."""
        for host in self.hosts:
            if host.outcome.rank == rank:
                return host
        raise KeyError(rank)


class Fleet:
    """Connections to the hosts of one cluster, opened on first use and reused. Thread-safe.

    width: hosts worked on at once. deadline: seconds until a host that cannot be reached, or no longer answers,
    is reported as such.
    """

    def __init__(self, hosts: Sequence[HostAddress], *, width: int = 64, deadline: float = 20.0) -> None:
        self.hosts = tuple(sorted(hosts, key=lambda host: host.rank))
        self.width = width
        self.deadline = deadline
        self._links: dict[HostAddress, Link] = {}
        self._keys: dict[Path, PKey] = {}
        self._config = plain_config()
        self._lock = threading.Lock()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(
        self,
        command: str | Callable[[HostAddress], str],
        *,
        ranks: Sequence[int] | None = None,
        stdin: Input | Callable[[HostAddress], Input] | None = None,
        timeout: float | None = None,
        on_output: Callable[[HostAddress, bytes], None] | None = None,
        on_sent: Callable[[HostAddress, int], None] | None = None,
        keep: int = 1 << 20,
        stop_after_failure: float | None = None,
        stop: threading.Event | None = None,
        talk: Callable[[HostAddress, Conversation], memoryview] | None = None,
    ) -> FleetResult:
        """Run `command` on the hosts and wait for all of them; never runs it twice on a host.

        on_output: raw blocks of merged stdout and stderr as they come, from one thread per host. keep: bytes of
        output kept per host. timeout: seconds for the command on each host. stop_after_failure: seconds of grace
        after the first failure, then the others are ended as Failure.STOPPED; None lets all end. stop: set it from
        another thread to end all. on_sent: bytes of `stdin` handed to a host since the last call.
        talk: answers a command that asks back, and returns the last of its input (instead of `stdin`).
        An exception of a callback ends the other hosts and is raised here.
        """
        ends_early = timeout is not None or stop_after_failure is not None or stop is not None
        token = secrets.token_hex(8)

        def work(call: HostCall) -> HostResult:
            host = call.host
            mark = f"ORCH_CALL={token}-{host.rank}" if ends_early else ""  # hosts may share one machine's /proc
            line = command if isinstance(command, str) else command(host)
            given = stdin(host) if callable(stdin) else stdin
            return call.run(
                f"export {mark};{line}" if mark else line,
                b"" if given is None else given,
                timeout=timeout,
                keep=keep,
                mark=mark,
                on_output=None if on_output is None else functools.partial(on_output, host),
                on_sent=None if on_sent is None else functools.partial(on_sent, host),
                talk=None if talk is None else functools.partial(talk, host),
            )

        return self.each(work, ranks=ranks, stop_after_failure=stop_after_failure, stop=stop)

    def each(
        self,
        work: Callable[[HostCall], HostResult],
        *,
        ranks: Sequence[int] | None = None,
        width: int | None = None,
        stop_after_failure: float | None = None,
        stop: threading.Event | None = None,
    ) -> FleetResult:
        """Do `work` for every host, each in a thread of its own, `width` at a time; for work of several commands."""
        hosts = self._selected(ranks)
        for host in hosts:
            self.link(host)  # an unreadable key is an error before anything is sent
        return _FanOut(self, hosts, work, width or self.width, stop_after_failure, stop).wait()

    def reachable(self, *, timeout: float, ranks: Sequence[int] | None = None) -> FleetResult:
        """Connect and authenticate, trying again until `timeout` seconds have passed. exit_code 0: it can be used."""
        return self.each(lambda call: call.connect(timeout), ranks=ranks)

    def close(self) -> None:
        """End all connections; commands that run on them end as Failure.LOST."""
        with self._lock:
            links = tuple(self._links.values())
        for link in links:
            link.close()

    def link(self, address: HostAddress) -> Link:
        """The connection of one host (or jump host), which may not be open yet."""
        with self._lock:
            return self._link(address)

    def _link(self, address: HostAddress) -> Link:
        if address not in self._links:
            jump = None if address.jump is None else self._link(address.jump)
            if address.identity_file not in self._keys:
                self._keys[address.identity_file] = load_key(address.identity_file)
            self._links[address] = Link(address, self._keys[address.identity_file], self._config, jump)
        return self._links[address]

    def _selected(self, ranks: Sequence[int] | None) -> tuple[HostAddress, ...]:
        if ranks is None:
            return self.hosts
        known = {host.rank: host for host in self.hosts}
        missing = sorted(set(ranks) - known.keys())
        if missing:
            have = f"0 to {max(known)}" if known else "none"
            raise UserError(f"there is no host {missing[0]}", f"this cluster has the hosts {have}")
        return tuple(known[rank] for rank in sorted(set(ranks)))


class HostCall:
    """Commands on one host, one after the other: connects, again if need be, runs each once, ends it when asked."""

    def __init__(self, fleet: Fleet, host: HostAddress, halt: Halt) -> None:
        self.host = host
        self._link = fleet.link(host)
        self._halt = halt
        self._deadline = fleet.deadline
        self._began = time.monotonic()
        self._attempts = 0

    def run(
        self,
        line: str,
        stdin: Input = b"",
        *,
        timeout: float | None = None,
        keep: int = 1 << 20,
        mark: str = "",
        connect_within: float | None = None,
        on_output: Callable[[bytes], None] | None = None,
        on_sent: Callable[[int], None] | None = None,
        talk: Callable[[Conversation], memoryview] | None = None,
    ) -> HostResult:
        """mark: NAME=VALUE that `line` exports, to find its processes by when they are ended early."""
        self._began, self._attempts = time.monotonic(), 0

        def once(seconds: float) -> Ended:
            command = Command(
                self._link.transport(seconds),
                deadline=self._deadline,
                timeout=timeout,
                halt=self._halt,
                keep=keep,
                on_output=on_output,
                on_sent=on_sent,
                talk=talk,
            )
            return command.run(line.encode("utf-8", "surrogateescape"), stdin)

        try:
            ended = self._trying(once, self._deadline if connect_within is None else connect_within, _ATTEMPTS)
        except BaseException:  # of a callback: the command must not go on without us
            if mark:
                self._end_processes(mark)
            raise
        if mark and ended.failure and ended.failure.failure in (Failure.TIMEOUT, Failure.STOPPED):
            self._end_processes(mark)
        return self._result(ended)

    @property
    def halted(self) -> bool:
        return self._halt.why is not None

    def sleep(self, seconds: float) -> None:
        """Wait, unless the call is asked to end."""
        self._halt.asked.wait(seconds)

    def connect(self, timeout: float) -> HostResult:
        def once(seconds: float) -> Ended:
            self._link.transport(min(seconds, self._deadline))
            return Ended(0, None, None, b"")

        return self._result(self._trying(once, timeout, None))

    def _trying(self, once: Callable[[float], Ended], seconds: float, attempts: int | None) -> Ended:
        """Call `once` until it does not fail in a way that connecting again may mend, for `seconds` at most."""
        limit = self._began + seconds
        stops = [stop_after_delay(seconds), stop_when_event_set(self._halt.asked)]
        retrying = Retrying(
            retry=retry_if_exception(lambda error: isinstance(error, HostFailure) and error.retry),
            stop=stop_any(*stops, *([] if attempts is None else [stop_after_attempt(attempts)])),
            wait=wait_exponential(multiplier=0.2, max=2.0) + wait_random(0.0, 0.1),
            sleep=sleep_using_event(self._halt.asked),
            reraise=True,
        )
        try:
            for attempt in retrying:
                with attempt:
                    if self._halt.why is not None:
                        raise self._halt.why
                    self._attempts = attempt.retry_state.attempt_number
                    return once(max(0.2, limit - time.monotonic()))
        except HostFailure as failure:
            return Ended(None, None, failure, b"")
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _end_processes(self, mark: str) -> None:
        """End what the command left running; its outcome is known already, so a failure here changes nothing."""
        try:
            command = Command(
                self._link.transport(self._deadline),
                deadline=self._deadline,
                timeout=self._deadline,
                halt=Halt(),
                keep=1024,
            )
            command.run(shell_command("end-marked.sh", mark, str(_END_GRACE)).encode(), b"")
        except HostFailure:
            return  # the host is gone, and the command with it

    def _result(self, ended: Ended) -> HostResult:
        failure = ended.failure
        outcome = HostOutcome(
            rank=self.host.rank,
            host=self.host.host,
            exit_code=ended.exit_code,
            signal=ended.signal,
            failure=None if failure is None else failure.failure,
            seconds=time.monotonic() - self._began,
            attempts=self._attempts,
            last_line=last_line(ended.output),
            detail="" if failure is None else failure.detail,
        )
        return HostResult(outcome, ended.output)


class _FanOut:
    """`work` on every host, `width` at a time, each in a thread; watched from the caller's thread."""

    def __init__(
        self,
        fleet: Fleet,
        hosts: tuple[HostAddress, ...],
        work: Callable[[HostCall], HostResult],
        width: int,
        grace: float | None,
        stop: threading.Event | None,
    ) -> None:
        self._fleet = fleet
        self._todo = deque(hosts)
        self._count = len(hosts)
        self._work = work
        self._grace = grace
        self._stop = stop
        self._halt = Halt()
        self._done: queue.SimpleQueue[HostResult | BaseException] = queue.SimpleQueue()
        self._results: list[HostResult] = []
        self._first: HostOutcome | None = None
        self._error: BaseException | None = None
        for number in range(min(width, self._count)):
            threading.Thread(target=self._labour, name=f"orch-host-{number}", daemon=True).start()

    def wait(self) -> FleetResult:
        stop_at: float | None = None
        try:
            for _ in range(self._count):
                stop_at = self._note(self._next(stop_at), stop_at)
        except BaseException:  # a key press: the commands are ended first, then it goes on its way
            self._halt.ask(HostFailure(Failure.STOPPED, "interrupted"))
            self._drain(_END_GRACE + 1.0)
            raise
        if self._error is not None:
            raise self._error
        self._results.sort(key=lambda result: result.outcome.rank)
        return FleetResult(tuple(self._results), self._first)

    def _drain(self, seconds: float) -> None:
        limit = time.monotonic() + seconds
        while len(self._results) < self._count and time.monotonic() < limit:
            with contextlib.suppress(queue.Empty):
                self._note(self._done.get(timeout=max(0.01, limit - time.monotonic())), None)

    def _labour(self) -> None:
        while True:
            try:
                host = self._todo.popleft()
            except IndexError:
                return
            try:
                self._done.put(self._work(HostCall(self._fleet, host, self._halt)))
            except BaseException as error:  # raised again in the caller's thread
                self._done.put(error)

    def _next(self, stop_at: float | None) -> HostResult | BaseException:
        while True:
            wait = None if self._stop is None else 0.1
            if stop_at is not None:
                left = stop_at - time.monotonic()
                if left <= 0:
                    self._halt.ask(HostFailure(Failure.STOPPED, f"ended because {self._culprit()} failed"))
                    stop_at = None
                    continue
                wait = left if wait is None else min(wait, left)
            try:
                return self._done.get(timeout=wait)
            except queue.Empty:
                if self._stop is not None and self._stop.is_set():
                    self._halt.ask(HostFailure(Failure.STOPPED, "ended on request"))
                    self._stop = None

    def _note(self, result: HostResult | BaseException, stop_at: float | None) -> float | None:
        if isinstance(result, BaseException):
            self._error = self._error or result
            self._halt.ask(HostFailure(Failure.STOPPED, "ended because orch failed"))
            return None
        self._results.append(result)
        outcome = result.outcome
        if not outcome.ok and self._first is None and outcome.failure is not Failure.STOPPED:
            self._first = outcome
            if self._grace is not None:
                return time.monotonic() + self._grace
        return stop_at

    def _culprit(self) -> str:
        return "another host" if self._first is None else f"host {self._first.rank}"


def last_line(output: bytes) -> str:
    """The last line with something on it, fit for a table: control characters gone, at most 300 characters."""
    for line in reversed(output[-4096:].replace(b"\r", b"\n").split(b"\n")):
        text = "".join(c for c in line.decode("utf-8", "replace") if c.isprintable()).strip()
        if text:
            return text[:_LONGEST_LINE]
    return ""
