"""End machines whose store cannot be written: a full or read-only disk must not keep them running.

What was ended goes into a journal beside the store, and the next command that can write the store records it.
"""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.clock import Clock, RealClock
from orchestrator.engine.narrator import Narrator
from orchestrator.engine.operations.sweep import END_DEADLINE, end_slice
from orchestrator.engine.state.names import slice_token
from orchestrator.engine.state.unrecorded_ends import UnrecordedEnd, keep_unrecorded_end
from orchestrator.errors import OrchError, TakenOverError
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
        installation = reader.installation()
    rented = [one for one in intents if one.state not in FINAL_STATES and not isinstance(one.candidate.market, Owned)]
    if record is None or not rented:
        raise failure
    clock, kept = RealClock(), True
    narrator.note(f"{failure.what} ({failure.why}); the machines are ended without it")
    for intent in rented:
        provider, token = _open(intent, where.state, clock), slice_token(record, intent)
        _refuse_other_machines(provider, intent, token, installation)
        _end(provider, clock, intent, token, narrator)
        end = UnrecordedEnd(
            installation=installation or "", cluster=record.name, uid=record.uid, token=token, at=clock.now()
        )
        kept = keep_unrecorded_end(where, end) is not None and kept
    then = (
        f"then any command records it; see: orch events {cluster}"
        if kept
        else f"then, to close the record: orch down {cluster}"
    )
    return StoreError(
        f"the machines of '{cluster}' are deleted, and that could not be recorded",
        failure.why,
        f"{failure.next_step}\n{then}",
    )


def _open(intent: Intent, state: Path, clock: RealClock) -> Provider:
    """Open the provider without records: it finds the slice by its token, in the account in which it was made."""
    provider = open_provider(intent.candidate.provider, state, clock, MemoryRecords)
    if intent.account and isinstance(provider, HasAccounts):
        return provider.within(intent.account, intent.candidate)
    return provider


def _refuse_other_machines(provider: Provider, intent: Intent, token: str, installation: str | None) -> None:
    """Raise when the machines are of another installation."""
    owner = provider.observe(intent.name, token).installation
    if owner and owner != installation:
        why = "they are not touched from here any more; that could not be recorded"
        raise TakenOverError(f"{intent.name} was taken over by installation {owner}", why, "orch recover   shows it")


def _end(provider: Provider, clock: Clock, intent: Intent, token: str, narrator: Narrator) -> None:
    name, until = intent.name, clock.now() + END_DEADLINE

    def report(state: SliceState, seconds: float) -> None:
        narrator.waiting(Wait(on=WaitFor.SLICE, reason=f"ending {name} (state: {state})", until=until), seconds)

    narrator.note(f"deleting {name}")
    end_slice(provider, clock, name, token, report, "run the same command again   or use the provider's console")
    narrator.note(f"{name} is deleted, as its provider reports")
