"""Observe a slice: what EC2 reports of its instances, and what its Capacity Block waits for. Sends only reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from orchestrator.providers.aws import reservations, states
from orchestrator.providers.aws.access import Way
from orchestrator.providers.aws.calls import Calls, Thing
from orchestrator.providers.aws.reach import Login, addresses
from orchestrator.providers.aws.record import Record
from orchestrator.providers.aws.tags import INTENT
from orchestrator.providers.core.driver import SETTLE_SECONDS
from orchestrator.providers.core.record import Phase
from orchestrator.slices import SliceState, SliceView


@dataclass(frozen=True, slots=True)
class Observer:
    """Observes one slice. Every method may raise Refused.

    Attributes:
        calls: Of its region.
        record: Of the slice.
        login: How its hosts are logged in to.
        now: Epoch seconds.
    """

    calls: Calls
    record: Record
    login: Login
    now: Callable[[], float]

    def observe(self) -> SliceView | None:
        """Return the view of the slice; None where EC2 shows none of its instances."""
        if self.record.phase is Phase.WAITING:
            return self._waiting()
        shown = self.list_instances()
        if not shown:
            return None
        return replace(self._judge(shown), installation=states.installation_of(shown))

    def list_instances(self) -> list[Thing]:
        """Return the instances of the slice, also those that ended. The token of a launch, unlike a tag, cannot change.

        Whether spot machines show it is not documented: what does not is found by its tag, or by its ids.
        """
        for filters in (
            {"client-token": [self.record.token]},
            {f"tag:{INTENT}": [self.record.token]},
            {"instance-id": list(self.record.instances)},
        ):
            if any(filters.values()) and (shown := self.calls.instances(filters)):
                return shown
        return []

    @property
    def settled(self) -> bool:
        """Whether what was requested has arrived by now, and is shown."""
        return self.now() - self.record.asked >= SETTLE_SECONDS

    def _judge(self, shown: Sequence[Thing]) -> SliceView:
        record = self.record
        if len(shown) < record.hosts:
            if not self.settled:
                state = SliceState.UNCLEAR if record.phase is Phase.ENDING else SliceState.CREATING
                return SliceView(state=state, reason=f"{len(shown)} of {record.hosts} instances are shown")
            if record.phase is not Phase.ENDING:
                return states.missing(record, len(shown))
        view = states.together(record, shown, self.now())
        return self._ready(shown) if view.state is SliceState.READY else view

    def _ready(self, shown: Sequence[Thing]) -> SliceView:
        record = self.record
        if record.way in (Way.EIP, Way.EIPS) and not record.associated:
            return SliceView(state=SliceState.CREATING, reason="its Elastic IPs are not associated yet", due=True)
        found = addresses(record, shown, self.login)
        if isinstance(found, str):
            coming = SliceState.STARTING if record.power == "start" else SliceState.CREATING
            return SliceView(state=coming, reason=found)
        ends = record.ends - reservations.TAKEN_BEFORE_END if record.ends else None
        return SliceView(state=SliceState.READY, hosts=found, ends=ends)

    def _waiting(self) -> SliceView:
        """Until the Capacity Block begins; then its instances are due until they are requested."""
        block = reservations.reserved(reservations.look(self.calls, self.record.reservation))
        until = block.begins or None
        if block.coming:
            return SliceView(state=SliceState.CREATING, reason=reservations.waits(block, self.now()), until=until)
        if not block.active:
            return SliceView(state=SliceState.FAILED, reason=f"the capacity block {block.identity} is {block.state}")
        return SliceView(state=SliceState.CREATING, reason="its capacity block has begun", until=until, due=True)
