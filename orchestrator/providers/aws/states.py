"""The states of a slice's instances as one state of ours, and the reasons in words. Pure.

Instance.State.Name and StateReason: EC2 API reference, 2016-11-15 (2026). An instance that has ended is shown for about
an hour more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from orchestrator.providers.aws.calls import Thing, read_tags
from orchestrator.providers.aws.record import Record
from orchestrator.providers.aws.reservations import TAKEN_BEFORE_END
from orchestrator.providers.aws.tags import INSTALLATION
from orchestrator.providers.core.record import Phase
from orchestrator.slices import SliceState, SliceView

GOING = frozenset({"shutting-down", "terminated"})
STILL = frozenset({"stopping", "stopped"})
STATES = {
    "pending": SliceState.CREATING,
    "running": SliceState.READY,
    "stopping": SliceState.STOPPING,
    "stopped": SliceState.STOPPED,
    "shutting-down": SliceState.ENDING,
    "terminated": SliceState.ABSENT,
}
_TAKEN_BACK = frozenset({"Server.SpotInstanceTermination", "Server.SpotInstanceShutdown"})


def state_of(instance: Thing) -> str:
    return str(instance.get("State", {}).get("Name", ""))


def installation_of(instances: Sequence[Thing]) -> str:
    """Return whose label the instances carry; "" for no label."""
    return next((owner for one in instances if (owner := read_tags(one).get(INSTALLATION))), "")


def lasting(instances: Sequence[Thing]) -> list[Thing]:
    """Those whose end has to be asked for: also what is shutting down, which may hang until it is asked again."""
    return [one for one in instances if state_of(one) != "terminated"]


def together(record: Record, instances: Sequence[Thing], now: float) -> SliceView:
    """Of a slice whose instances are all shown; without its hosts. ABSENT: all have ended, as was asked for."""
    states = Counter(state_of(one) for one in instances)
    words = ", ".join(f"{count} {name}" for name, count in sorted(states.items()))
    if record.phase is Phase.ENDING:
        return _ending(states, words)
    if any(name in GOING for name in states):
        return _lost(record, instances, now)
    if set(states) <= STILL:
        return SliceView(state=SliceState.STOPPING if "stopping" in states else SliceState.STOPPED)
    if any(name in STILL for name in states):
        asked = {"stop": SliceState.STOPPING, "start": SliceState.STARTING}.get(record.power)
        if asked is not None:
            return SliceView(state=asked, reason=f"its instances are {words}")
        still = [one for one in instances if state_of(one) in STILL]
        return SliceView(state=SliceState.FAILED, reason=f"its instances are {words}: {reason_of(still[0])}"[:300])
    if set(states) == {"running"}:
        return SliceView(state=SliceState.READY)
    if set(states) <= set(STATES):
        coming = SliceState.STARTING if record.power == "start" else SliceState.CREATING
        return SliceView(state=coming, reason=f"its instances are {words}")
    return SliceView(state=SliceState.UNCLEAR, reason=f"its instances are {words}")


def missing(record: Record, shown: int) -> SliceView:
    """Some that were there are not shown any more."""
    state = SliceState.PREEMPTED if record.market == "spot" and record.seen else SliceState.FAILED
    return SliceView(state=state, reason=f"{record.hosts - shown} of {record.hosts} instances are deleted")


def reason_of(instance: Thing) -> str:
    """AWS's own words on why it is in its state."""
    reason: Thing = instance.get("StateReason", {})
    code, words = str(reason.get("Code", "")), str(reason.get("Message", ""))
    said = words if words.startswith(code) else ": ".join(part for part in (code, words) if part)
    return said or str(instance.get("StateTransitionReason", ""))


def _ending(states: Counter[str], words: str) -> SliceView:
    if set(states) == {"terminated"}:
        return SliceView(state=SliceState.ABSENT)
    if set(states) <= GOING:
        return SliceView(state=SliceState.ENDING, reason=f"its instances are {words}")
    return SliceView(state=SliceState.FAILED, reason=f"its end was requested, and its instances are {words}")


def _lost(record: Record, instances: Sequence[Thing], now: float) -> SliceView:
    """Ended, and not from here: by AWS, by somebody else, or by the machine itself."""
    gone = [one for one in instances if state_of(one) in GOING]
    codes = {str(one.get("StateReason", {}).get("Code", "")) for one in gone}
    over = record.market == "block" and bool(record.ends) and now >= record.ends - TAKEN_BEFORE_END
    state = SliceState.PREEMPTED if over or codes & _TAKEN_BACK else SliceState.FAILED
    why = next((reason for one in gone if (reason := reason_of(one))), state_of(gone[0]))
    if over:
        why = f"its capacity block is at its end; {why}"
    return SliceView(state=state, reason=f"{len(gone)} of {record.hosts} instances ended: {why}"[:300])
