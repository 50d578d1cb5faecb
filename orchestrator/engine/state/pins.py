"""The pins of people's own machines, as the SSH layer asks for them: from the store, and reported when they change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from orchestrator.engine.services import real_services
from orchestrator.engine.state.opening import open_store
from orchestrator.engine.state.recorded import open_reader
from orchestrator.errors import IdentityMismatch
from orchestrator.hosts import HostAddress, HostPin, PinReason
from orchestrator.paths import load_paths
from orchestrator.store.failures import StoreError
from orchestrator.store.store import Store

_SECONDS = 20.0  # until a machine that does not answer is left to ssh


class StorePins:
    """The pins of one command; see remote.trust.HostPins.

    A key that is accepted while a job is open is unconfirmed in that job, however often its command is repeated:
    the job's secrets are not sent there.
    """

    def __init__(
        self,
        store: Callable[[], Store],
        report: Callable[[str], None],
        *,
        cluster: str = "",
        job: Callable[[], str] = str,
        named: Collection[str] = (),
        confirm: bool = False,
    ) -> None:
        """Prepare the pins.

        Args:
            store: Returns the open store.
            report: Gets a line for each key that is accepted.
            cluster: Name of the cluster, for events.
            job: Returns the job that is open, "" for none.
            named: Fingerprints that a person named.
            confirm: Whether a person confirmed whatever new machines present.
        """
        self.named = named
        self._store, self._report, self._cluster = store, report, cluster
        self._job, self._confirm = job, confirm
        self._lock = threading.Lock()
        self._new: dict[str, str] = {}
        self._known: dict[str, HostPin] = {}

    def find(self, address: HostAddress) -> HostPin | None:
        """Return the pin of a machine, or None."""
        name = address.pin_name
        try:
            pin = self._store().host_pin(name)
        except StoreError:
            if name not in self._known:
                raise
            return self._known[name]  # a connection is opened again while the store cannot be reached
        if pin is not None:
            self._known[name] = pin
        return pin

    def keep(self, address: HostAddress, pin: HostPin, reason: PinReason, instead_of: HostPin | None) -> HostPin:
        """Pin a key, and return the pin that holds."""
        first = reason is PinReason.FIRST
        proposed = replace(pin, job=self._job() if first and not self._confirm else "")
        held = self._store().keep_host_pin(proposed, reason, instead_of=instead_of, cluster=self._cluster)
        if held.key == pin.key and reason in (PinReason.FIRST, PinReason.NAMED):
            if first and not self._confirm:
                with self._lock:
                    self._new[pin.name] = str(pin)
            how = "its fingerprint was named" if not first else "--accept-host-key" if self._confirm else "it is new"
            self._report(f"accepted the key of {pin.name}: {pin} ({how})")
        return held

    def unconfirmed(self) -> Mapping[str, str]:
        """Return the keys, by the name of their pin, that this job met first and that are unconfirmed."""
        job = self._job()
        if not job:
            return {}
        if self._confirm:
            for pin in self._store().confirm_host_pins(job, self._cluster):
                self._report(f"accepted the key of {pin.name}: {pin} (--accept-host-key)")
            return {}
        with self._lock:
            return {**self._new, **{pin.name: str(pin) for pin in self._store().host_pins_of(job)}}


class ReadPins:
    """The pins for a command that changes nothing: what it accepts is forgotten."""

    named: Collection[str] = ()

    def find(self, address: HostAddress) -> HostPin | None:
        """Return the pin of a machine, or None."""
        with open_reader() as reader:
            return reader.host_pin(address.pin_name)

    def keep(self, address: HostAddress, pin: HostPin, reason: PinReason, instead_of: HostPin | None) -> HostPin:
        """Return the pin as if it was made."""
        return pin


@contextmanager
def open_pins(report: Callable[[str], None], named: Collection[str] = ()) -> Generator[StorePins]:
    """Open the pins for a command that has no store open. The store is opened for the first own machine."""
    opened: list[Store] = []
    lock = threading.Lock()
    with ExitStack() as stack:

        def store() -> Store:
            with lock:
                if not opened:
                    where = load_paths()
                    opened.append(stack.enter_context(open_store(where, real_services(where))))
                return opened[0]

        yield StorePins(store, report, named=named)


def write_keys_for_ssh(address: HostAddress, report: Callable[[str], None]) -> None:
    """Write the keys of a person's own machine, and of the jump hosts before it, where `orch ssh` reads them.

    A machine without a known key is connected to first, which pins its key. When that fails, ssh itself says why.

    Raises:
        IdentityMismatch: The machine presents another key than the known one.
    """
    from orchestrator.remote.connect import find_wrong_key
    from orchestrator.remote.fleet import Fleet
    from orchestrator.remote.trust import Trust, write_known_keys

    with open_pins(report) as pins:
        wrong = find_wrong_key(address, pins, _SECONDS) if address.jump is None else None
        if wrong is not None:
            raise IdentityMismatch("the machine presented another key than the known one", wrong.detail, wrong.remedy)
        known = [(hop, Trust(hop, pins).keys) for hop in address.hops if hop.own is not None]
        for hop, keys in known:
            write_known_keys(hop, keys)
        if not all(keys for _, keys in known):
            with Fleet([address], deadline=_SECONDS, pins=pins) as fleet:
                fleet.reachable(timeout=_SECONDS)
