"""Delivers what a channel has not delivered yet: in order, each message until it is accepted, recorded after that.

A process that is killed between the acceptance and the record sends one message again, with the same id.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.notifications.delivery_error import DeliveryError
from orchestrator.notifications.messages import Message, make_messages
from orchestrator.notifications.notices import Kind
from orchestrator.notifications.reading import read_notices
from orchestrator.retries import NOTIFICATION
from orchestrator.store.leases import Lease
from orchestrator.store.read import Reader
from orchestrator.store.records import JobRecord
from orchestrator.store.store import Store

_RECORDED_EVERY = 1000  # events that are nothing to notify of: until then a new process reads them again
LONGEST_PAUSE = 60.0  # seconds that a receiver's Retry-After is obeyed within one round; the next round comes later


@dataclass(kw_only=True)
class Delivery:
    """The delivery of one channel by the holder of its lease.

    Attributes:
        name: The channel.
        kinds: The kinds of messages that are sent.
        send: Sends a message once, or raises DeliveryError.
        now: Returns epoch seconds.
        pause: Waits some seconds, or less when it is to end.
        is_ending: Whether no further try may begin.
        read_progress: Returns what the output of a job says; "" for nothing.
    """

    name: str
    kinds: frozenset[Kind]
    send: Callable[[Message], str]
    now: Callable[[], float]
    pause: Callable[[float], object]
    is_ending: Callable[[], bool]
    read_progress: Callable[[JobRecord], str] = lambda _job: ""
    _read: int = 0  # the event up to which nothing is left

    def deliver_new(self, store: Store, reader: Reader, lease: Lease) -> int:
        """Deliver all that is new, and return the event up to which nothing is left.

        A channel begins with what happens after its first use. A store that was put back to an older state is
        followed from there.

        Raises:
            DeliveryError: A message was not accepted after some tries; it is the first of the next call.
            ConflictError: Another process delivers for this channel now.
        """
        head = reader.head().seq
        record = store.channel(self.name)
        if record is None:
            store.open_channel(self.name, head)
            record = store.channel(self.name)
            assert record is not None  # noqa: S101  # it was just made
        seq = min(record.seq, head)
        self._read = seq if record.seq > head else max(seq, min(self._read, head))
        while not self.is_ending():
            notices, last = read_notices(reader, self._read, self.read_progress)
            if last == self._read:
                break
            due = [one for one in notices if one.kind in self.kinds]
            for message in make_messages(due, self.name, store.installation, self.now()):
                if self.is_ending():
                    return self._read
                self._send_until_accepted(message)
                store.note_delivery(lease, self.name, message.last_seq, message=True)
                seq = self._read = message.last_seq
            self._read = last
        if self._read - seq >= _RECORDED_EVERY or record.seq > head:
            store.note_delivery(lease, self.name, self._read, message=False)
        return self._read

    def _send_until_accepted(self, message: Message) -> None:
        NOTIFICATION.run(
            lambda: self.send(message),
            retry=lambda error: isinstance(error, DeliveryError) and error.is_transient and not self.is_ending(),
            requested_pause=_find_requested_pause,
            stopped=self.is_ending,
            sleep=lambda seconds: (self.pause(seconds), None)[1],
        )


def _find_requested_pause(error: BaseException) -> float | None:
    pause = error.retry_after if isinstance(error, DeliveryError) else None
    return None if pause is None else min(pause, LONGEST_PAUSE)
