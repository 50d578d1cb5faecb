"""paramiko's transport, tuned for many hosts. Only this file and session_channel.py use paramiko's private names.

Its changes, each with a measured effect: large buffered reads and no polling; several messages in one write;
the public-key request goes out with the service request; one session is opened ahead, so that a command
costs one round trip; exit signals are kept; a keepalive asks for an answer. tests/remote/test_transport.py
lists every private attribute used in both, so that a paramiko release that moves one fails there first.
"""

from __future__ import annotations

import contextlib
import functools
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from paramiko import AuthenticationException, PKey, SSHException
from paramiko.auth_handler import AuthOnlyHandler
from paramiko.channel import Channel
from paramiko.common import (
    MSG_CHANNEL_FAILURE,
    MSG_CHANNEL_REQUEST,
    cMSG_GLOBAL_REQUEST,
    cMSG_SERVICE_REQUEST,
)
from paramiko.message import Message
from paramiko.transport import ChannelMap, ServiceRequestingTransport, Transport

from orchestrator.hosts import Failure
from orchestrator.remote.failures import HostFailure, describe_error
from orchestrator.remote.identities import Identity
from orchestrator.remote.proxy import ProxySocket
from orchestrator.remote.session_channel import Handler, SessionChannel, SessionMessage, on_failure, on_request
from orchestrator.remote.trust import Trust
from orchestrator.remote.wire import TunedPacketizer, Wire

_CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")  # no MAC to compute beside the cipher
_EXCHANGES = ("mlkem768x25519-sha256", "curve25519-sha256@libssh.org", "ecdh-sha2-nistp256")

_ASK_AGAIN = 0.01  # seconds until a keepalive that could not be sent is tried again

if TYPE_CHECKING:

    class _Transport(ServiceRequestingTransport):
        """The private names of paramiko.Transport that this file uses, for the type checkers."""

        _channels: ChannelMap
        _channel_handler_table: dict[int, Handler]

        def _verify_key(self, host_key: bytes, sig: bytes) -> None: ...
        def _activate_outbound(self) -> None: ...
        def _auth_trigger(self) -> None: ...
        def _next_channel(self) -> int: ...
        def _send_message(self, data: Message) -> None: ...
        def _send_user_message(self, data: Message) -> None: ...
        def _parse_newkeys(self, m: Message) -> None: ...
        def _parse_channel_open_success(self, m: Message) -> None: ...
        def _parse_channel_open_failure(self, m: Message) -> None: ...
        def _parse_request_success(self, m: Message) -> None: ...
        def _parse_request_failure(self, m: Message) -> None: ...
        def _parse_disconnect(self, m: Message) -> None: ...
        def _parse_debug(self, m: Message) -> None: ...

    class _AuthHandler(AuthOnlyHandler):
        def _parse_userauth_failure(self, m: Message) -> None: ...

else:
    _Transport, _AuthHandler = ServiceRequestingTransport, AuthOnlyHandler


class TunedTransport(_Transport):
    """One SSH connection. `start_client` returns when the first session is open, or raises the reason.

    Attributes:
        verdict: why orch ended the connection (frozen, lost); None while it is open, or when the peer ended it.
        end_message: the message with which the peer, or the proxy program, disconnected, or "".
    """

    _active_check_timeout = None  # a blocking socket: idle connections cost no wake-ups

    def __init__(
        self,
        sock: Wire,
        *,
        user: str,
        identities: Sequence[Identity],
        trust: Trust,
        wide: bool = False,
        disabled_algorithms: Mapping[str, Any] | None = None,
    ) -> None:
        """Prepare a connection; `wide` offers every algorithm of paramiko, for a server without the fast ones."""
        super().__init__(sock, disabled_algorithms=disabled_algorithms, packetizer_class=TunedPacketizer)
        handlers = self._channel_handler_table
        self._channel_handler_table = {
            **handlers,
            MSG_CHANNEL_REQUEST: functools.partial(on_request, handlers[MSG_CHANNEL_REQUEST]),
            MSG_CHANNEL_FAILURE: functools.partial(on_failure, handlers[MSG_CHANNEL_FAILURE]),
        }
        self.wire = cast(TunedPacketizer, self.packetizer)
        self.verdict: HostFailure | None = None
        self._disconnect_message = ""
        self.identity_checked = False
        self._user, self._trust = user, trust
        self._untried = list(identities)
        self._tried: list[str] = []
        self._signer = ""  # what is missing while a key signs, which may wait for a person
        self._ready = threading.Event()
        self._answered = threading.Event()
        self._ending: Exception | None = None
        self._own_error: Exception | None = None
        self._refusal = ""
        self._deferred: list[Message] = []  # of the transport's own thread, until a key exchange has ended
        self._spare: SessionChannel | None = None
        self._spare_lock = threading.Lock()
        if isinstance(sock, ProxySocket):
            self.wire.end_handshake()  # not TCP: no acknowledgements to speed up
        self._choose_algorithms(wide)

    @property
    def accepted_identity(self) -> str:
        """The name of the key that the host accepted."""
        return self._tried[-1] if self._tried else ""

    @property
    def end_message(self) -> str:
        if not self._disconnect_message and isinstance(self.saved_exception, SSHException):
            return describe_error(self.saved_exception)
        if not self._disconnect_message and isinstance(self.sock, ProxySocket):
            return self.sock.end_reason()
        return self._disconnect_message

    def _choose_algorithms(self, wide: bool) -> None:
        options = self.get_security_options()
        if kinds := self._trust.algorithms:
            others = options.key_types if self._trust.shows_others else ()
            options.key_types = tuple(dict.fromkeys((*kinds, *others)))
        if not wide:
            options.ciphers = _CIPHERS
            options.kex = tuple(name for name in _EXCHANGES if name in options.kex)

    # ---- the handshake, in the transport's own thread

    def start_client(self, event: threading.Event | None = None, timeout: float | None = None) -> None:
        self.active = True
        self.start()
        if not self._ready.wait(timeout):
            stage = "did not end the handshake" if self.remote_version else "sent no SSH banner"
            detail = f"accepted the connection, but {self._signer or stage} within {timeout:.1f} s"
            self.end(HostFailure(Failure.FROZEN, detail, retry=True))
        if self.verdict is not None:
            raise self.verdict
        if self._refusal:
            raise AuthenticationException(f"{self._refusal}; {self.end_message}".removesuffix("; "))
        if not self.active:
            raise self._ending or EOFError(self.end_message or "the host closed the connection during the handshake")

    def run(self) -> None:
        try:
            super().run()
        finally:
            self._ending = self._explain(self.saved_exception)
            self._ready.set()
            self._answered.set()

    def _explain(self, error: Exception | None) -> Exception | None:
        """Return why the thread ended. paramiko raises errors of every type for messages that SSH does not allow."""
        if error is None or error is self._own_error or isinstance(error, (SSHException, EOFError, OSError)):
            return error
        return SSHException(f"the host sent what SSH does not allow ({type(error).__name__}: {describe_error(error)})")

    def _verify_key(self, host_key: bytes, sig: bytes) -> None:
        with self._own_errors():
            self._trust.check(host_key)
        super()._verify_key(host_key, sig)
        with self._own_errors():
            if self.host_key is None:
                raise HostFailure(Failure.IDENTITY, "the host showed no key")
            self._trust.accept(self.host_key.get_name(), host_key)
        self.identity_checked = True

    @contextlib.contextmanager
    def _own_errors(self) -> Generator[None]:
        """Note an error of orch itself, which is not the host's."""
        try:
            yield
        except Exception as error:
            self._own_error = error
            raise

    def _activate_outbound(self) -> None:
        if self.auth_handler is not None:  # new keys for an old connection
            super()._activate_outbound()
            return
        with self.wire.corked():
            super()._activate_outbound()
            service = Message()
            service.add_byte(cMSG_SERVICE_REQUEST)
            service.add_string("ssh-userauth")
            self._send_message(service)
            self.auth_handler = _PipelinedAuth(self)
            if not self._offer_identity():
                self._ready.set()

    def _auth_trigger(self) -> None:
        super()._auth_trigger()
        self._refusal = ""
        self.wire.end_handshake()
        self._spare = channel = self._new_session()
        self._send_user_message(channel.open_request)

    def auth_refused(self, methods: list[str]) -> None:
        """Offer the next key, or record that the host refused all. Called by the handler in the transport's thread."""
        tried = f"; tried: {', '.join(self._tried)}" if len(self._tried) > 1 else ""
        self._refusal = f"refused the key for user {self._user}; it allows {', '.join(methods) or 'nothing'}{tried}"
        if "publickey" not in methods or not self._offer_identity():
            self._ready.set()

    def _offer_identity(self) -> bool:
        """Offer the next key that can sign. Return False when there is none."""
        handler = cast(_PipelinedAuth, self.auth_handler)
        while self._untried:
            identity = self._untried.pop(0)
            self._tried.append(identity.name)
            self._signer = f"{identity.name} did not sign"
            try:
                handler.auth_publickey(self._user, identity.key)
            except SSHException as error:  # of an agent: its user declined, or it has lost the key
                self._refusal = f"{self._signer}: {error}"
                continue
            finally:
                self._signer = ""
            return True
        return False

    def auth_publickey(self, username: str, key: PKey, event: threading.Event | None = None) -> list[str]:
        """Return the result of the authentication, which start_client has completed already."""
        if not self.is_authenticated():
            raise AuthenticationException(self._refusal or f"{username} was refused")
        return []

    # ---- sessions

    def open_session(
        self, window_size: int | None = None, max_packet_size: int | None = None, timeout: float | None = None
    ) -> SessionChannel:
        """Return the session opened ahead, or a new one. Raises SSHException when the host opens none."""
        with self._spare_lock:
            channel, self._spare = self._spare, None
        if channel is None or channel.closed:
            channel = self._new_session()
            if (
                not self.active
            ):  # checked after the channel is registered: from here on the end of the connection sets `opened`
                raise SSHException("the connection is closed")
            self._send_user_message(channel.open_request)
        if not channel.opened.wait(self.channel_timeout if timeout is None else timeout):
            raise SSHException("the host opened no session in time")
        if not channel.active or channel.closed:
            raise SSHException(channel.refusal or "the host opened no session")
        return channel

    def reserve_session(self) -> list[Message]:
        """Return the messages that open the next session ahead, [] when one is open already."""
        with self._spare_lock:
            if self._spare is not None:
                return []
            self._spare = self._new_session()
            return [self._spare.open_request]

    def _send_user_message(self, data: Message) -> None:
        """Send, or defer in the transport's own thread, where paramiko would wait for a key exchange for ever."""
        if threading.current_thread() is self and not self.clear_to_send.is_set():
            self._deferred.append(data)
        else:
            super()._send_user_message(data)

    def _parse_newkeys(self, m: Message) -> None:
        super()._parse_newkeys(m)
        deferred, self._deferred = self._deferred, []
        for message in deferred:
            self._send_message(message)

    def send_together(self, messages: Sequence[Message]) -> None:
        """Send all messages in one write, after a key exchange in progress."""
        limit = time.monotonic() + self.clear_to_send_timeout
        while self.clear_to_send.wait(max(0.0, limit - time.monotonic())):
            with self.clear_to_send_lock:
                if self.clear_to_send.is_set():
                    with self.wire.corked():
                        for message in messages:
                            self._send_message(message)
                    return
        raise SSHException("a key exchange did not end in time")

    def _new_session(self) -> SessionChannel:
        with self.lock:
            chanid = self._next_channel()
            channel = SessionChannel(chanid)
            self._channels.put(chanid, channel)
            self.channel_events[chanid] = channel.opened
            self.channels_seen[chanid] = True
            channel.attach(self, self, self.default_window_size, self.default_max_packet_size)
        return channel

    def _parse_channel_open_success(self, m: Message) -> None:
        super()._parse_channel_open_success(m)
        self._ready.set()

    def _parse_channel_open_failure(self, m: Message) -> None:
        chanid, _, reason = m.get_int(), m.get_int(), m.get_text()
        m.rewind()
        channel = self._channels.get(chanid)
        if isinstance(channel, SessionChannel):
            channel.refusal = f"the host opened no session: {reason}"
        self._disconnect_message = reason
        super()._parse_channel_open_failure(m)
        self._ready.set()

    def _send_message(self, data: Message) -> None:
        """Send a message, or drop it when it belongs to a session that we have closed.

        paramiko may be between making such a message and sending it when the session ends. sshd would end the whole
        connection, and with it every other command (channel_from_packet_id of its channels.c, OpenSSH 9.2), or treat
        it as input of the next session, which may have the same number.
        """
        if not isinstance(data, SessionMessage):
            super()._send_message(data)
            return
        with self.wire.in_order():
            if not data.session.ended_here:
                data.session.ended_here = data.is_last
                super()._send_message(data)

    # ---- liveness

    def probe(self) -> bool:
        """Send a keepalive without waiting. Return False when a write or a key exchange in progress prevents it."""
        if not self.active or not self.clear_to_send_lock.acquire(blocking=False):
            return False
        try:
            if not self.clear_to_send.is_set() or not _writable(self):
                return False
            request = Message()
            request.add_byte(cMSG_GLOBAL_REQUEST)
            request.add_string("keepalive@openssh.com")
            request.add_boolean(True)
            return self.wire.send_if_free(request)
        finally:
            self.clear_to_send_lock.release()

    def answers(self, timeout: float) -> bool:
        """Return whether the host answers a keepalive within `timeout` seconds."""
        limit = time.monotonic() + timeout
        self._answered.clear()
        while not self.probe() and self.active and time.monotonic() < limit:  # another command is writing
            self._answered.wait(_ASK_AGAIN)
        return self._answered.wait(max(0.0, limit - time.monotonic())) and self.active

    def end(self, verdict: HostFailure) -> None:
        """Close the connection with a reason, with which every command on it ends."""
        if self.verdict is None:
            self.verdict = verdict
        self.close()

    def unacknowledged(self) -> bool:
        """Return whether the peer's kernel acknowledges nothing: then the machine is lost, not only its sshd stopped.

        Linux only (tcpi_unacked of struct tcp_info, linux/tcp.h); False elsewhere.
        """
        option = getattr(socket, "TCP_INFO", None)
        if option is None or not sys.platform.startswith("linux") or not isinstance(self.sock, socket.socket):
            return False
        try:
            info = self.sock.getsockopt(socket.IPPROTO_TCP, option, 28)
        except OSError:
            return False
        return len(info) == 28 and struct.unpack_from("=I", info, 24)[0] > 0

    def _parse_request_success(self, m: Message) -> None:
        self._answered.set()
        super()._parse_request_success(m)

    def _parse_request_failure(self, m: Message) -> None:
        self._answered.set()
        super()._parse_request_failure(m)

    def _parse_disconnect(self, m: Message) -> None:
        m.get_int()
        self._disconnect_message = f"the host disconnected: {m.get_text()}"
        m.rewind()
        super()._parse_disconnect(m)

    def _parse_debug(self, m: Message) -> None:
        """Ignore the message: sshd comments on each key option, and paramiko would format every byte for a log."""

    def _log(self, level: int, msg: object, *args: object) -> None:
        """Log nothing: this package reports every failure once per host."""


class _PipelinedAuth(_AuthHandler):
    """Public-key authentication whose answer the transport's thread handles, instead of waiting for it."""

    def __init__(self, transport: TunedTransport) -> None:
        super().__init__(transport)
        self._refused = transport.auth_refused

    def wait_for_response(self, event: threading.Event) -> list[str]:
        """Return without waiting."""
        return []

    def _parse_userauth_failure(self, m: Message) -> None:
        self._refused(m.get_list())


def _writable(transport: Transport) -> bool:
    """Return whether a small message can be sent without waiting, through every jump host."""
    sock = transport.sock
    if isinstance(sock, Channel):
        return sock.send_ready() and sock.transport is not None and _writable(sock.transport)
    try:
        poll = select.poll()
        poll.register(sock, select.POLLOUT)
        return bool(poll.poll(0))
    except (OSError, ValueError):
        return False
