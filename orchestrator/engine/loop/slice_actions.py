"""Actions on the slice. The order of the writes matters: the intent before the call, the result after it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import cast

from orchestrator.engine.loop.addresses import drop_addresses, find_creator_address, note_creator_address
from orchestrator.engine.loop.queue import ABSENT, make_outcomes
from orchestrator.engine.loop.session import Session
from orchestrator.engine.state.keys import delete_slice_keys, make_slice_keys
from orchestrator.engine.state.names import slice_token
from orchestrator.engine.state.ssh_aliases import keep_aliases_current
from orchestrator.errors import (
    AccessError,
    BudgetError,
    CannotStopError,
    CapacityError,
    CloudError,
    ConflictError,
    CredentialsError,
    OrchError,
    QuotaError,
    RefusedError,
    UserError,
)
from orchestrator.next_step import NextStep
from orchestrator.plan.actions import CreateSlice, EndSlice, ForgetSlice, StartSlice, StopSlice
from orchestrator.plan.causes import EndCause
from orchestrator.plan.desired import Run
from orchestrator.plan.observed import Intent, IntentState, Outcome
from orchestrator.plan.refusals import Refusal
from orchestrator.providers.protocol import HasAccounts, Stops
from orchestrator.slices import Request, SliceSpec, SliceState
from orchestrator.values import Text


def create_slice(session: Session, action: CreateSlice) -> bool:
    """Write the intent, send the create request, write the result. Return whether the provider accepted the request.

    A capacity error is an answer, not a failure: nothing was created there.
    """
    store, cluster, lease = session.store, session.cluster, session.keeper.lease
    spec = action.spec
    keys = make_slice_keys(session.paths, spec.name, spec.token.reveal(), spec.candidate.hosts)
    known = next((intent for intent in store.intents(cluster) if intent.name == spec.name), None)
    repeated = known is not None
    account = known.account if known is not None else _account_of(session, spec)
    address = find_creator_address(session, spec)
    began = session.uncorrected()
    request = request_text(action.request)
    try:
        store.write_intent(
            lease, cluster, action.generation, spec.name, spec.candidate, spec.token.reveal(), request, account,
            _run_of(session),
        )  # fmt: skip
    except BudgetError as error:
        _note_over_budget(session, spec, error)
        return False
    note_creator_address(session, _intent_of(session, spec.name), address, confirmed=False)
    try:
        session.provider_of(_intent_of(session, spec.name)).create(spec, keys)
    except CapacityError as error:
        _record_refusal(session, spec.name, error, repeated=repeated)
        _report_refusal(session, spec, error)
        return False
    except CredentialsError as error:
        if not _close_unsent(session, spec, error, repeated=repeated):
            ending = f"then the same command again, which continues; or: orch down {cluster.name}"
            error.next_step = f"{error.next_step.replace(chr(10), '; ')}\n{ending}"
        raise
    except (AccessError, UserError) as error:
        _record_refusal(session, spec.name, error, repeated=repeated)
        if repeated:  # what the first request may have made is ended before the command fails, which takes minutes
            session.narrator.note(f"{spec.candidate.where}: {error}")
            session.narrator.note(f"next: {error.next_step}")
        raise
    except ConflictError as error:
        if _was_made_for_this_record(session, spec):
            raise CloudError(error.what, error.why, error.next_step) from error  # it is being ended: tried again
        # Another owner's slice has the name: with this record open, a later end would end it.
        store.update_intent(lease, cluster, spec.name, IntentState.REFUSED, EndCause.REFUSED, str(error))
        next_step = "run the same command again; if it fails again, use another name: -c NAME"
        raise UserError(error.what, error.why, next_step) from error
    ago = None if repeated else session.uncorrected() - began
    store.update_intent(lease, cluster, spec.name, IntentState.ACCEPTED, requested_ago=ago)
    note_creator_address(session, _intent_of(session, spec.name), address, confirmed=True)
    session.memory.created = (spec.name, session.now())
    return True


def _run_of(session: Session) -> str | None:
    """Return the id of the run for which the command works; None for a command without one."""
    return session.job.run_id or None if session.job is not None else None


def _note_over_budget(session: Session, spec: SliceSpec, error: BudgetError) -> None:
    """Note that a budget does not allow a candidate, so that the next one is tried. Nothing is on record of it."""
    delete_slice_keys(session.paths, spec.name)
    session.memory.over_budget[spec.candidate] = Outcome(
        status=int(error.exit_status),
        code=error.code,
        what=error.what,
        why=error.why,
        next_step=NextStep.parse(error.next_step),
    )
    _report_refusal(session, spec, error)


def _report_refusal(session: Session, spec: SliceSpec, error: OrchError) -> None:
    """Report a refusal after which another place is tried. That of the only place is what ends the command."""
    if isinstance(session.desired, Run) and len(session.desired.candidates) == 1:
        return
    cause = str(error).replace(f" {spec.name}", "")
    if cause in session.memory.refusals:
        return
    session.memory.refusals.add(cause)
    session.narrator.note(f"{spec.candidate.where}: {cause}")
    if isinstance(error, QuotaError | RefusedError):  # asking elsewhere or later may not help, this does
        session.narrator.note(f"next: {error.next_step}")


def _close_unsent(session: Session, spec: SliceSpec, error: CredentialsError, *, repeated: bool) -> bool:
    """Close the record of a create of which nothing was sent, and return whether it is closed.

    Another one stays open: it continues after a login.
    """
    intent = _intent_of(session, spec.name)
    provider = session.provider_of(intent)
    if repeated or provider.observe(spec.name, spec.token.reveal()).state is not SliceState.ABSENT:
        return False
    lease, cluster = session.keeper.lease, session.cluster
    session.store.update_intent(lease, cluster, spec.name, IntentState.DELETED, EndCause.REQUESTED, str(error))
    return True


def _account_of(session: Session, spec: SliceSpec) -> str:
    """Return the account in which the slice will be made; "" for a provider that has none."""
    provider = session.provider(spec.candidate.provider)
    return provider.account(spec.candidate) if isinstance(provider, HasAccounts) else ""


def _was_made_for_this_record(session: Session, spec: SliceSpec) -> bool:
    """Return whether the slice of this name was made for this very record.

    Raises:
        CloudError: The slices cannot be listed.
    """
    token = spec.token.reveal()
    found = session.provider_of(_intent_of(session, spec.name)).owned(session.store.installation)
    return any(one.name == spec.name and one.intent == token for one in found)


def _record_refusal(session: Session, name: str, error: OrchError, *, repeated: bool) -> None:
    """Record a refused create.

    A refused first create proves that nothing was made. An earlier request may have acted: then the slice is ended.
    """
    state = IntentState.ENDING if repeated else IntentState.REFUSED
    why = str(Refusal.from_error(error))
    session.store.update_intent(session.keeper.lease, session.cluster, name, state, EndCause.REFUSED, why)


def end_slice(session: Session, action: EndSlice) -> None:
    """Record that the slice is to end, then send the end request. Sent again when the answer was lost."""
    store, cluster = session.store, session.cluster
    session.disconnect()
    intent = _intent_of(session, action.name)
    provider = session.provider_of(intent)
    store.update_intent(session.keeper.lease, cluster, action.name, IntentState.ENDING, action.cause, action.why)
    provider.end(action.name, slice_token(cluster, intent))


def close_slice_record(session: Session, action: ForgetSlice) -> None:
    """Delete the slice's keys and close its record, the record last; the jobs end with it where that is decided.

    A command that is killed before that does all of this again, so no private key is left behind.
    """
    store, lease, cluster = session.store, session.keeper.lease, session.cluster
    store.note_hosts(lease, cluster, ())
    keep_aliases_current(session.paths, store)
    store.note_host_contents(lease, cluster, {})
    delete_slice_keys(session.paths, action.name)
    intent = _intent_of(session, action.name)
    drop_addresses(session, intent.generation)
    if not action.jobs_end:
        store.update_intent(lease, cluster, action.name, IntentState.DELETED, action.cause, action.why)
        return
    again = NextStep(words=f"if they were not ended on purpose: orch launch … -c {cluster.name}")
    outcomes = make_outcomes(store.jobs(cluster), action.jobs_end, lambda _: again, ABSENT)
    store.record_absence(lease, cluster, intent, action.cause, action.why, outcomes)


def stop_slice(session: Session, action: StopSlice) -> None:
    """Stop the machines of a slice."""
    provider = session.provider_of(_intent_of(session, action.name))
    if not isinstance(provider, Stops):
        raise _cannot_stop(session)
    session.disconnect()
    session.store.set_desired_state(session.cluster, "stopped")
    session.store.touch_intent(session.keeper.lease, session.cluster, action.name)
    try:
        provider.stop(action.name)
    except CannotStopError as error:
        raise _with_next_step(error, session) from error


def start_slice(session: Session, action: StartSlice) -> None:
    """Start the stopped machines of a slice."""
    provider = session.provider_of(_intent_of(session, action.name))
    if not isinstance(provider, Stops):
        raise _cannot_stop(session)
    session.store.record_start(session.keeper.lease, session.cluster, action.name, _run_of(session))
    session.memory.stopped = None  # the request ends what is recorded; if it fails, they are reported as stopped again
    provider.start(action.name)


def request_text(request: Request) -> str:
    """Return the request as text for its hash: unknowns by name, secrets masked."""
    parts = [[one.service, one.method, one.target, _plain(one.body)] for one in request.in_order]
    return json.dumps(parts[0] if len(parts) == 1 else parts, sort_keys=True, default=str)


def _plain(value: object) -> object:
    if isinstance(value, Text):
        return value.preview()
    if isinstance(value, Mapping):
        fields = cast(Mapping[str, object], value)
        return {key: _plain(item) for key, item in fields.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast(Sequence[object], value)]
    return value


def _intent_of(session: Session, name: str) -> Intent:
    for intent in session.store.intents(session.cluster):
        if intent.name == name:
            return intent
    raise KeyError(name)  # decide() only names intents it was shown


def _cannot_stop(session: Session) -> CannotStopError:
    why = "its provider cannot stop these machines"
    return _with_next_step(CannotStopError(f"'{session.cluster.name}'", why), session)


def _with_next_step(error: CannotStopError, session: Session) -> CannotStopError:
    with_bucket = any(job.bucket for job in session.store.jobs(session.cluster))
    return error.name_next_step(session.cluster.name, with_bucket=with_bucket)
