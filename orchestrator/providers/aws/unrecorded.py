"""Slices of which this computer has no record: found by their tags in every region, and ended by them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from orchestrator.providers.aws import listing
from orchestrator.providers.aws.auxiliary_resources import AuxiliaryResources
from orchestrator.providers.aws.calls import Calls, Filters
from orchestrator.providers.aws.listing import Found
from orchestrator.providers.aws.looking import doubted
from orchestrator.providers.aws.session import AwsSession
from orchestrator.providers.aws.tags import INSTALLATION, INTENT, SLICE
from orchestrator.slices import OwnedSlice, SliceState, SliceView


@dataclass(slots=True)
class Sightings:
    """What earlier looks showed, each by the name and token that were looked for.

    Attributes:
        regions: The regions that showed something, by the session that asked.
        empty_since: The time of the first look that showed nothing.
        ended: What was shown, and ended from here.
    """

    regions: dict[str, dict[AwsSession, list[str]]] = field(default_factory=dict[str, dict[AwsSession, list[str]]])
    empty_since: dict[str, float] = field(default_factory=dict[str, float])
    ended: set[str] = field(default_factory=set[str])


@dataclass(frozen=True, slots=True, kw_only=True)
class UnrecordedSlices:
    """The slices of some accounts. Every method may raise Refused; token: see providers/protocol.py.

    Attributes:
        sessions: One for each account that is asked.
        bound: These are the accounts in which the slices were made, and no others come into question.
        sightings: What was shown before.
        now: The time in seconds.
        sleep: Waits between two tries of a call that was throttled.
    """

    sessions: Sequence[AwsSession]
    bound: bool
    sightings: Sightings
    now: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep

    def owned(self, filters: Filters) -> tuple[OwnedSlice, ...]:
        """Return every slice that fits the filters."""
        found = self._find_everywhere(filters)
        for key in {_key(one.slice, one.intent) for _, one in found}:
            self._remember(key, [pair for pair in found if _key(pair[1].slice, pair[1].intent) == key])
        return listing.owned(one for _, one in found)

    def observe(self, name: str, token: str) -> SliceView:
        """Return the state of a slice; ABSENT only when no region shows anything of it."""
        return self._view(name, token, [one for _, one in self._find(name, token)])

    def end(self, name: str, token: str) -> None:
        """Terminate the machines of a slice; where there are none any more, delete what they left."""
        found = self._find(name, token)
        if found:
            self.sightings.ended.add(_key(name, token))
        for session, one in found:
            if one.machine:
                Calls(session, one.region, self.sleep).change("TerminateInstances", {"InstanceIds": [one.identity]})
        self._delete_left(found)

    def finish(self, name: str, token: str) -> SliceView:
        """Delete what the machines left, if they were ended from here. The next look shows that it is done."""
        found = self._find(name, token)
        if _key(name, token) in self.sightings.ended:
            self._delete_left(found)
        return self._view(name, token, [one for _, one in found])

    def _find(self, name: str, token: str) -> list[tuple[AwsSession, Found]]:
        """Look where something was shown before; in every region at first, and when nothing is left there."""
        filters = {f"tag:{SLICE}": [name]} | ({f"tag:{INTENT}": [token]} if token else {})
        key = _key(name, token)
        known = self.sightings.regions.get(key, {})
        found = [(session, one) for session in known for one in listing.found(session, filters, known[session])]
        if not found:
            found = self._find_everywhere(filters)
            self._remember(key, found)
        return found

    def _find_everywhere(self, filters: Filters) -> list[tuple[AwsSession, Found]]:
        return [(session, one) for session in self.sessions for one in listing.found(session, filters)]

    def _remember(self, key: str, found: Sequence[tuple[AwsSession, Found]]) -> None:
        self.sightings.regions[key] = {
            session: sorted({one.region for _, one in shown}) for session, shown in groupby(found, lambda pair: pair[0])
        }

    def _view(self, name: str, token: str, things: Sequence[Found]) -> SliceView:
        key = _key(name, token)
        if not things:
            return self._not_found(key)
        self.sightings.empty_since.pop(key, None)
        state, where = listing.state_together(things), listing.where_of(things)
        owner = next((one.tags.get(INSTALLATION, "") for one in things if one.machine), "")
        if state is SliceState.READY:
            words = f"it is in {where}, and was made from another computer, which has its keys"
            return SliceView(state=SliceState.UNCLEAR, reason=words, installation=owner)
        return SliceView(state=state, reason=f"in {where}", installation=owner)

    def _not_found(self, key: str) -> SliceView:
        """Return ABSENT. In a bound account that takes a second look, unless their end was seen.

        Machines that were recorded elsewhere may not be shown yet.
        """
        since = self.sightings.empty_since.setdefault(key, self.now())
        sure = not self.bound or key in self.sightings.ended
        doubt = None if sure else doubted(since, self.now(), SliceState.UNCLEAR)
        return doubt or SliceView(state=SliceState.ABSENT)

    def _delete_left(self, found: Sequence[tuple[AwsSession, Found]]) -> None:
        busy = {one.intent for _, one in found if one.machine}
        left = dict.fromkeys((session, one.region, one.slice, one.intent) for session, one in found)
        for session, region, name, intent in left:
            if intent not in busy:
                AuxiliaryResources(Calls(session, region, self.sleep), name, intent).remove()


def _key(name: str, token: str) -> str:
    return f"{name} {token}"
