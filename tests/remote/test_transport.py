"""The tuned transport: the private names it uses, and their effects."""

from __future__ import annotations

import inspect
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest
from paramiko.agent import AgentSSH
from paramiko.auth_handler import AuthOnlyHandler
from paramiko.channel import Channel
from paramiko.common import MSG_CHANNEL_FAILURE, MSG_CHANNEL_REQUEST
from paramiko.packet import Packetizer
from paramiko.transport import ServiceRequestingTransport, Transport
from support.sshd import Farm

from orchestrator.remote import transport as ours
from orchestrator.remote.connect import Link, fabric_config
from orchestrator.remote.fleet import Fleet
from orchestrator.remote.identities import KeyRing
from orchestrator.remote.transport import TunedTransport
from orchestrator.remote.wire import BlockPipe

REMOTE = Path(ours.__file__).parent
FILES = ("transport.py", "session_channel.py")

PRIVATE_OF_TRANSPORT = {
    "_active_check_timeout": None,
    "_verify_key": ["self", "host_key", "sig"],
    "_activate_outbound": ["self"],
    "_auth_trigger": ["self"],
    "_next_channel": ["self"],
    "_send_message": ["self", "data"],
    "_send_user_message": ["self", "data"],
    "_parse_newkeys": ["self", "m"],
    "_parse_channel_open_success": ["self", "m"],
    "_parse_channel_open_failure": ["self", "m"],
    "_parse_request_success": ["self", "m"],
    "_parse_request_failure": ["self", "m"],
    "_parse_disconnect": ["self", "m"],
    "_parse_debug": ["self", "m"],
    "_log": ["self", "level", "msg", "args"],
}
PRIVATE_OF_CHANNEL = {
    "_set_transport": ["self", "transport"],
    "_set_window": ["self", "window_size", "max_packet_size"],
    "_send_eof": ["self"],
    "_send": ["self", "s", "m"],
    "_close_internal": ["self"],
    "_handle_request": ["self", "m"],
    "_request_failed": ["self", "m"],
    "_log": ["self", "level", "msg", "args"],
}
OVERRIDDEN_OF_PACKETIZER = {
    "read_all": ["self", "n", "check_rekey"],
    "readline": ["self", "timeout"],
    "write_all": ["self", "out"],
    "send_message": ["self", "data"],
    "start_handshake": ["self", "timeout"],
    "handshake_timed_out": ["self"],
    "complete_handshake": ["self"],
    "close": ["self"],
}


@pytest.mark.parametrize(
    ("owner", "name", "parameters"),
    [
        *((ServiceRequestingTransport, *item) for item in PRIVATE_OF_TRANSPORT.items()),
        *((Channel, *item) for item in PRIVATE_OF_CHANNEL.items()),
        *((Packetizer, *item) for item in OVERRIDDEN_OF_PACKETIZER.items()),
        (AuthOnlyHandler, "_parse_userauth_failure", ["self", "m"]),
        (AuthOnlyHandler, "wait_for_response", ["self", "event"]),
        (AgentSSH, "_send_message", ["self", "msg"]),
    ],
)
def test_paramiko_still_has_each_private_name_we_use(owner: type, name: str, parameters: list[str] | None) -> None:
    assert hasattr(owner, name), f"paramiko {paramiko.__version__} moved {owner.__name__}.{name}"
    if parameters is not None:
        assert list(inspect.signature(getattr(owner, name)).parameters) == parameters


def test_paramiko_still_dispatches_channel_messages_through_its_table() -> None:
    table = Transport._channel_handler_table
    assert table[MSG_CHANNEL_REQUEST] is Channel._handle_request
    assert table[MSG_CHANNEL_FAILURE] is Channel._request_failed


def test_the_lists_above_name_every_private_attribute_that_the_files_use() -> None:
    declared = set[str]()
    for name in FILES:
        text = (REMOTE / name).read_text()
        block = text[text.index("if TYPE_CHECKING:") : text.index("else:\n    _")]
        declared |= set(re.findall(r"def (_[a-z]\w+)\(", block))
    assert {"_send_message", "_handle_request"} <= declared
    tested = {*PRIVATE_OF_TRANSPORT, *PRIVATE_OF_CHANNEL, "_parse_userauth_failure"}
    assert declared <= tested, declared - tested


def test_only_these_files_touch_private_names_of_paramiko() -> None:
    names = {*PRIVATE_OF_TRANSPORT, *PRIVATE_OF_CHANNEL, "_channels", "_channel_handler_table"} - {"_log", "_send"}
    for path in REMOTE.glob("*.py"):
        if path.name not in (*FILES, "agent.py"):
            used = names & set(re.findall(r"\b_[a-z]\w+", path.read_text()))
            assert not used, f"{path.name} uses {used}"


@pytest.fixture
def connection(shared_farm: Farm) -> Iterator[TunedTransport]:
    address = shared_farm.addresses[0]
    link = Link(address, KeyRing().identities(address), fabric_config())
    yield link.transport(10)
    link.close()


def test_the_fast_algorithms_are_agreed_on(connection: TunedTransport) -> None:
    assert connection.local_cipher == connection.remote_cipher == "aes128-gcm@openssh.com"
    assert connection.host_key_type == "ssh-ed25519"
    assert connection.identity_checked


def test_new_keys_in_the_middle_of_a_stream_lose_nothing(shared_farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real limit is 512 MiB; here every 256 KiB, in both directions together."""
    exchanges: list[int] = []
    usual = TunedTransport._activate_outbound

    def counted(self: TunedTransport) -> None:
        exchanges.append(1)
        usual(self)

    monkeypatch.setattr(Packetizer, "REKEY_BYTES", 256 * 1024)
    monkeypatch.setattr(TunedTransport, "_activate_outbound", counted)
    data = os.urandom(3_000_000)
    got: list[bytes] = []
    began = time.monotonic()
    with Fleet(shared_farm.addresses[:1], deadline=20) as fleet:
        result = fleet.run("cat", stdin=data, on_output=lambda host, block: got.append(block), timeout=60)
        assert result.ok, result.failed
        assert fleet.run("echo still here", timeout=60).ok
    assert b"".join(got) == data
    assert len(exchanges) > 3  # one to begin with, and at least three in the middle
    assert time.monotonic() - began < 15  # half of the 30 s that paramiko waits when it blocks its own thread


def test_the_transports_own_thread_never_waits_for_a_key_exchange(connection: TunedTransport) -> None:
    """The host closes a session while keys are exchanged: the answer to that is kept for later."""
    channel = connection.open_session(timeout=5)
    channel.start(b"sleep 0.2", more=False)
    connection.clear_to_send.clear()
    while not channel.closed:
        assert connection.is_active()
        time.sleep(0.02)
    request = paramiko.Message()
    request.add_byte(bytes([80]))  # a global request, RFC 4254 section 4
    request.add_string("keepalive@openssh.com")
    request.add_boolean(True)
    connection._answered.clear()
    connection.wire.send_if_free(request)
    assert connection._answered.wait(5)
    assert connection._deferred


def test_input_on_its_way_when_its_command_ends_does_not_end_the_other_commands(
    connection: TunedTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order is forced: a message is made, the session is closed from both sides, the message is sent."""
    other, channel = connection.open_session(timeout=5), connection.open_session(timeout=5)
    other.start(b"sleep 0.6; echo still here", more=False)
    channel.start(b"sleep 0.2", more=True)
    usual, sender = TunedTransport._send_user_message, threading.current_thread()

    def late(self: TunedTransport, data: paramiko.Message) -> None:
        if threading.current_thread() is sender:
            assert channel.status_event.wait(5)
            while not channel.closed:
                time.sleep(0.01)
            assert self.answers(5), "our last word on it is sent by now"
        usual(self, data)

    monkeypatch.setattr(TunedTransport, "_send_user_message", late)
    channel.send_all(memoryview(b"too late"))
    monkeypatch.undo()
    assert other.read(5) == b"still here\n", connection.end_message
    assert connection.answers(5)


def test_a_keepalive_is_answered_and_an_idle_connection_has_no_thread_that_polls(connection: TunedTransport) -> None:
    assert connection.answers(5)
    assert connection.sock.gettimeout() is None
    before = connection.wire.last_received
    threading.Event().wait(0.3)
    assert connection.wire.last_received == before


def test_a_probe_never_waits_for_a_writer(connection: TunedTransport) -> None:
    with connection.wire.corked():
        thread = threading.Thread(target=connection.probe)
        thread.start()
        thread.join(5)
        assert not thread.is_alive()


def test_commands_share_one_connection_and_the_next_session_is_open_ahead(connection: TunedTransport) -> None:
    first = connection.open_session(timeout=5)
    first.start(b"echo one", more=False)
    spare = connection._spare
    assert spare is not None
    assert spare.opened.wait(5)
    assert connection.open_session(timeout=5) is spare
    assert first.read(5) == b"one\n"


def test_closing_wakes_whoever_waits(connection: TunedTransport) -> None:
    channel = connection.open_session(timeout=5)
    channel.start(b"sleep 60", more=False)
    threading.Timer(0.2, connection.close).start()
    assert channel.read(20) == b""
    connection.join(10)
    assert not connection.is_alive()


class TestBlockPipe:
    def test_a_reader_gets_all_that_is_there_in_one_piece(self) -> None:
        pipe = BlockPipe(1 << 20)
        for block in (b"one", b"two", b"three"):
            pipe.feed(block)
        assert len(pipe) == 11
        assert pipe.read_ready()
        assert pipe.read(100) == b"onetwothree"
        assert len(pipe) == 0

    def test_a_small_read_leaves_the_rest(self) -> None:
        pipe = BlockPipe(1 << 20)
        pipe.feed(b"abcdef")
        pipe.feed(b"gh")
        assert pipe.read(4) == b"abcd"
        assert pipe.read(4) == b"efgh"
        assert not pipe.read_ready()

    def test_an_interrupted_reader_still_gets_what_is_there(self) -> None:
        pipe = BlockPipe(1 << 20)
        pipe.feed(b"last words")
        pipe.interrupt()
        assert pipe.read(100, 5) == b"last words"
        with pytest.raises(OSError):  # paramiko's PipeTimeout
            pipe.read(100, 5)

    def test_the_end_is_an_empty_read_for_ever(self) -> None:
        pipe = BlockPipe(1 << 20)
        pipe.feed(b"x")
        pipe.close()
        assert [pipe.read(9), pipe.read(9), pipe.read(9)] == [b"x", b"", b""]
