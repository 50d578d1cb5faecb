"""Claim machines for this installation: their labels first, which decide between rivals, then their hosts."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, replace

from orchestrator.clock import Clock
from orchestrator.engine.narrator import Narrator
from orchestrator.engine.operations.report_wait import report_wait
from orchestrator.engine.services import Services
from orchestrator.engine.state.fences import make_fence
from orchestrator.engine.state.keys import delete_slice_keys
from orchestrator.engine.state.lease import LeaseKeeper
from orchestrator.engine.state.pins import StorePins
from orchestrator.errors import CloudError, OrchError, TakenOverError
from orchestrator.hosts import Failure, HostAddress, HostOutcome
from orchestrator.paths import Paths
from orchestrator.plan.observed import FINAL_STATES
from orchestrator.providers.protocol import HasAccounts, Provider, Recovers
from orchestrator.remote.fence import parse_epoch
from orchestrator.slices import OwnedSlice, RecoveredSlice, SliceState
from orchestrator.store.records import ClusterRecord
from orchestrator.store.store import Store

LABEL_PAUSE = 4.0  # seconds between writing the labels and reading them again; a slower rival then reads ours
LABEL_PATIENCE = 180.0  # seconds until changed labels are shown
NO_KEY_ADMITTED = "no key of this computer is admitted on the hosts"
_TRIES = 3


def write_labels(
    store: Store, clock: Clock, provider: Recovers, found: OwnedSlice, cluster: str, least: int = 0
) -> RecoveredSlice:
    """Write our labels with a higher epoch, and return the slice as it is then.

    Args:
        store: Has our installation's id.
        clock: Gives the time.
        provider: Of the slice.
        found: The slice.
        cluster: Its name here, for messages.
        least: The epoch of a rival on the hosts; 0 for the first time, when the labels are still of the owner before.

    Raises:
        TakenOverError: Another installation wrote its labels last.
        OrchError: The provider failed.
    """
    before = provider.describe_owned(found)
    if least and before.installation != store.installation:
        raise _rival_error(cluster, before.installation)
    epoch = max(before.epoch, least) + 1
    provider.relabel(found, store.installation, epoch)
    until = clock.now() + LABEL_PATIENCE
    clock.sleep(LABEL_PAUSE)
    while (after := provider.describe_owned(found)).epoch == before.epoch:  # it takes a while until they are shown
        if clock.now() > until:
            raise CloudError(f"the labels of '{found.name}' did not change", "", "run the same command again")
        clock.sleep(LABEL_PAUSE)
    if (after.installation, after.epoch) != (store.installation, epoch):
        raise _rival_error(cluster, after.installation)
    return after


def _rival_error(cluster: str, installation: str) -> TakenOverError:
    return TakenOverError(
        f"the machines of '{cluster}' were taken over by installation {installation} at the same moment",
        "it wrote its labels last; no open record of them is here",
        f"if they are to be used from here all the same: orch recover {cluster} --take-over",
    )


@dataclass(frozen=True, slots=True)
class HostClaim:
    """The hosts of a slice whose labels are ours. found: the slice. record: its cluster here, whose lease is held."""

    store: Store
    services: Services
    where: Paths
    narrator: Narrator
    keeper: LeaseKeeper
    _: KW_ONLY
    provider: Recovers
    found: OwnedSlice
    record: ClusterRecord

    def present_epoch(self, recovered: RecoveredSlice) -> str:
        """Present our epoch to the hosts, which write it down. Return why they cannot be entered, or "".

        Raises:
            TakenOverError: Another installation has the machines; the record is closed.
            OrchError: The provider or the store failed.
        """
        with self._closing_record():
            if recovered.installation != self.store.installation:
                raise _rival_error(self.record.name, recovered.installation)
            if recovered.closed:
                return recovered.closed
            with report_wait(self.narrator, f"waiting for SSH on the hosts of {self.found.name}"):
                return self._present(recovered)

    @contextmanager
    def _closing_record(self) -> Generator[None]:
        """Close the record when the block finds that another installation has the machines."""
        try:
            yield
        except TakenOverError:
            for intent in self.store.intents(self.record):
                if intent.state not in FINAL_STATES:
                    delete_slice_keys(self.where, intent.name)
                    self.store.record_transfer(self.keeper.lease, self.record, intent, "by another installation")
            raise

    def _present(self, recovered: RecoveredSlice) -> str:
        store, found, record = self.store, self.found, self.record
        usual = self._usual_provider(recovered)
        for _ in range(_TRIES):
            view = usual.observe(found.name, found.intent)
            store.note_state(record, view.state.value)
            if view.state is SliceState.STOPPED:
                store.record_observed_stop(record, stopped=True)
            store.note_hosts(self.keeper.lease, record, view.hosts)
            if view.state is not SliceState.READY:
                return f"it is {view.state}{f': {view.reason}' if view.reason else ''}"
            fence = make_fence(store.installation, recovered.epoch)
            outcomes = self._send(tuple(replace(host, fence=fence) for host in view.hosts))
            refused = [parse_epoch(one.detail) for one in outcomes if one.failure is Failure.TAKEN_OVER]
            if not refused:
                return _describe_failures(outcomes)
            # A rival wrote its epoch there before it read our labels: these decide, and it stops.
            clock = self.services.clock
            recovered = write_labels(store, clock, self.provider, found, record.name, max(refused))
            store.raise_epoch(self.keeper.lease, record, found.intent, recovered.epoch)
        raise TakenOverError(f"the hosts of '{record.name}' refuse every epoch", "", "orch recover   shows who has it")

    def _usual_provider(self, recovered: RecoveredSlice) -> Provider:
        """Return the provider as every later command opens it, bound to the account."""
        usual = self.services.provider(recovered.candidate.provider)
        if isinstance(usual, HasAccounts) and isinstance(self.provider, HasAccounts):
            return usual.within(self.provider.account(recovered.candidate), recovered.candidate)
        return usual

    def _send(self, hosts: tuple[HostAddress, ...]) -> tuple[HostOutcome, ...]:
        note, name = self.narrator.note, self.record.name
        pins = StorePins(lambda: self.store, note, cluster=name, job=lambda: "", confirm=False)
        operations = self.services.host_operations(hosts, pins)
        try:
            return operations.run_script(b"true\n", [host.rank for host in hosts])
        except OrchError as error:  # a key that cannot be read
            failure, why = Failure.AUTH, str(error)
            return tuple(HostOutcome(rank=host.rank, host=host.host, failure=failure, detail=why) for host in hosts)
        finally:
            operations.close()


def _describe_failures(outcomes: tuple[HostOutcome, ...]) -> str:
    failed = [one for one in outcomes if not one.ok]
    if any(one.failure is Failure.AUTH for one in failed):
        return NO_KEY_ADMITTED
    return f"rank {failed[0].rank}: {failed[0].detail or failed[0].verdict}" if failed else ""
