"""End machines whose store cannot be written: a full or read-only disk must not keep them running.

Nothing is recorded. The record stays open, and the same command closes it when the store can be written again.
"""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.clock import Clock, RealClock
from orchestrator.engine.narrator import Narrator
from orchestrator.engine.operations.sweep import END_DEADLINE, end_slice
from orchestrator.errors import OrchError
from orchestrator.paths import load_paths
from orchestrator.plan.observed import FINAL_STATES, Intent
from orchestrator.plan.steps import Wait, WaitFor
from orchestrator.project import read_project
from orchestrator.providers.protocol import HasAccounts, Provider
from orchestrator.providers.records import MemoryRecords
from orchestrator.providers.registry import open_provider
from orchestrator.slices import Owned, SliceState
from orchestrator.store.failures import StoreError
from orchestrator.store.location import store_location
from orchestrator.store.read import open_reader_at


def end_unrecorded(cluster: str, failure: StoreError, narrator: Narrator) -> OrchError:
    """End all machines of a cluster by their tokens, and return what is left to do.

    Raises:
        StoreError: The store cannot be read either, or there is nothing that costs money.
        OrchError: The machines could not be ended.
    """
    where = load_paths()
    with open_reader_at(store_location(os.environ, where), read_project(os.environ)) as reader:
        record = reader.cluster(cluster)
        intents = reader.intents(record) if record is not None else ()
    rented = [one for one in intents if one.state not in FINAL_STATES and not isinstance(one.candidate.market, Owned)]
    if record is None or not rented:
        raise failure
    clock = RealClock()
    narrator.note(f"{failure.what} ({failure.why}); the machines are ended without it")
    for intent in rented:
        _end(_open(intent, where.state, clock), clock, intent, f"{record.uid}-{intent.generation}", narrator)
    return StoreError(
        f"the machines of '{cluster}' are deleted, and that could not be recorded",
        failure.why,
        f"{failure.next_step}\nthen, to close the record: orch down {cluster}",
    )


def _open(intent: Intent, state: Path, clock: RealClock) -> Provider:
    """Open the provider without records: it finds the slice by its token, in the account in which it was made."""
    provider = open_provider(intent.candidate.provider, state, clock, MemoryRecords)
    if intent.account and isinstance(provider, HasAccounts):
        return provider.within(intent.account, intent.candidate)
    return provider


def _end(provider: Provider, clock: Clock, intent: Intent, token: str, narrator: Narrator) -> None:
    name, until = intent.name, clock.now() + END_DEADLINE

    def report(state: SliceState, seconds: float) -> None:
        narrator.waiting(Wait(on=WaitFor.SLICE, reason=f"ending {name}: it is {state}", until=until), seconds)

    narrator.note(f"deleting {name}")
    end_slice(provider, clock, name, token, report, "run the same command again   or use the provider's console")
    narrator.note(f"{name} is deleted, as its provider reports")
