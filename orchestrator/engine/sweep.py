"""The sweep: list what carries our label in every place, compare with the records, end what nobody wants."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from orchestrator.engine.lease import LeaseKeeper
from orchestrator.engine.narrator import Narrator
from orchestrator.engine.world import World
from orchestrator.errors import ConflictError, OrchError
from orchestrator.plan.observed import Intent
from orchestrator.plan.sweep import GRACE, Judged, judge
from orchestrator.slices import SliceState
from orchestrator.store.store import Store

END_DEADLINE = 2400.0  # seconds an orphan may need to go: large machines take half an hour
RESEND_AFTER = 60.0
LEFT_AFTER = 10.0  # the same, for what is left when the machines have gone
PAUSE = 2.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One place's answer. problem: why it could not be listed; then nothing there is judged, let alone ended."""

    provider: str
    judged: tuple[Judged, ...] = ()
    problem: OrchError | None = None


@dataclass(frozen=True, slots=True)
class Reaped:
    """What became of one orphan. problem: None when the provider says that it is gone."""

    orphan: Judged
    provider: str
    problem: OrchError | None = None


def look(store: Store, world: World, providers: Iterable[str], grace: float = GRACE) -> tuple[Finding, ...]:
    """Judge all that carries our label. The cloud first, the records after it: see plan/sweep.py."""
    return tuple(_look_at(store, world, name, grace) for name in providers)


def reap(
    store: Store, world: World, narrator: Narrator, findings: Iterable[Finding], grace: float = GRACE
) -> tuple[Reaped, ...]:
    """End every orphan, each under its cluster's lease and judged once more there. Cut off, the next sweep goes on."""
    orphans = [(finding.provider, one) for finding in findings for one in finding.judged if one.orphan]
    return tuple(_reap_one(store, world, narrator, provider, orphan, grace) for provider, orphan in orphans)


def _look_at(store: Store, world: World, name: str, grace: float) -> Finding:
    try:
        found = world.provider(name).owned(store.installation)
    except OrchError as error:
        return Finding(name, problem=error)
    intents = _intents(store)
    now = world.clock.now()
    return Finding(name, tuple(judge(one, intents, store.installation, now, grace) for one in found))


def _intents(store: Store) -> dict[str, Intent]:
    return dict(store.all_intents())


def _reap_one(store: Store, world: World, narrator: Narrator, provider: str, orphan: Judged, grace: float) -> Reaped:
    name = orphan.slice.cluster or orphan.slice.name
    try:
        with LeaseKeeper(store, name, "reap", narrator) as keeper:
            keeper.hold()
            # By name and record: two installations may have left slices of one name.
            again = {(one.slice.name, one.slice.intent): one for one in _look_at(store, world, provider, grace).judged}
            still = again.get((orphan.slice.name, orphan.slice.intent))
            if still is None or not still.orphan:
                return Reaped(orphan, provider)  # gone, or somebody's, meanwhile
            store.event(name, "reap", f"{orphan.slice.name} on {provider} is ended: {orphan.why}")
            _end(world, provider, orphan, keeper.hold)
            store.event(name, "reap", f"{orphan.slice.name} on {provider} is gone")
    except ConflictError as error:
        return Reaped(orphan, provider, error)  # its cluster is being worked on: the next sweep sees
    except OrchError as error:
        store.event(name, "reap", f"{orphan.slice.name} on {provider} could not be ended: {error}")
        return Reaped(orphan, provider, error)
    return Reaped(orphan, provider)


def _end(world: World, provider_name: str, orphan: Judged, renew: Callable[[], None]) -> None:
    """Ask for the end until the provider says that it is gone."""
    provider, clock = world.provider(provider_name), world.clock
    name, token = orphan.slice.name, orphan.slice.intent
    began = asked = clock.now()
    provider.end(name, token)
    while True:
        renew()
        state = provider.observe(name, token).state
        if state is SliceState.ABSENT:
            return
        now = clock.now()
        if now - began > END_DEADLINE:
            raise OrchError(
                f"'{name}' is still {state}", f"its end was asked for {END_DEADLINE:.0f} s ago", "orch reap   again"
            )
        patience = LEFT_AFTER if state is SliceState.FAILED else RESEND_AFTER
        if state is not SliceState.UNCLEAR and now - asked >= patience:  # also what is stuck in ENDING
            provider.end(name, token)
            asked = now
        clock.sleep(PAUSE)
