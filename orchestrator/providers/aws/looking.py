"""Observe a slice: what EC2 reports of its instances, what its capacity block waits for, and what is left of it.

Observing sends only reads. What can be done only now is reported as due, and finishing.py does it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from orchestrator.providers.aws import reservations, states
from orchestrator.providers.aws.access import Way
from orchestrator.providers.aws.auxiliary_resources import AuxiliaryResources
from orchestrator.providers.aws.calls import Calls, Thing
from orchestrator.providers.aws.reach import Login, addresses
from orchestrator.providers.aws.record import Phase, Record, Records
from orchestrator.providers.aws.tags import INTENT
from orchestrator.slices import SliceState, SliceView

SETTLE_SECONDS = 90.0  # longer than a request may take to arrive and to be shown: before that, nothing proves absence


def doubted(empty_since: float, now: float, state: SliceState) -> SliceView | None:
    """Return the view of a slice of which nothing is shown, until that has been so for a while; then None."""
    if now - empty_since >= SETTLE_SECONDS:
        return None
    return SliceView(state=state, reason="nothing of it is shown; that is believed after a second look")


@dataclass(frozen=True, slots=True)
class Eyes:
    """now: seconds since the epoch."""

    records: Records
    login: Login
    now: Callable[[], float] = time.time

    def look(self, calls: Calls, record: Record) -> SliceView:
        """Raises Refused, CloudError, UserError."""
        if record.phase is Phase.WAITING:
            return self._waiting(calls, record)
        shown = self.instances(calls, record)
        if not shown:
            return self._nothing(calls, record)
        return replace(self._judge(calls, record, shown), installation=states.installation_of(shown))

    def _judge(self, calls: Calls, record: Record, shown: Sequence[Thing]) -> SliceView:
        if record.empty:
            record = self.records.write(record, empty=0.0)
        if len(shown) < record.hosts:
            if not self.settled(record):
                state = SliceState.UNCLEAR if record.phase is Phase.ENDING else SliceState.CREATING
                return SliceView(state=state, reason=f"{len(shown)} of {record.hosts} instances are shown")
            if record.phase is not Phase.ENDING:
                return states.missing(record, len(shown))
        view = states.together(record, shown, self.now())
        if view.state is SliceState.ABSENT:
            return self._ended(calls, record)
        return self._ready(calls, record, shown) if view.state is SliceState.READY else view

    def instances(self, calls: Calls, record: Record) -> list[Thing]:
        """Those of this slice, also when they have ended. The token of a launch, unlike a tag, cannot be changed.

        Whether spot machines show it is not documented: what does not is found by its tag, or by its ids.
        """
        shown = calls.instances({"client-token": [record.token]}) or calls.instances({f"tag:{INTENT}": [record.token]})
        return shown or (calls.instances({"instance-id": list(record.instances)}) if record.instances else [])

    def settled(self, record: Record) -> bool:
        """Whether what was asked for has arrived by now, and is shown."""
        return self.now() - record.asked >= SETTLE_SECONDS

    def _nothing(self, calls: Calls, record: Record) -> SliceView:
        """No instances. That is ABSENT, unless they may still come, or something else is left.

        One empty answer is not believed: EC2's listings are eventually consistent ("Eventual consistency", EC2 API
        reference, November 2026). Instances that were ended are shown for about an hour.
        """
        if not record.empty:
            record = self.records.write(record, empty=self.now())
        if not self.settled(record):
            state = SliceState.CREATING if record.phase is Phase.ACCEPTED else SliceState.UNCLEAR
            return SliceView(state=state, reason="requested, not shown yet")
        state = SliceState.ENDING if record.phase is Phase.ENDING else SliceState.UNCLEAR
        if (doubt := doubted(record.empty, self.now(), state)) is not None:
            return doubt
        if record.phase is Phase.ENDING:
            return self._ended(calls, record)
        left = AuxiliaryResources(calls, record.name, record.token).left()
        if left:
            return SliceView(
                state=SliceState.FAILED, reason=f"its instances are deleted; these are not: {', '.join(left)}"[:300]
            )
        return SliceView(state=SliceState.ABSENT)

    def _ended(self, calls: Calls, record: Record) -> SliceView:
        left = AuxiliaryResources(calls, record.name, record.token).left()
        if left:
            return SliceView(state=SliceState.ENDING, reason=f"not deleted yet: {', '.join(left)}"[:300], due=True)
        return SliceView(state=SliceState.ABSENT)

    def _ready(self, calls: Calls, record: Record, shown: Sequence[Thing]) -> SliceView:
        if record.way in (Way.EIP, Way.EIPS) and not record.associated:
            return SliceView(state=SliceState.CREATING, reason="its Elastic IPs are not associated yet", due=True)
        found = addresses(record, shown, self.login)
        if isinstance(found, str):
            coming = SliceState.STARTING if record.power == "start" else SliceState.CREATING
            return SliceView(state=coming, reason=found)
        if not record.seen:
            self.records.write(record, seen=self.now())
        ends = record.ends - reservations.TAKEN_BEFORE_END if record.ends else None
        return SliceView(state=SliceState.READY, hosts=found, ends=ends)

    def _waiting(self, calls: Calls, record: Record) -> SliceView:
        """Until the capacity block begins; then its instances are due until they are requested."""
        block = reservations.reserved(reservations.look(calls, record.reservation))
        if block.coming:
            return SliceView(
                state=SliceState.CREATING, reason=reservations.waits(block, self.now()), until=block.begins or None
            )
        if not block.active:
            return SliceView(state=SliceState.FAILED, reason=f"the capacity block {block.identity} is {block.state}")
        return SliceView(
            state=SliceState.CREATING, reason="its capacity block has begun", until=block.begins or None, due=True
        )
