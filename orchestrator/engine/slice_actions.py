"""Actions on the slice. The order of the writes is the point: the intent before the call, the result after it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import cast

from orchestrator.engine.identity import token_of
from orchestrator.engine.keys import forget_keys, slice_keys
from orchestrator.engine.session import Session
from orchestrator.errors import AccessError, CapacityError, CloudError, ConflictError, OrchError, QuotaError, UserError
from orchestrator.plan.actions import CreateSlice, EndSlice, ForgetSlice, StartSlice, StopSlice
from orchestrator.plan.causes import EndCause
from orchestrator.plan.observed import Intent, IntentState
from orchestrator.providers.protocol import Stops
from orchestrator.slices import Request, SliceSpec
from orchestrator.values import Text


def create(session: Session, action: CreateSlice) -> None:
    """Intent, call, result. A capacity error is an answer, not a failure: nothing was made there."""
    store, cluster, lease = session.store, session.cluster, session.keeper.lease
    spec = action.spec
    keys = slice_keys(session.paths, spec.name, spec.candidate.hosts)
    repeated = any(intent.name == spec.name for intent in store.intents(cluster))
    store.write_intent(
        lease, cluster, action.generation, spec.name, spec.candidate, spec.token.reveal(), request_text(action.request)
    )
    try:
        session.provider(spec.candidate.provider).create(spec, keys)
    except CapacityError as error:
        _refused(session, spec.name, error, repeated=repeated)
        session.narrator.note(f"{spec.candidate.where}: {error}")
        if isinstance(error, QuotaError):  # asking elsewhere or later does not help, this does
            session.narrator.note(f"next: {error.next_step}")
        return
    except (AccessError, UserError) as error:
        if not (repeated and spec.candidate.adopted):  # it may be ours since the first time: to end it is no way out
            _refused(session, spec.name, error, repeated=repeated)
        raise
    except ConflictError as error:
        if _is_ours(session, spec):
            raise CloudError(error.what, error.why, error.next_step) from error  # on its way out: asked again
        # The name is somebody else's: with this record open, a later end would end theirs.
        store.move_intent(lease, cluster, spec.name, IntentState.REFUSED, EndCause.REFUSED, str(error))
        next_step = "the same command again; if it says this again, take another name: -c NAME"
        raise UserError(error.what, error.why, next_step) from error
    store.move_intent(lease, cluster, spec.name, IntentState.ACCEPTED)


def _is_ours(session: Session, spec: SliceSpec) -> bool:
    """Whether the slice of this name was made for this very record. Raises CloudError when it cannot be listed."""
    token = spec.token.reveal()
    found = session.provider(spec.candidate.provider).owned(session.store.installation)
    return any(one.name == spec.name and one.intent == token for one in found)


def _refused(session: Session, name: str, error: OrchError, *, repeated: bool) -> None:
    """Of a first create a refusal proves that nothing was made. An earlier one may have acted: then it is ended."""
    state = IntentState.ENDING if repeated else IntentState.REFUSED
    session.store.move_intent(session.keeper.lease, session.cluster, name, state, EndCause.REFUSED, str(error))


def end(session: Session, action: EndSlice) -> None:
    """Say that we want it gone, then ask for it. Sent again when the answer was lost."""
    store, cluster = session.store, session.cluster
    session.drop_hands()
    store.move_intent(session.keeper.lease, cluster, action.name, IntentState.ENDING, action.cause, action.why)
    intent = _intent_of(session, action.name)
    session.provider(intent.candidate.provider).end(action.name, token_of(cluster, intent.generation))


def forget(session: Session, action: ForgetSlice) -> None:
    """The record goes last: what is killed before it does all of this again, and leaves no private key behind."""
    lease, cluster = session.keeper.lease, session.cluster
    session.store.note_hosts(lease, cluster, ())
    session.store.note_held(lease, cluster, {})
    forget_keys(session.paths, action.name)
    session.store.move_intent(lease, cluster, action.name, IntentState.GONE, action.cause, action.why)


def stop(session: Session, action: StopSlice) -> None:
    provider = session.provider(_provider_of(session, action.name))
    if not isinstance(provider, Stops):
        raise _cannot_stop(session)
    session.drop_hands()
    session.store.want(session.cluster, "stopped")
    session.store.touch_intent(session.keeper.lease, session.cluster, action.name)
    provider.stop(action.name)


def start(session: Session, action: StartSlice) -> None:
    provider = session.provider(_provider_of(session, action.name))
    if not isinstance(provider, Stops):
        raise _cannot_stop(session)
    session.store.want(session.cluster, "up")
    session.store.touch_intent(session.keeper.lease, session.cluster, action.name)
    provider.start(action.name)


def request_text(request: Request) -> str:
    """The request as text for its hash: unknowns by name, secrets masked."""
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


def _provider_of(session: Session, name: str) -> str:
    return _intent_of(session, name).candidate.provider


def _intent_of(session: Session, name: str) -> Intent:
    for intent in session.store.intents(session.cluster):
        if intent.name == name:
            return intent
    raise KeyError(name)  # decide() only names intents it was shown


def _cannot_stop(session: Session) -> UserError:
    return UserError(
        f"'{session.cluster.name}' cannot be stopped and started",
        "its provider has no such thing for these machines",
        f"orch down {session.cluster.name}   ends them; the bucket keeps the checkpoints",
    )
