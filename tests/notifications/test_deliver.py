"""No loss and at most one double, on both databases: failing receivers, restarts, kills, and two senders."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from receivers import WebReceiver
from run_history import FAILURE, Clock, History

from orchestrator.errors import ConflictError
from orchestrator.notifications import deliver
from orchestrator.notifications.deliver import Delivery
from orchestrator.notifications.delivery_error import DeliveryError
from orchestrator.notifications.messages import Message
from orchestrator.notifications.notices import Kind
from orchestrator.notifications.send import send_message
from orchestrator.notifications.settings import WebhookChannel
from orchestrator.store.leases import Lease
from orchestrator.store.location import Location
from orchestrator.store.read import open_reader_at
from orchestrator.store.store import Store

# Delivers once, in a process that the receiver kills after it has the message and before it answers.
SENDER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from test_deliver import Receiver, Sender
Sender(Path(sys.argv[1]) if sys.argv[1].startswith("/") else sys.argv[1], Receiver(url=sys.argv[2])).deliver()
"""


@dataclass
class Receiver:
    """What a test's channel sends to. fail: how many of the next tries fail; broken: whether the error is permanent."""

    url: str = ""
    titles: list[str] = field(default_factory=list[str])
    ids: list[str] = field(default_factory=list[str])
    fail: int = 0
    broken: bool = False

    def send(self, message: Message) -> str:
        if self.fail:
            self.fail -= 1
            raise DeliveryError("down", "no answer", is_transient=not self.broken, retry_after=7.0)
        if self.url:
            return send_message(WebhookChannel(url=self.url), message, "abc", 0.0)
        self.titles.append(message.title)
        self.ids.append(message.id)
        return "ok"


@dataclass
class Sender:
    """A process that delivers: a new one knows only what is on record."""

    location: Location
    receiver: Receiver
    clock: Clock = field(default_factory=Clock)
    kinds: frozenset[Kind] = frozenset(Kind)
    pauses: list[float] = field(default_factory=list[float])
    ending: bool = False

    @contextmanager
    def opened(self) -> Iterator[tuple[Store, Lease]]:
        with Store(self.location, self.clock) as store:
            lease = store.acquire("notify:webhook", "notifications")
            assert isinstance(lease, Lease)
            try:
                yield store, lease
            finally:
                store.release(lease)

    def delivery(self) -> Delivery:
        return Delivery(
            name="webhook", kinds=self.kinds, send=self.receiver.send, now=self.clock, pause=self.pauses.append,
            is_ending=lambda: self.ending,
        )  # fmt: skip

    def deliver(self) -> int:
        with self.opened() as (store, lease), open_reader_at(self.location) as reader:
            return self.delivery().deliver_new(store, reader, lease)


@pytest.fixture
def sender(location: Location) -> Sender:
    """A channel that was used before."""
    made = Sender(location, Receiver())
    made.deliver()
    return made


def runs(location: Location, *names: str, clock: Clock | None = None) -> None:
    with Store(location, clock or Clock()) as store:
        for name in names:
            History(store, clock or Clock()).run(name, FAILURE)


def titles(*names: str) -> list[str]:
    return [f"run run-of-{name} on '{name}' failed: program failed on worker1" for name in names]


def test_a_new_channel_begins_with_what_happens_after_it(location: Location) -> None:
    runs(location, "before")
    sender = Sender(location, Receiver())
    sender.deliver()
    runs(location, "a", "b")
    sender.deliver()
    sender.deliver()
    assert sender.receiver.titles == titles("a", "b") and len(set(sender.receiver.ids)) == 2


def test_a_message_that_fails_is_tried_again_and_none_behind_it_overtakes_it(sender: Sender) -> None:
    runs(sender.location, "a", "b")
    sender.receiver.fail = 2
    sender.deliver()
    assert sender.receiver.titles == titles("a", "b") and sender.pauses == [7.0, 7.0]


def test_a_receiver_that_is_down_loses_nothing_over_restarts(sender: Sender) -> None:
    runs(sender.location, "a", "b", "c")
    for _ in range(3):
        sender.receiver.fail = 100
        with pytest.raises(DeliveryError):
            Sender(sender.location, sender.receiver).deliver()
    sender.receiver.fail = 0
    Sender(sender.location, sender.receiver).deliver()
    assert sender.receiver.titles == titles("a", "b", "c")


def test_a_permanent_refusal_is_not_repeated_in_the_same_round(sender: Sender) -> None:
    runs(sender.location, "a")
    sender.receiver.fail, sender.receiver.broken = 5, True
    with pytest.raises(DeliveryError):
        sender.deliver()
    assert sender.receiver.fail == 4


def test_what_was_missed_for_days_is_one_summary(sender: Sender) -> None:
    runs(sender.location, "a", "b", clock=sender.clock)
    sender.clock.at += 2 * 86_400
    runs(sender.location, "c", clock=sender.clock)
    sender.deliver()
    assert [title.partition(" since ")[0] for title in sender.receiver.titles] == ["2 messages", *titles("c")]


def test_kinds_that_are_not_sent_are_passed_over(sender: Sender) -> None:
    sender.kinds = frozenset({Kind.LOST})
    runs(sender.location, "a")
    sender.deliver()
    assert sender.receiver.titles == []


def test_many_events_without_notices_are_read_once(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliver, "_RECORDED_EVERY", 10)
    with Store(sender.location) as store:
        for number in range(12):
            store.event("", "team", f"event {number}")
    last = sender.deliver()
    with Store(sender.location) as store:
        record = store.channel("webhook")
        assert record is not None and record.seq == last and record.delivered is None


def test_an_ending_process_begins_no_further_message(sender: Sender) -> None:
    runs(sender.location, "a", "b")
    original = sender.receiver.send

    def send_and_end(message: Message) -> str:
        sender.ending = True
        return original(message)

    sender.receiver.send = send_and_end  # type: ignore[method-assign]  # of this receiver alone
    sender.deliver()
    assert sender.receiver.titles == titles("a")


def test_a_sender_that_lost_its_lease_records_nothing(sender: Sender) -> None:
    runs(sender.location, "a")
    with sender.opened() as (store, lease), open_reader_at(sender.location) as reader:
        store.release(lease)
        with pytest.raises(ConflictError):
            sender.delivery().deliver_new(store, reader, lease)
        record = store.channel("webhook")
        assert record is not None and record.delivered is None


def test_a_sender_killed_between_delivery_and_record_sends_the_same_id_once_more(
    sender: Sender, web: WebReceiver
) -> None:
    runs(sender.location, "a", "b")
    command = [sys.executable, "-c", SENDER, str(sender.location), web.url, str(Path(__file__).parent)]
    child = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])})
    web.before_answer = lambda: os.kill(child.pid, signal.SIGKILL)
    assert child.wait(60) == -signal.SIGKILL
    web.before_answer = lambda: None
    sender.receiver.url = web.url
    sender.deliver()
    sender.deliver()
    first, again, second = web.ids()
    assert first == again != second


def test_a_store_that_was_put_back_is_followed_from_its_older_state(sender: Sender) -> None:
    with sender.opened() as (store, lease):
        store.note_delivery(lease, "webhook", 10_000, message=False)
    sender.deliver()
    runs(sender.location, "a")
    sender.deliver()
    assert sender.receiver.titles == titles("a")


@pytest.mark.parametrize("seed", range(2))
def test_any_mix_of_failures_and_restarts_delivers_each_message_once(location: Location, seed: int) -> None:
    """Failures come before the acceptance here, so there is no double."""
    clock, receiver = Clock(), Receiver()
    Sender(location, receiver, clock).deliver()
    names: list[str] = []
    for step, fails in zip(range(6), itertools.cycle([0, 3, 1, 7, seed + 2])):
        names.append(f"n{seed}-{step}")
        runs(location, names[-1], clock=clock)
        receiver.fail = fails
        try:
            Sender(location, receiver, clock).deliver()
        except DeliveryError:
            continue
    receiver.fail = 0
    Sender(location, receiver, clock).deliver()
    assert receiver.titles == titles(*names) and len(set(receiver.ids)) == len(names)
