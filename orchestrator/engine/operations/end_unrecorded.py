"""End machines whose store cannot be written: a full or read-only disk must not keep them running.

Nothing is recorded. The record stays open, and the same command closes it when the store can be written again.
"""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.clock import RealClock
from orchestrator.engine.narrator import Narrator
from orchestrator.errors import DeadlineError, OrchError
from orchestrator.paths import load_paths
from orchestrator.plan.observed import FINAL_STATES, Intent
from orchestrator.providers.protocol import HasAccounts, Provider
from orchestrator.providers.records import MemoryRecords
from orchestrator.providers.registry import open_provider
from orchestrator.slices import Owned, SliceState
from orchestrator.store.failures import StoreError
from orchestrator.store.location import store_location
from orchestrator.store.read import open_reader_at

DEADLINE = 1800.0  # seconds until a slice must be reported as absent
RESEND_AFTER = 30.0
LEFT_AFTER = 6.0  # the same, for what is left when the machines are gone
PAUSE = 3.0


def end_unrecorded(cluster: str, failure: StoreError, narrator: Narrator) -> OrchError:
    """End all machines of a cluster by their tokens, and return what is left to do.

    Raises:
        StoreError: The store cannot be read either, or there is nothing that costs money.
        OrchError: The machines could not be ended.
    """
    where = load_paths()
    with open_reader_at(store_location(os.environ, where)) as reader:
        record = reader.cluster(cluster)
        intents = reader.intents(record) if record is not None else ()
    rented = [one for one in intents if one.state not in FINAL_STATES and not isinstance(one.candidate.market, Owned)]
    if record is None or not rented:
        raise failure
    narrator.note(f"{failure.what} ({failure.why}); the machines are ended without it")
    for intent in rented:
        _end(_open(intent, where.state), intent, f"{record.uid}-{intent.generation}", narrator)
    return StoreError(
        f"the machines of '{cluster}' are deleted, and that could not be recorded",
        failure.why,
        f"{failure.next_step}\nthen, to close the record: orch down {cluster}",
    )


def _open(intent: Intent, state: Path) -> Provider:
    """Open the provider without records: it finds the slice by its token, in the account in which it was made."""
    provider = open_provider(intent.candidate.provider, state, RealClock(), MemoryRecords)
    if intent.account and isinstance(provider, HasAccounts):
        return provider.within(intent.account, intent.candidate)
    return provider


def _end(provider: Provider, intent: Intent, token: str, narrator: Narrator) -> None:
    clock = RealClock()
    began, sent = clock.now(), 0.0
    narrator.note(f"deleting {intent.name}")
    while True:
        view = provider.observe(intent.name, token)
        patience = LEFT_AFTER if view.state is SliceState.FAILED else RESEND_AFTER
        if clock.now() - sent >= patience and view.state is not SliceState.ABSENT:
            provider.end(intent.name, token)
            sent = clock.now()
        if view.state is SliceState.ABSENT:
            narrator.note(f"{intent.name} is deleted, as its provider reports")
            return
        if clock.now() - began > DEADLINE:
            raise DeadlineError(
                f"{intent.name} is still {view.state}",
                f"its end was requested {DEADLINE / 60:.0f} min ago",
                "run the same command again   or end it in the provider's console",
            )
        clock.sleep(PAUSE)
