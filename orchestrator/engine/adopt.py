"""Machines that somebody else made: on record here from now on, or given back as they are."""

from __future__ import annotations

import re
from typing import cast

from orchestrator.engine.identity import INSTALLATION, UID
from orchestrator.engine.keys import forget_keys
from orchestrator.engine.known import known, open_reader
from orchestrator.engine.lease import LeaseKeeper
from orchestrator.engine.narrator import Narrator
from orchestrator.engine.opening import open_store
from orchestrator.engine.ready import Ready
from orchestrator.engine.session import Session
from orchestrator.engine.settle import settle
from orchestrator.engine.turns import end_jobs
from orchestrator.engine.wish import LONGEST_NAME
from orchestrator.engine.world import World, real_world
from orchestrator.errors import CloudError, ConflictError, NotFoundError, UserError
from orchestrator.paths import paths
from orchestrator.plan.causes import EndCause
from orchestrator.plan.decide_hosts import TIMER
from orchestrator.plan.desired import Adopt, Cancel
from orchestrator.plan.facts import Facts
from orchestrator.plan.observed import FINAL, Intent, IntentState
from orchestrator.providers.protocol import Adopts, Releases
from orchestrator.providers.registry import Planners, planner
from orchestrator.render.limits import LimitsWanted, render_limits
from orchestrator.slices import Candidate, Request, SliceState, Stranger
from orchestrator.store.read import Reader
from orchestrator.store.records import ClusterRecord
from orchestrator.values import text

PROVIDER = "gcp"  # the only one whose machines can be adopted
RELEASE_DEADLINE = 180.0  # seconds until the provider shows that our marks are off
PAUSE = 1.0


def adopt(
    name: str, zone: str, *, project: str = "", cluster: str = "", user: str = "", world: World | None = None
) -> Ready:
    """Look at the machines called `name`, and wish to have them as `cluster`, by default of the same name.

    Changes nothing. Raises UserError for what cannot be adopted, NotFoundError, ConflictError, AccessError, CloudError.
    """
    provider = _adopting(world or real_world(paths()))
    found = provider.find(name, zone, project, user)
    with open_reader() as reader:
        mine = _on_record(reader, found.candidate)
        if mine is not None:
            where, candidate = mine
            if cluster not in ("", where):
                raise ConflictError(
                    f"'{name}' is adopted already, as cluster '{where}'", next_step=f"orch status {where}"
                )
        else:
            where, candidate = _checked_name(cluster or name), found.candidate
            _refuse(reader, found, where)
        desired = Adopt(where, text(UID), text(reader.installation() or INSTALLATION), candidate)
        summary = f"{candidate.accelerator} on {candidate.where}, adopted"
        return Ready(where, "adopt", summary, desired, known(reader, where), Facts(Planners()), notes=found.notes)


def adopted(name: str) -> Intent | None:
    """The adopted slice that this cluster has now, by its record; None for machines that orch made, or none."""
    with open_reader() as reader:
        current = known(reader, name).current
    return current if current is not None and current.candidate.adopted else None


def release_request(name: str) -> Request:
    """What a release sends. Raises UserError for machines that orch made."""
    intent = adopted(name)
    if intent is None:
        raise _not_adopted(name)
    return cast(Releases, planner(intent.candidate.provider)).release_request(intent.name, intent.candidate)


def release(name: str, narrator: Narrator, world: World | None = None) -> str:
    """Give adopted machines back as they are, and close the record of the cluster. What they are called.

    Cut off, the same command goes on. Raises UserError for machines that orch made, ConflictError while a job runs,
    NotFoundError, AccessError, CloudError.
    """
    where = paths()
    world = world or real_world(where)
    with open_store(where, world, "release") as store, LeaseKeeper(store, name, "release", narrator) as keeper:
        keeper.hold()
        record = store.cluster(name)
        if record is None:
            raise NotFoundError(f"there is no cluster '{name}'", next_step="orch status")
        session = Session(store, where, narrator, keeper, record, Cancel(name, ""), Facts({}), None, world)
        try:
            intent = _releasable(record, store.intents(record))
            _refuse_while_busy(session)
            _take_off(session, intent)
        finally:
            session.close()
        end_jobs(store, record, f"'{name}' was released", "", waiting=True, begun=False)
        store.note_hosts(keeper.lease, record, ())
        store.note_held(keeper.lease, record, {})
        forget_keys(where, intent.name)
        words = "released, and left as it is"
        store.move_intent(keeper.lease, record, intent.name, IntentState.GONE, EndCause.ASKED, words)
        store.close_cluster(keeper.lease, record)
    return intent.candidate.adopted


def _adopting(world: World) -> Adopts:
    provider = world.provider(PROVIDER)
    if not isinstance(provider, Adopts):
        raise UserError(f"machines of '{PROVIDER}' cannot be adopted")
    return provider


def _on_record(reader: Reader, sought: Candidate) -> tuple[str, Candidate] | None:
    """The cluster that has these machines already, and what its record says of them."""
    for record in reader.clusters():
        for intent in reader.intents(record):
            if intent.state not in FINAL and _identity(intent.candidate) == _identity(sought):
                return record.name, intent.candidate
    return None


def _identity(candidate: Candidate) -> tuple[str, str, str, str]:
    return candidate.provider, candidate.detail("project"), candidate.zone, candidate.adopted


def _checked_name(name: str) -> str:
    if re.fullmatch(r"[a-z][a-z0-9-]*", name) is None or len(name) > LONGEST_NAME:
        raise UserError(
            f"'{name}' cannot be a cluster's name",
            f"up to {LONGEST_NAME} lower-case letters, digits and dashes, a letter first",
            "give one: -c NAME",
        )
    return name


def _refuse(reader: Reader, found: Stranger, cluster: str) -> None:
    if found.problem is not None:
        raise found.problem
    record = reader.cluster(cluster)
    if record is None:
        return
    live = any(intent.state not in FINAL for intent in reader.intents(record))
    if live or reader.jobs(record):  # else an adoption was cut off before it had begun
        raise ConflictError(
            f"there is a cluster '{cluster}' already", "it is of other machines", "take another name: -c NAME"
        )


def _releasable(record: ClusterRecord, intents: tuple[Intent, ...]) -> Intent:
    live = [intent for intent in intents if intent.state not in FINAL]
    released = [intent for intent in intents if intent.candidate.adopted and intent.state is IntentState.GONE]
    if not live and released:
        return released[-1]  # cut off before the record was closed
    if not live or not live[-1].candidate.adopted:
        raise _not_adopted(record.name)
    if live[-1].state is IntentState.ENDING:
        raise ConflictError(f"'{record.name}' is being taken down", next_step=f"orch down {record.name}")
    return live[-1]


def _not_adopted(name: str) -> UserError:
    words = "only machines that orch did not make can be given back"
    return UserError(f"'{name}' was not adopted", words, f"orch status {name}   or, to end it: orch down {name}")


def _refuse_while_busy(session: Session) -> None:
    settle(session)
    name = session.cluster.name
    running = [job for job in session.store.jobs(session.cluster) if job.started and job.state != "ended"]
    if running:
        raise ConflictError(
            f"job {running[0].id} runs on '{name}'",
            "",
            f"orch cancel {name} {running[0].id}   then: orch release {name}",
        )


def _take_off(session: Session, intent: Intent) -> None:
    """Our timer, our marks and our key."""
    provider = session.provider(intent.candidate.provider)
    if not isinstance(provider, Adopts):
        raise UserError(f"machines of '{intent.candidate.provider}' cannot be released")
    view = provider.observe(intent.name)
    if f'"{TIMER}"' in session.cluster.held:
        hosts = view.hosts
        done = session.hands(hosts).script(render_limits(LimitsWanted()).encode(), range(len(hosts))) if hosts else ()
        if not done or not all(outcome.ok for outcome in done):
            session.narrator.note("the timer of `limits` could not be taken off its hosts: it still ends jobs there")
    session.narrator.note(f"taking our labels and our key off {intent.candidate.adopted}")
    provider.release(intent.name)
    deadline = session.now() + RELEASE_DEADLINE
    while (view := provider.observe(intent.name)).state is not SliceState.ABSENT:
        if session.now() > deadline:
            raise CloudError(
                f"'{intent.candidate.adopted}' still carries our labels", view.reason, "the same command again"
            )
        session.keeper.hold()
        session.world.clock.sleep(PAUSE)
