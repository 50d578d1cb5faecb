"""The sweep: list what carries our label at every provider, compare it with the records, end orphans."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from orchestrator.engine.narrator import Narrator
from orchestrator.engine.services import Services
from orchestrator.engine.state.lease import LeaseKeeper
from orchestrator.errors import ConflictError, OrchError
from orchestrator.plan.observed import Intent
from orchestrator.plan.sweep import GRACE, SweptSlice, classify_slice
from orchestrator.slices import SliceState
from orchestrator.store.store import Store

END_DEADLINE = 2400.0  # seconds an orphan may need to end: large machines take half an hour
RESEND_AFTER = 60.0
LEFT_AFTER = 10.0  # the same, for auxiliary resources that outlive the machines
PAUSE = 2.0


@dataclass(frozen=True, slots=True)
class ProviderFindings:
    """One provider's answer.

    Attributes:
        provider: Its name.
        judged: Every slice with our label, judged.
        problem: Why its slices could not be listed; then nothing there is judged or ended.
    """

    provider: str
    judged: tuple[SweptSlice, ...] = ()
    problem: OrchError | None = None


@dataclass(frozen=True, slots=True)
class ReapResult:
    """The result for one orphan.

    Attributes:
        orphan: The slice.
        provider: Its provider.
        problem: None when the provider reports it as deleted.
    """

    orphan: SweptSlice
    provider: str
    problem: OrchError | None = None


def judge_owned_slices(
    store: Store, services: Services, providers: Iterable[str], grace: float = GRACE
) -> tuple[ProviderFindings, ...]:
    """Judge every slice that carries our label. The cloud is read first, the records after it: see plan/sweep.py."""
    return tuple(_judge_provider(store, services, name, grace) for name in providers)


def end_orphans(
    store: Store, services: Services, narrator: Narrator, findings: Iterable[ProviderFindings], grace: float = GRACE
) -> tuple[ReapResult, ...]:
    """End every orphan, each under its cluster's lease and judged once more there."""
    orphans = [(finding.provider, one) for finding in findings for one in finding.judged if one.orphan]
    return tuple(_end_orphan(store, services, narrator, provider, orphan, grace) for provider, orphan in orphans)


def _judge_provider(store: Store, services: Services, name: str, grace: float) -> ProviderFindings:
    try:
        found = services.provider(name).owned(store.installation)
    except OrchError as error:
        return ProviderFindings(name, problem=error)
    intents = _intents(store)
    now = services.clock.now()
    return ProviderFindings(name, tuple(classify_slice(one, intents, store.installation, now, grace) for one in found))


def _intents(store: Store) -> dict[str, Intent]:
    return dict(store.all_intents())


def _end_orphan(
    store: Store, services: Services, narrator: Narrator, provider: str, orphan: SweptSlice, grace: float
) -> ReapResult:
    name = orphan.slice.cluster or orphan.slice.name
    try:
        with LeaseKeeper(store, name, "reap", narrator) as keeper:
            keeper.hold()
            # By name and record: two installations may have left slices of one name.
            again = {
                (one.slice.name, one.slice.intent): one
                for one in _judge_provider(store, services, provider, grace).judged
            }
            still = again.get((orphan.slice.name, orphan.slice.intent))
            if still is None or not still.orphan:
                return ReapResult(orphan, provider)  # deleted, or on record, meanwhile
            store.event(name, "reap", f"{orphan.slice.name} on {provider} is being ended: {orphan.why}")
            _end_slice(services, provider, orphan, keeper.hold)
            store.event(name, "reap", f"{orphan.slice.name} on {provider} is deleted")
    except ConflictError as error:
        return ReapResult(orphan, provider, error)  # its cluster is being worked on: left to the next sweep
    except OrchError as error:
        store.event(name, "reap", f"{orphan.slice.name} on {provider} could not be ended: {error}")
        return ReapResult(orphan, provider, error)
    return ReapResult(orphan, provider)


def _end_slice(services: Services, provider_name: str, orphan: SweptSlice, renew: Callable[[], None]) -> None:
    """Send end requests until the provider reports the slice as deleted."""
    provider, clock = services.provider(provider_name), services.clock
    name, token = orphan.slice.name, orphan.slice.intent
    began = requested_at = clock.now()
    provider.end(name, token)
    while True:
        renew()
        state = provider.observe(name, token).state
        if state is SliceState.ABSENT:
            return
        now = clock.now()
        if now - began > END_DEADLINE:
            raise OrchError(
                f"'{name}' is still {state}", f"its end was requested {END_DEADLINE:.0f} s ago", "run orch reap again"
            )
        patience = LEFT_AFTER if state is SliceState.FAILED else RESEND_AFTER
        if state is not SliceState.UNCLEAR and now - requested_at >= patience:  # also what is stuck in ENDING
            provider.end(name, token)
            requested_at = now
        clock.sleep(PAUSE)
