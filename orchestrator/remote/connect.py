"""The connection to one host: dialled, verified, authenticated, kept open, and reopened after a break."""

from __future__ import annotations

import contextlib
import functools
import socket
import struct
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, cast

import fabric  # pyright: ignore[reportMissingTypeStubs]  # fabric ships no types; `Any` at its border
from paramiko import AuthenticationException, PKey, SSHClient, SSHException
from paramiko.channel import Channel
from paramiko.client import MissingHostKeyPolicy
from paramiko.ssh_exception import ChannelException, IncompatiblePeer

from orchestrator.hosts import Failure, HostAddress
from orchestrator.open_files import is_exhaustion, raise_exhaustion
from orchestrator.remote.failures import HostFailure, describe_error
from orchestrator.remote.iam_refusals import explain_iam_refusal
from orchestrator.remote.identities import Identity
from orchestrator.remote.proxy import start_proxy
from orchestrator.remote.transport import TunedTransport
from orchestrator.remote.trust import HostPins, Trust

_JUMPS_AT_ONCE = 8  # handshakes through one jump host at a time; sshd's MaxStartups is 10:30:100
_WRITE_AT_LEAST = 5.0  # seconds without progress after which a write may fail
_FAR = 0.004  # seconds of one round trip, above which compression is worth its time
_ASK_AFTER_IDLE = 15.0  # seconds without a byte after which an open connection is tested before use


class Link:
    """The connection to one host, opened when needed. Thread-safe."""

    def __init__(
        self,
        address: HostAddress,
        identities: Sequence[Identity],
        config: Any,
        jump: Link | None = None,
        refusal: HostFailure | None = None,
        pins: HostPins | None = None,
    ) -> None:
        """Prepare a connection. refusal: why there are no identities, the outcome of every attempt."""
        self.address = address
        self._pins = pins
        self._config = config
        self.gate = threading.BoundedSemaphore(_JUMPS_AT_ONCE)  # limits connections through this host
        self._identities, self._refusal = identities, refusal
        self._jump = jump
        self._lock = threading.Lock()
        self._connect_kwargs: dict[str, Any] = {
            "pkey": identities[0].key if identities else None,
            "allow_agent": False,
            "look_for_keys": False,
        }
        self._connection: Any = None
        self._transport: TunedTransport | None = None
        self._wide = False
        self._round_trip = 0.0
        self._proxy_error = ""  # of an earlier attempt, since the last one may be too short to report it

    @property
    def is_far(self) -> bool:
        """Whether the round trip is that of a wide area network, where bytes cost more than their compression."""
        if self.address.proxy:
            return True
        return self._round_trip > _FAR or (self._jump is not None and self._jump.is_far)

    def transport(self, deadline: float) -> TunedTransport:
        """Return an open, authenticated connection within `deadline` seconds. Raises HostFailure."""
        limit = time.monotonic() + deadline
        with self._lock:
            current = self._transport
            if current is not None and _usable(current, deadline):
                return current
            self._transport = None
            self._transport = self._open(limit)
            return self._transport

    def close(self) -> None:
        """Close the connection without waiting for a thread that is opening it."""
        if self._transport is not None:
            self._transport.close()

    def _open(self, limit: float) -> TunedTransport:
        if self._refusal is not None:
            raise self._refusal
        if self.address.proxy:
            return self._open_by_proxy(limit)
        if self._jump is None:
            began = time.monotonic()
            sock = _dial(self.address, limit)
            self._round_trip = _round_trip(sock, time.monotonic() - began)
            return self._handshake(sock, limit)
        if not self._jump.gate.acquire(timeout=max(0.0, limit - time.monotonic())):
            raise HostFailure(Failure.UNREACHABLE, f"jump host {self._jump.address.alias} is busy", retry=True)
        try:
            return self._handshake(_dial_through(self._jump, self.address, limit), limit)
        finally:
            self._jump.gate.release()

    def _open_by_proxy(self, limit: float) -> TunedTransport:
        """Connect by the proxy command. If no byte of the host arrives, the host counts as unreachable."""
        seconds = max(0.0, limit - time.monotonic())
        sock = start_proxy(self.address)
        _bound_writes(sock, max(seconds, _WRITE_AT_LEAST))
        try:
            return self._handshake(sock, limit)
        except HostFailure as failure:
            if sock.heard or failure.failure not in (Failure.LOST, Failure.FROZEN):
                raise
            silence = f"{self.address.proxy[0]} delivered nothing from {self.address.alias} in {seconds:.1f} s"
            self._proxy_error = sock.end_reason() or sock.error_line or self._proxy_error
            detail = sock.end_reason() or f"{silence}: {self._proxy_error}".rstrip(": ")
            if remedy := explain_iam_refusal(self._proxy_error):
                raise HostFailure(Failure.AUTH, detail, remedy=remedy) from failure
            raise HostFailure(Failure.UNREACHABLE, detail, retry=True) from failure

    def _handshake(self, sock: socket.socket | Channel, limit: float) -> TunedTransport:
        trust = Trust(self.address, self._pins)
        factory = functools.partial(
            TunedTransport, user=self.address.user, identities=self._identities, trust=trust, wide=self._wide
        )
        connection = self._fabric()
        self._connect_kwargs.update(sock=sock, transport_factory=factory, timeout=max(0.1, limit - time.monotonic()))
        try:
            connection.open()
        except BaseException as error:
            _discard(connection, sock)
            if isinstance(error, IncompatiblePeer) and not self._wide and "host key" not in str(error):
                self._wide = True
                raise HostFailure(Failure.LOST, describe_error(error), retry=True) from error
            raise _translate_error(error, self.address) from error
        transport = cast(TunedTransport, connection.transport)
        transport.channel_timeout = max(1.0, limit - time.monotonic())
        return transport

    def _fabric(self) -> Any:
        """Return the fabric connection, made on first use with our socket and transport as its documented options."""
        if self._connection is None:
            address = self.address
            try:
                connection = _Connection(
                    address.host,
                    user=address.user,
                    port=address.port,
                    config=self._config,
                    connect_kwargs=self._connect_kwargs,
                )
            except KeyError:  # of the name of this user, which fabric looks up: see read_own_account
                raise_exhaustion()
                raise
            connection.client.set_missing_host_key_policy(_CheckedByTransport())
            self._connection = connection
        return self._connection


class _Connection(cast(Any, fabric).Connection):  # type: ignore[misc]  # fabric ships no types
    """fabric's Connection with plain attribute assignment.

    fabric searches its configuration tree at every assignment, which triples the CPU time of a connection object (0.9
    instead of 0.3 ms, November 2026).
    """

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


class _CheckedByTransport(MissingHostKeyPolicy):
    """The second check of the host key: the key exchange must have compared it."""

    def missing_host_key(self, client: SSHClient, hostname: str, key: PKey) -> None:
        """Raise HostFailure unless the transport has verified the key."""
        transport = client.get_transport()
        if not isinstance(transport, TunedTransport) or not transport.identity_checked:
            raise HostFailure(Failure.IDENTITY, f"the key of {hostname} was not checked")


def fabric_config() -> Any:
    """Return fabric's defaults without ssh_config or fabric files: a HostAddress is complete."""
    return cast(Any, fabric).Config(overrides={"load_ssh_configs": False}, lazy=True)


def find_wrong_key(address: HostAddress, pins: HostPins, seconds: float) -> HostFailure | None:
    """Connect until the host has shown its key, without logging in. Return why the key is refused, or None."""
    link = Link(address, (), fabric_config(), pins=pins)
    try:
        link.transport(seconds)
    except HostFailure as failure:
        return failure if failure.failure is Failure.IDENTITY else None
    finally:
        link.close()
    return None


def _usable(transport: TunedTransport, deadline: float) -> bool:
    if not transport.is_active():
        return False
    idle = time.monotonic() - transport.wire.last_received
    if idle < _ASK_AFTER_IDLE or transport.answers(min(5.0, deadline / 4)):
        return True
    transport.end(HostFailure(Failure.FROZEN, f"no answer after {idle:.0f} s of silence", retry=True))
    return False


def _dial(address: HostAddress, limit: float) -> socket.socket:
    """Return a TCP connection to the first of the host's addresses that answers."""
    timeout = max(0.1, limit - time.monotonic())
    try:
        sock = socket.create_connection((address.host, address.port), timeout)
    except ConnectionRefusedError as error:
        where = f"{address.host} port {address.port}"
        raise HostFailure(Failure.REFUSED, f"nothing listens at {where}", retry=True) from error
    except ConnectionResetError as error:
        raise HostFailure(Failure.LOST, describe_error(error), retry=True) from error
    except (socket.gaierror, UnicodeError) as error:  # UnicodeError: Python reads it as no name, such as `a..b`
        raise_exhaustion()  # a look-up without an open file left is no answer about the name
        why = error.strerror if isinstance(error, socket.gaierror) else "it is not a name of the Internet"
        reason = f"the name {address.host} leads nowhere: {why}"
        raise HostFailure(Failure.UNREACHABLE, reason, retry=True) from error
    except TimeoutError as error:
        where = f"{address.host} port {address.port}"
        raise HostFailure(Failure.UNREACHABLE, f"no answer from {where} in {timeout:.1f} s", retry=True) from error
    except OSError as error:
        if is_exhaustion(error):
            raise
        raise HostFailure(Failure.UNREACHABLE, describe_error(error), retry=True) from error
    sock.settimeout(None)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _bound_writes(sock, max(timeout, _WRITE_AT_LEAST))
    return sock


def _round_trip(sock: socket.socket, measured: float) -> float:
    """Return the round trip in seconds as the kernel measured it, without the delays of our threads.

    Linux only (tcpi_rtt of struct tcp_info, linux/tcp.h); elsewhere `measured`.
    """
    option = getattr(socket, "TCP_INFO", None)
    if option is None or not sys.platform.startswith("linux"):
        return measured
    info = sock.getsockopt(socket.IPPROTO_TCP, option, 72)
    return float(struct.unpack_from("=I", info, 68)[0]) / 1e6 if len(info) == 72 else measured


def _bound_writes(sock: socket.socket, seconds: float) -> None:
    """Make a write fail after `seconds` without progress, so that no thread hangs on a host that stopped reading."""
    integral = int(seconds)
    with contextlib.suppress(OSError):
        sock.setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", integral, int((seconds - integral) * 1e6))
        )


def _dial_through(jump: Link, address: HostAddress, limit: float) -> Channel:
    try:
        transport = jump.transport(max(0.1, limit - time.monotonic()))
    except HostFailure as failure:
        detail = f"jump host {jump.address.alias}: {failure.detail}"
        raise HostFailure(failure.failure, detail, retry=failure.retry, remedy=failure.remedy) from failure
    left = max(0.1, limit - time.monotonic())
    try:
        return transport.open_channel("direct-tcpip", (address.host, address.port), ("127.0.0.1", 0), timeout=left)
    except ChannelException as error:
        refused = "refused" in transport.end_message.lower()
        why = transport.end_message or describe_error(error)
        detail = f"jump host {jump.address.alias} could not reach {address.host}: {why}"
        raise HostFailure(Failure.REFUSED if refused else Failure.UNREACHABLE, detail, retry=True) from error
    except (SSHException, EOFError, OSError) as error:
        detail = f"jump host {jump.address.alias}: {describe_error(error)}"
        raise HostFailure(Failure.UNREACHABLE, detail, retry=True) from error


def _discard(connection: Any, sock: socket.socket | Channel) -> None:
    with contextlib.suppress(OSError, EOFError, SSHException):
        connection.client.close()
    with contextlib.suppress(OSError, EOFError, SSHException):
        sock.close()


def _translate_error(error: BaseException, address: HostAddress) -> BaseException:
    """Return the HostFailure for an exception of the libraries; other exceptions are returned unchanged."""
    match error:
        case HostFailure():
            return error
        case AuthenticationException():
            return HostFailure(Failure.AUTH, f"{address.alias} {describe_error(error)}")
        case IncompatiblePeer() if "host key" in str(error):
            return HostFailure(Failure.IDENTITY, f"{address.alias} has no key of the pinned kind")
        case IncompatiblePeer():
            return HostFailure(Failure.UNREACHABLE, f"{address.alias}: {describe_error(error)}")
        case SSHException() | EOFError():
            return HostFailure(Failure.LOST, f"during the handshake: {describe_error(error)}", retry=True)
        case OSError() if not is_exhaustion(error):
            return HostFailure(Failure.LOST, f"during the handshake: {describe_error(error)}", retry=True)
        case _:
            return error
