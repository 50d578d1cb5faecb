"""Commands on all hosts of a cluster: parallel, bounded, one result for every host."""

from __future__ import annotations

import contextlib
import functools
import queue
import secrets
import shlex
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TypeAlias

from orchestrator.errors import UserError
from orchestrator.hosts import Failure, HostAddress, HostOutcome
from orchestrator.open_files import explain_exhaustion, raise_open_files_limit
from orchestrator.remote.command import Command, Conversation, Ended, Halt
from orchestrator.remote.connect import Link, fabric_config
from orchestrator.remote.deadlines import Deadline
from orchestrator.remote.failures import HostFailure
from orchestrator.remote.fence import guard_command, guard_output, parse_refusal
from orchestrator.remote.identities import KeyRing
from orchestrator.remote.scripts import shell_command
from orchestrator.remote.trust import HostPins
from orchestrator.retries import SSH_CONNECT, RetryPolicy

Input: TypeAlias = "bytes | memoryview"

_ATTEMPTS = 4  # connections in all before a host that refuses is given up by `run`
_END_GRACE = 2.0  # seconds between TERM and KILL for a command that is ended early
# Seconds that the scripts take at most after the grace: `kill_seconds` of templates/remote/end-processes.sh, then 5
# until the wrapper of a job has ended, and the rest for the passes over /proc that begin before a deadline.
_KILL_TIMEOUT = 10.0 + 5.0 + 30.0
# Seconds in which orch waits for the script that ends an early command: the host may run nothing more. The script
# continues to KILL without orch: sshd ends no process when its session is closed.
_END_SECONDS = 10.0
_LONGEST_LINE = 300  # characters of `last_line`


@dataclass(frozen=True, slots=True)
class HostResult:
    """One host's outcome and the last bytes of its merged output."""

    outcome: HostOutcome
    output: bytes


@dataclass(frozen=True, slots=True)
class FleetResult:
    """One result for every host of the call, in rank order. first_failure: the first in time."""

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
        """Return the result of one rank. Raises KeyError for a rank that did not take part."""
        for host in self.hosts:
            if host.outcome.rank == rank:
                return host
        raise KeyError(rank)


class Fleet:
    """The connections to the hosts of one cluster, opened on first use and reused. Thread-safe.

    Attributes:
        width: hosts served at the same time.
        deadline: seconds until a host that cannot be reached, or no longer answers, is reported as such.
        known_tails: the ends of logs of failed jobs that hosts have sent, by their sums (jobs.py).
    """

    def __init__(
        self,
        hosts: Sequence[HostAddress],
        *,
        width: int = 64,
        deadline: float = 20.0,
        keys: KeyRing | None = None,
        pins: HostPins | None = None,
    ) -> None:
        raise_open_files_limit()
        self.hosts = tuple(sorted(hosts, key=lambda host: host.rank))
        self.width = width
        self.deadline = deadline
        self.known_tails: dict[str, bytes] = {}
        self._links: dict[HostAddress, Link] = {}
        self._keys = keys or KeyRing()
        self._pins = pins
        self._config = fabric_config()
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
        timeout: Deadline,
        ranks: Sequence[int] | None = None,
        stdin: Input | Callable[[HostAddress], Input] | None = None,
        on_output: Callable[[HostAddress, bytes], None] | None = None,
        on_sent: Callable[[HostAddress, int], None] | None = None,
        keep: int = 1 << 20,
        stop_after_failure: float | None = None,
        stop: threading.Event | None = None,
        talk: Callable[[HostAddress, Conversation], memoryview] | None = None,
        fenced: bool = True,
    ) -> FleetResult:
        """Run `command` on the hosts and wait for all of them; it never runs twice on a host.

        An exception of a callback ends the other hosts and is raised here.

        Args:
            command: one line of shell, or a function of the host.
            timeout: when the command is ended on a host that answers SSH: it becomes Failure.TIMEOUT.
            ranks: the hosts to use, None for all.
            stdin: input of the command, or a function of the host.
            on_output: gets raw blocks of merged stdout and stderr, from one thread per host.
            on_sent: gets the count of `stdin` bytes sent to a host since the last call.
            keep: bytes of output kept per host.
            stop_after_failure: seconds of grace after the first failure, then the others are ended as
                Failure.STOPPED; None lets all end.
            stop: set by another thread to end all.
            talk: answers a command that sends questions, and returns the rest of its input instead of `stdin`.
            fenced: see HostCall.run.
        """
        token = secrets.token_hex(8)

        def work(call: HostCall) -> HostResult:
            host = call.host
            mark = f"ORCH_CALL={token}-{host.rank}"  # hosts may share one machine's /proc
            line = command if isinstance(command, str) else command(host)
            given = stdin(host) if callable(stdin) else stdin
            return call.run(
                f"export {mark};{line}",
                b"" if given is None else given,
                timeout=timeout,
                keep=keep,
                mark=mark,
                on_output=None if on_output is None else functools.partial(on_output, host),
                on_sent=None if on_sent is None else functools.partial(on_sent, host),
                talk=None if talk is None else functools.partial(talk, host),
                fenced=fenced,
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
        """Do `work`, which may be several commands, for every host: `width` hosts at a time, each in its own thread."""
        hosts = self._selected(ranks)
        for host in hosts:
            self.link(host)  # an unreadable key is an error before anything is sent
        return _FanOut(self, hosts, work, width or self.width, stop_after_failure, stop).wait()

    def reachable(self, *, timeout: float, ranks: Sequence[int] | None = None) -> FleetResult:
        """Connect and authenticate, again until `timeout` seconds have passed. exit_code 0 means success."""
        return self.each(lambda call: call.connect(timeout), ranks=ranks)

    def close(self) -> None:
        """Close all connections; commands that run on them end as Failure.LOST."""
        with self._lock:
            links = tuple(self._links.values())
        for link in links:
            link.close()

    def link(self, address: HostAddress) -> Link:
        """Return the connection of one host or jump host, which may not be open yet."""
        with self._lock:
            return self._link(address)

    def _link(self, address: HostAddress) -> Link:
        if address not in self._links:
            jump = None if address.jump is None else self._link(address.jump)
            self._links[address] = self._new_link(address, jump)
        return self._links[address]

    def _new_link(self, address: HostAddress, jump: Link | None) -> Link:
        """Return a link; without a key for a person's own machine one that fails, so that its record can be closed."""
        try:
            return Link(address, self._keys.identities(address), self._config, jump, pins=self._pins)
        except UserError as error:
            if address.own is None or explain_exhaustion(error) is not None:
                raise
            detail = f"{error.what}: {error.why}; {error.next_step}"
            return Link(address, (), self._config, jump, HostFailure(Failure.AUTH, detail))

    def _selected(self, ranks: Sequence[int] | None) -> tuple[HostAddress, ...]:
        if ranks is None:
            return self.hosts
        known = {host.rank: host for host in self.hosts}
        missing = sorted(set(ranks) - known.keys())
        if missing:
            have = f"0 to {max(known)}" if known else "none"
            raise UserError(f"there is no host {missing[0]}", f"this cluster has the hosts {have}", "name one of them")
        return tuple(known[rank] for rank in sorted(set(ranks)))


class HostCall:
    """The commands on one host, in sequence. It connects, reconnects, runs each once, and ends it on request."""

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
        timeout: Deadline,
        keep: int = 1 << 20,
        mark: str = "",
        connect_within: float | None = None,
        on_output: Callable[[bytes], None] | None = None,
        on_sent: Callable[[int], None] | None = None,
        talk: Callable[[Conversation], memoryview] | None = None,
        fenced: bool = True,
    ) -> HostResult:
        """Run one command line; see Fleet.run.

        Args:
            line: the shell command.
            stdin: its input.
            timeout: when it is ended on a host that answers SSH.
            keep: bytes of output to keep.
            mark: NAME=VALUE that `line` exports, to find its processes when they are ended early.
            connect_within: seconds for connecting, None for the fleet's deadline.
            on_output: gets each block of output.
            on_sent: gets the count of input bytes just sent.
            talk: answers a command that sends questions.
            fenced: whether the host compares all of `address.fence` and prints a refusal; not where all output is the
                program's own. Then it compares its version alone, and the exit status is `fence.REFUSED`.
        """
        guard = guard_command if fenced else guard_output
        line = f"export ORCH_HOST_NAME={shlex.quote(self.host.alias)};{guard(line, self.host.fence)}"
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
            ended = self._retry(once, self._deadline if connect_within is None else connect_within, _ATTEMPTS)
        except BaseException:  # of a callback: the command must not continue without us
            if mark:
                self._end_processes(mark)
            raise
        if mark and ended.failure and ended.failure.failure in (Failure.TIMEOUT, Failure.STOPPED):
            self._end_processes(mark)
        refused = parse_refusal(ended.exit_code, ended.output) if fenced and self.host.fence is not None else None
        if refused is not None:
            ended = Ended(exit_code=None, signal=None, failure=refused, output=b"")
        return self._result(ended)

    @property
    def halted(self) -> bool:
        """Whether the call is to end."""
        return self._halt.reason is not None

    def sleep(self, seconds: float) -> None:
        """Sleep, but return early when the call is to end."""
        self._halt.requested.wait(seconds)

    def connect(self, timeout: float) -> HostResult:
        """Connect and authenticate within `timeout` seconds, with retries."""

        def once(seconds: float) -> Ended:
            self._link.transport(min(seconds, self._deadline))
            return Ended(exit_code=0, signal=None, failure=None, output=b"")

        return self._result(self._retry(once, timeout, None))

    def _retry(self, once: Callable[[float], Ended], seconds: float, attempts: int | None) -> Ended:
        """Call `once` until it does not fail in a way that connecting again may fix, for `seconds` at most."""
        limit = self._began + seconds

        def attempt() -> Ended:
            if self._halt.reason is not None:
                raise self._halt.reason
            self._attempts += 1
            return once(max(0.2, limit - time.monotonic()))

        policy = RetryPolicy(backoff=SSH_CONNECT, attempts=attempts, deadline=seconds)
        try:
            return policy.run(
                attempt,
                retry=lambda error: isinstance(error, HostFailure) and error.retry,
                stopped=self._halt.requested.is_set,
                sleep=self.sleep,
            )
        except HostFailure as failure:
            return Ended(exit_code=None, signal=None, failure=failure, output=b"")

    def _end_processes(self, mark: str) -> None:
        """End the processes that the command left running. Its outcome is known, so a failure here changes nothing."""
        try:
            command = Command(
                self._link.transport(self._deadline),
                deadline=self._deadline,
                timeout=_END_SECONDS,
                halt=Halt(),
                keep=1024,
            )
            command.run(shell_command("end-marked.sh", mark, str(_END_GRACE)).encode(), b"")
        except HostFailure:
            return  # the host is lost, and the command with it

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
            remedy="" if failure is None else failure.remedy,
        )
        return HostResult(outcome, ended.output)


def ending_timeout(grace: float) -> float:
    """Return the seconds after which a script that ends processes, with `grace` between TERM and KILL, is given up."""
    return grace + _KILL_TIMEOUT


class _FanOut:
    """One call of `work` on every host, `width` at a time, each in a thread, supervised by the caller's thread."""

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
            threading.Thread(target=self._work_off, name=f"orch-host-{number}", daemon=True).start()

    def wait(self) -> FleetResult:
        stop_at: float | None = None
        try:
            for _ in range(self._count):
                stop_at = self._note(self._next(stop_at), stop_at)
        except BaseException:  # Ctrl-C: the commands are ended first, then it is raised again
            self._halt.request(HostFailure(Failure.STOPPED, "interrupted"))
            self._drain(_END_GRACE + 1.0)
            raise
        if self._error is not None:
            raise explain_exhaustion(self._error) or self._error from self._error.__cause__
        self._results.sort(key=lambda result: result.outcome.rank)
        return FleetResult(tuple(self._results), self._first)

    def _drain(self, seconds: float) -> None:
        limit = time.monotonic() + seconds
        while len(self._results) < self._count and time.monotonic() < limit:
            with contextlib.suppress(queue.Empty):
                self._note(self._done.get(timeout=max(0.01, limit - time.monotonic())), None)

    def _work_off(self) -> None:
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
                    self._halt.request(HostFailure(Failure.STOPPED, f"ended because {self._first_failed()} failed"))
                    stop_at = None
                    continue
                wait = left if wait is None else min(wait, left)
            try:
                return self._done.get(timeout=wait)
            except queue.Empty:
                if self._stop is not None and self._stop.is_set():
                    self._halt.request(HostFailure(Failure.STOPPED, "ended on request"))
                    self._stop = None

    def _note(self, result: HostResult | BaseException, stop_at: float | None) -> float | None:
        if isinstance(result, BaseException):
            self._error = self._error or result
            self._halt.request(HostFailure(Failure.STOPPED, "ended because orch failed"))
            return None
        self._results.append(result)
        outcome = result.outcome
        if not outcome.ok and self._first is None and outcome.failure is not Failure.STOPPED:
            self._first = outcome
            if self._grace is not None:
                return time.monotonic() + self._grace
        return stop_at

    def _first_failed(self) -> str:
        return "another host" if self._first is None else f"host {self._first.rank}"


def last_line(output: bytes) -> str:
    """Return the last line that is not blank, without control characters, at most 300 characters."""
    for line in reversed(output[-4096:].replace(b"\r", b"\n").split(b"\n")):
        text = "".join(c for c in line.decode("utf-8", "replace") if c.isprintable()).strip()
        if text:
            return text[:_LONGEST_LINE]
    return ""
