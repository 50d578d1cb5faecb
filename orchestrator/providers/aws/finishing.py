"""The steps of a create or an end that are possible only later: see protocol.Finishes.

They are the instances of a capacity block that has begun, the Elastic IPs of instances that run, and the deletion of
what terminated instances leave behind. Each step looks first whether it was taken, so repeating it changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator.providers.aws import reservations
from orchestrator.providers.aws.access import Way
from orchestrator.providers.aws.auxiliary_resources import AuxiliaryResources
from orchestrator.providers.aws.calls import Calls, Thing
from orchestrator.providers.aws.faults import Kind, Refused
from orchestrator.providers.aws.looking import Eyes
from orchestrator.providers.aws.reach import primary, ranked
from orchestrator.providers.aws.record import Phase, Record
from orchestrator.providers.aws.sending import Launcher
from orchestrator.providers.aws.waiting import render_waiting
from orchestrator.slices import SliceState, SliceView

_PASSING = frozenset({Kind.CAPACITY, Kind.THROTTLED, Kind.UNAVAILABLE, Kind.NO_ANSWER})


@dataclass(frozen=True, slots=True, kw_only=True)
class Finisher:
    """Takes the steps that are due on one slice. Every method raises Refused, CloudError or UserError."""

    eyes: Eyes
    calls: Calls

    def finish(self, record: Record) -> SliceView:
        """Take the step that is due now, and return the view after it."""
        view = self.eyes.look(self.calls, record)
        if not view.due:
            return view
        match record.phase:
            case Phase.WAITING:
                return self._launch(record)
            case Phase.ENDING:
                return self._delete_left(record)
            case _:
                return self._associate(record)

    def _launch(self, record: Record) -> SliceView:
        block = reservations.reserved(reservations.look(self.calls, record.reservation))
        record = replace(record, ends=block.ends)
        try:
            record, params = render_waiting(self.eyes.records, record)
            Launcher(self.calls, self.eyes.records, self.eyes.now).launch(record, params)
        except Refused as refused:
            passing = refused.answer.kind in _PASSING
            state = SliceState.CREATING if passing else SliceState.FAILED
            return SliceView(state=state, reason=str(refused.answer), until=block.begins if passing else None)
        return SliceView(state=SliceState.CREATING, reason="its capacity block has begun, its instances are requested")

    def _delete_left(self, record: Record) -> SliceView:
        left = AuxiliaryResources(self.calls, record.name, record.token).remove()
        if left:
            return SliceView(state=SliceState.ENDING, reason=f"not deleted yet: {', '.join(left)}"[:300], due=True)
        return SliceView(state=SliceState.ABSENT)

    def _associate(self, record: Record) -> SliceView:
        hosts = ranked(self.eyes.instances(self.calls, record))
        problem = self._associate_each(record, hosts[:1] if record.way == Way.EIP else hosts)
        if problem is not None:
            return problem
        return self.eyes.look(self.calls, self.eyes.records.write(record, associated=True))

    def _associate_each(self, record: Record, hosts: Sequence[Thing]) -> SliceView | None:
        """Associate an Elastic IP with the first interface of each host; return why one could not be, or None."""
        found = AuxiliaryResources(self.calls, record.name, record.token).addresses()
        ours = sorted(found, key=lambda one: one["AllocationId"])
        associated = {str(one.get("NetworkInterfaceId")) for one in ours}
        free = [one for one in ours if not one.get("AssociationId")]
        for host in hosts:
            interface = str(primary(host)["NetworkInterfaceId"])
            if interface in associated:
                continue
            if not free:
                return SliceView(
                    state=SliceState.FAILED, reason="one of its Elastic IPs is deleted, or belongs to another machine"
                )
            problem = self._associate_one(free.pop(0), interface)
            if problem is not None:
                return problem
        return None

    def _associate_one(self, address: Thing, interface: str) -> SliceView | None:
        params = {
            "AllocationId": address["AllocationId"],
            "NetworkInterfaceId": interface,
            "AllowReassociation": False,
        }
        try:
            self.calls.change("AssociateAddress", params)
        except Refused as refused:
            if refused.answer.kind not in (Kind.WRONG_STATE, Kind.NOT_FOUND, *_PASSING):
                raise
            return SliceView(state=SliceState.CREATING, reason=f"an Elastic IP waits: {refused.answer}", due=True)
        return None
