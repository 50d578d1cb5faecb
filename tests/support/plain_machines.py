"""A MachineService over the neutral simulator: any plain-VM driver runs against it, without a front."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from orchestrator.providers.core.faults import Answer, ErrorTable, Kind, Refused
from orchestrator.providers.core.plain import Machine, MachineService
from orchestrator.simulator.access import Access
from orchestrator.simulator.calls import ApiError, Code, CreateCall, Label, Look
from orchestrator.simulator.cloud import SimulatedCloud
from orchestrator.simulator.state import Phase
from orchestrator.slices import SliceState

_KINDS = {
    Code.ALREADY_EXISTS: Kind.TAKEN,
    Code.TOKEN_MISMATCH: Kind.MISMATCH,
    Code.TOKEN_SPENT: Kind.TAKEN,
    Code.NOT_FOUND: Kind.NOT_FOUND,
    Code.NO_CAPACITY: Kind.CAPACITY,
    Code.NOT_OFFERED: Kind.NOT_OFFERED,
    Code.QUOTA: Kind.QUOTA,
    Code.DENIED: Kind.PERMISSION,
    Code.INVALID: Kind.INVALID,
    Code.WRONG_STATE: Kind.WRONG_STATE,
    Code.THROTTLED: Kind.THROTTLED,
    Code.INTERNAL: Kind.UNAVAILABLE,
    Code.UNAVAILABLE: Kind.UNAVAILABLE,
    Code.TIMEOUT: Kind.NO_ANSWER,
}
_STATES = {
    Phase.CREATING: SliceState.CREATING,
    Phase.READY: SliceState.READY,
    Phase.MAINTENANCE: SliceState.STARTING,
    Phase.PREEMPTED: SliceState.PREEMPTED,
    Phase.FAILED: SliceState.FAILED,
    Phase.STOPPING: SliceState.STOPPING,
    Phase.STOPPED: SliceState.STOPPED,
    Phase.STARTING: SliceState.STARTING,
    Phase.ENDING: SliceState.ENDING,
    Phase.ABSENT: SliceState.ABSENT,
}
_Result = TypeVar("_Result")


class NeutralMachines(MachineService):
    """Machines of the simulated cloud, one resource of one host each."""

    errors = ErrorTable(vendor="the simulated cloud", rows=(), next_steps={})

    def __init__(self, access: Access) -> None:
        self._access = access

    def create(self, body: Mapping[str, Any]) -> Machine:
        labels: Mapping[str, str] = body["labels"]
        call = CreateCall(
            name=body["name"],
            zone=body["zone"],
            accelerator=body["type"],
            hosts=1,
            token=f"{labels['orch-intent']}/{labels['orch-rank']}",
            market="spot" if body["spot"] else "on-demand",
            labels=labels,
        )
        return self._call(lambda cloud: _machine(cloud.create(call)))

    def list_machines(self, labels: Mapping[str, str]) -> Sequence[Machine]:
        def listed(cloud: SimulatedCloud) -> list[Machine]:
            found, page = [], ""
            while True:
                answer = cloud.list_page(page)
                assert not answer.unreachable
                found += [_machine(look) for look in answer.items if look.phase is not Phase.ABSENT]
                page = answer.next_page
                if not page:
                    return found

        filters = [Label(key, value) for key, value in labels.items()]
        return [one for one in self._call(listed) if all(label.fits(one.labels) for label in filters)]

    def delete(self, identity: str) -> None:
        self._change(lambda cloud: cloud.end(identity), Kind.NOT_FOUND)

    def stop(self, identity: str) -> None:
        self._change(lambda cloud: cloud.stop(identity))

    def start(self, identity: str) -> None:
        self._change(lambda cloud: cloud.start(identity))

    def _change(self, change: Callable[[SimulatedCloud], None], *accepted: Kind) -> None:
        try:
            self._call(change)
        except Refused as refused:
            if refused.answer.kind not in accepted:
                raise

    def _call(self, work: Callable[[SimulatedCloud], _Result]) -> _Result:
        with self._access.open() as cloud:
            try:
                return work(cloud)
            except ApiError as error:
                raise Refused(Answer(kind=_KINDS[error.code], code=error.code, words=error.words)) from error


def _machine(look: Look) -> Machine:
    address = look.hosts[0].address if look.hosts else ""
    return Machine(
        identity=look.name,
        state=_STATES[look.phase],
        labels=look.labels,
        zone=look.zone,
        address=address,
        internal_address=address,
        type=look.accelerator,
        spot=look.market == "spot",
        created=look.created,
        reason=look.reason,
    )
