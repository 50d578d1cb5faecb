"""The threads of an engine that send notifications: one for each channel, one that finds long waits and near limits.

Each holds a lease of the store, so of several engines one sends. A channel that is down delays neither the others nor
the engine. The configuration is read when the engine starts.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial

from orchestrator.documents.output_progress import find_progress
from orchestrator.engine.narrator import Narrator
from orchestrator.engine.services import Services
from orchestrator.engine.state.lease import LeaseKeeper
from orchestrator.engine.state.opening import open_store
from orchestrator.engine.state.recorded import open_reader
from orchestrator.errors import ConflictError, OrchError
from orchestrator.notifications.conditions import Thresholds, find_conditions
from orchestrator.notifications.deliver import Delivery
from orchestrator.notifications.delivery_error import DeliveryError
from orchestrator.notifications.messages import Message
from orchestrator.notifications.notices import Kind
from orchestrator.notifications.reading import read_budget_conditions, read_histories
from orchestrator.notifications.send import send_message
from orchestrator.notifications.settings import list_channels, read_channel, read_kinds, read_thresholds
from orchestrator.paths import Paths
from orchestrator.retries import NOTIFICATION_ROUND
from orchestrator.store.read import Reader
from orchestrator.store.records import JobRecord
from orchestrator.store.store import Store
from orchestrator.task.config import Config, load_config

POLL = 2.0  # seconds between two looks at the events
CONDITIONS_POLL = 15.0  # seconds between two looks for long waits and near limits
OTHER_POLL = 10.0  # seconds between two tries for a lease that another engine has
REST_SECONDS = 15.0  # that an engine without work waits for the delivery of what has happened
END_SECONDS = 2.0  # that an engine waits for the threads at its end; they record nothing after it
CONDITIONS = "conditions"  # the lease of the thread that finds them


@contextmanager
def notifying(where: Paths, services: Services, narrator: Narrator, stop: threading.Event) -> Generator[Notifier]:
    """Yield a notifier; its threads end with the block, or when `stop` is set."""
    notifier = Notifier(where, services, narrator, stop)
    try:
        yield notifier
    finally:
        notifier.end()


class Notifier:
    """The threads. `start` begins them, once."""

    def __init__(self, where: Paths, services: Services, narrator: Narrator, stop: threading.Event) -> None:
        self._where = where
        self._services = services
        self._narrator = narrator
        self._engine_stop = stop
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._done: dict[str, int] = {}  # up to which event each channel has nothing left; -1 before its first round
        self._failing: set[str] = set()

    def start(self) -> None:
        """Start a thread for each channel of the configuration; without one, none."""
        if self._threads:
            return
        try:
            config = load_config(os.environ)
            names, kinds, thresholds = list_channels(config), read_kinds(config), read_thresholds(config)
            self._open_channels(names)
        except OrchError as error:
            self._narrator.note(f"no notifications are sent: {error}")
            return
        if not names:
            return
        self._done = dict.fromkeys(names, -1)
        for name in names:
            self._run(name, partial(self._deliver, config, name, kinds))
        self._run(CONDITIONS, partial(self._record_conditions, thresholds))

    def deliver_rest(self) -> None:
        """Wait until every channel has delivered what has happened, or fails, or some seconds are over."""
        if not self._threads:
            return
        with open_reader() as reader:
            head = reader.head().seq
        end = time.monotonic() + REST_SECONDS
        while time.monotonic() < end and not self._is_ending():
            left = [name for name, seq in self._done.items() if seq < head and name not in self._failing]
            if not left:
                return
            self._pause(0.1)

    def end(self) -> None:
        """End the threads."""
        self._stop.set()
        end = time.monotonic() + END_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _open_channels(self, names: tuple[str, ...]) -> None:
        """Begin channels that were never used, before the engine does anything that they report."""
        if names:
            with open_store(self._where, self._services, "notifications") as store, open_reader() as reader:
                head = reader.head().seq
                for name in names:
                    store.open_channel(name, head)

    def _is_ending(self) -> bool:
        return self._stop.is_set() or self._engine_stop.is_set()

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._is_ending() and (left := end - time.monotonic()) > 0:
            self._stop.wait(min(left, 0.5))

    def _run(self, name: str, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=self._guarded, args=(name, work), daemon=True, name=f"notify {name}")
        self._threads.append(thread)
        thread.start()

    def _guarded(self, name: str, work: Callable[[], None]) -> None:
        """Repeat the work, which ends only by an error or when this ends. A repeated error is reported once."""
        failures, reported = 0, ""
        while not self._is_ending():
            try:
                work()
                failures, reported = 0, ""
                continue
            except ConflictError:  # another engine has the lease
                self._failing.add(name)
                self._pause(OTHER_POLL)
                continue
            except Exception as error:  # a defect met in one message must not end the engine
                message = _describe(error)
            self._failing.add(name)
            failures += 1
            if message != reported:
                reported = message
                self._narrator.note(f"notifications, {name}: {message}; tried again later")
            self._pause(NOTIFICATION_ROUND.pause(failures, 0.5))

    @contextmanager
    def _holding(self, name: str) -> Generator[tuple[Store, LeaseKeeper, Reader]]:
        """Yield the open store under the lease of this name. Raises ConflictError while another engine has it."""
        with (
            open_store(self._where, self._services, "notifications") as store,
            LeaseKeeper(store, name, "notifications", self._narrator, kind="notify") as keeper,
            open_reader() as reader,
        ):
            if not keeper.try_hold():
                raise ConflictError(f"another engine sends the notifications of {name}", "", "orch notify   shows them")
            yield store, keeper, reader

    def _deliver(self, config: Config, name: str, kinds: frozenset[Kind]) -> None:
        with self._holding(name) as (store, keeper, reader):
            delivery = Delivery(
                name=name, kinds=kinds, send=partial(self._send, config, name, store.installation),
                now=self._services.clock.now, pause=self._pause, is_ending=self._is_ending,
                read_progress=_describe_progress,
            )  # fmt: skip
            while not self._is_ending():
                try:
                    self._done[name] = delivery.deliver_new(store, reader, keeper.lease)
                except ConflictError:
                    raise
                except Exception as error:
                    store.note_delivery_problem(keeper.lease, name, _describe(error))
                    raise
                self._failing.discard(name)
                self._pause(POLL)

    def _send(self, config: Config, name: str, installation: str, message: Message) -> str:
        """Send a message; the secrets are read each time, so that a corrected file is found."""
        try:
            channel = read_channel(config, name, os.environ)
        except OrchError as error:
            raise DeliveryError(error.what, error.why) from error
        return send_message(channel, message, installation, self._services.clock.now())

    def _record_conditions(self, thresholds: Thresholds) -> None:
        with self._holding(CONDITIONS) as (store, _keeper, reader):
            known: set[tuple[str, str]] = set()  # a look at the events for each condition, once
            while not self._is_ending():
                now = self._services.clock.now()
                present = [
                    (history.cluster.qualified_name, found)
                    for history in read_histories(reader)
                    for found in find_conditions(history, thresholds, now)
                ]
                present += [("", found) for found in read_budget_conditions(reader, thresholds.near, now)]
                for name, found in present:
                    if (name, found.cause) not in known:
                        known.add((name, found.cause))
                        store.record_condition(name, found.what, found.cause)
                self._pause(CONDITIONS_POLL)


def _describe_progress(job: JobRecord) -> str:
    found = find_progress(job)
    return f"{found} (from output)" if found is not None else ""


def _describe(error: Exception) -> str:
    return str(error) if isinstance(error, OrchError) else f"a defect of orch: {type(error).__name__}: {error}"
