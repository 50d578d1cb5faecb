"""Adoption: recording machines that orch did not make, and releasing them unchanged."""

from __future__ import annotations

import re
from typing import cast

from orchestrator.computer import read_member
from orchestrator.drivers import list_drivers
from orchestrator.engine.loop.finished_jobs import record_finished_jobs
from orchestrator.engine.loop.queue import end_jobs
from orchestrator.engine.loop.session import Session
from orchestrator.engine.narrator import Narrator
from orchestrator.engine.preparation.cluster_name import LONGEST_CLUSTER_NAME
from orchestrator.engine.preparation.prepared import PreparedCommand
from orchestrator.engine.services import Services, real_services
from orchestrator.engine.state.keys import delete_slice_keys
from orchestrator.engine.state.lease import LeaseKeeper
from orchestrator.engine.state.names import INSTALLATION, UID, member_label, plan_slice_stem
from orchestrator.engine.state.opening import open_store
from orchestrator.engine.state.recorded import load_observed, open_reader
from orchestrator.engine.state.ssh_aliases import keep_aliases_current
from orchestrator.errors import CloudError, ConflictError, UserError
from orchestrator.next_step import NextStep
from orchestrator.paths import load_paths
from orchestrator.plan.causes import EndCause
from orchestrator.plan.decide_hosts import TIMER_LABEL
from orchestrator.plan.desired import Adopt, Cancel
from orchestrator.plan.facts import Facts
from orchestrator.plan.observed import FINAL_STATES, Intent, IntentState
from orchestrator.providers.protocol import Adopts, Releases
from orchestrator.providers.registry import Planners, load_planner
from orchestrator.render.limits import LimitsSpec, render_limits
from orchestrator.slices import Candidate, Request, SliceState, UnmanagedSlice
from orchestrator.store.lookup import find_cluster
from orchestrator.store.read import Reader
from orchestrator.store.records import ClusterRecord
from orchestrator.values import to_text

RELEASE_DEADLINE = 180.0  # seconds until the provider shows that our marks are off
PAUSE = 1.0


def prepare_adoption(
    name: str, zone: str, *, project: str = "", cluster: str = "", user: str = "", services: Services | None = None
) -> PreparedCommand:
    """Find the machines called `name` and prepare their adoption as `cluster`, by default of the same name.

    Changes nothing.

    Raises:
        UserError: They cannot be adopted.
        NotFoundError: There are no such machines.
        ConflictError: They are adopted under another name.
        AccessError: The provider refuses access.
        CloudError: The provider fails.
    """
    provider = _adopting_provider(services or real_services(load_paths()))
    found = provider.find(name, zone, project, user)
    with open_reader() as reader:
        mine = _on_record(reader, found.candidate)
        if mine is not None:
            where, candidate = mine
            if cluster not in ("", where):
                raise ConflictError(
                    f"'{name}' is already adopted, as cluster '{where}'", next_step=f"orch status {where}"
                )
        else:
            where, candidate = _checked_name(cluster or name), found.candidate
            _refuse(reader, found, where)
        desired = Adopt(
            cluster=where,
            slice_stem=plan_slice_stem(reader, where),
            uid=to_text(UID),
            installation=to_text(reader.installation() or INSTALLATION),
            candidate=candidate,
            project=reader.project,
            member=member_label(read_member()),
        )
        summary = f"{candidate.accelerator} on {candidate.where}, adopted"
        return PreparedCommand(
            cluster=where,
            verb="adopt",
            summary=summary,
            desired=desired,
            recorded=load_observed(reader, where),
            facts=Facts(Planners()),
            notes=found.notes,
        )


def find_adopted_slice(name: str) -> Intent | None:
    """Return the adopted slice that this cluster has now, or None."""
    with open_reader() as reader:
        current = load_observed(reader, name).current
    return current if current is not None and current.candidate.adopted else None


def describe_adopted(candidate: Candidate) -> str:
    """Return what a slice consists of that orch did not make."""
    return cast(Releases, load_planner(candidate.provider)).describe_adopted(candidate)


def build_release_request(name: str) -> Request:
    """Return the request that a release sends.

    Raises:
        UserError: orch made these machines.
    """
    intent = find_adopted_slice(name)
    if intent is None:
        raise _not_adopted(name)
    return cast(Releases, load_planner(intent.candidate.provider)).release_request(intent.name, intent.candidate)


def release_cluster(name: str, narrator: Narrator, services: Services | None = None) -> str:
    """Release adopted machines unchanged, close the cluster's record, and return their name.

    An interrupted release is finished by the same command.

    Raises:
        UserError: orch made these machines.
        ConflictError: A job runs on them.
        NotFoundError: There is no such cluster.
        AccessError: The provider refuses access.
        CloudError: The provider fails.
    """
    where = load_paths()
    services = services or real_services(where)
    with open_store(where, services, "release") as store, LeaseKeeper(store, name, "release", narrator) as keeper:
        keeper.hold()
        record = find_cluster(store, name)
        session = Session(
            store, where, narrator, keeper, record, Cancel(cluster=name, folder=""), Facts({}), None, services
        )
        try:
            intent = _require_releasable(record, store.intents(record))
            _refuse_while_busy(session)
            _remove_marks(session, intent)
        finally:
            session.close()
        end_jobs(store, record, f"'{name}' was released", lambda _: NextStep(), waiting=True, begun=False)
        store.note_hosts(keeper.lease, record, ())
        store.note_host_contents(keeper.lease, record, {})
        delete_slice_keys(where, intent.name)
        message = "released, and left unchanged"
        store.update_intent(keeper.lease, record, intent.name, IntentState.DELETED, EndCause.REQUESTED, message)
        store.close_cluster(keeper.lease, record)
        keep_aliases_current(where, store)
    return intent.candidate.adopted


def _adopting_provider(services: Services) -> Adopts:
    name = next(driver.name for driver in list_drivers() if driver.adopts)  # so far there is one
    provider = services.provider(name)
    if not isinstance(provider, Adopts):
        raise UserError(f"machines of '{name}' cannot be adopted", next_step="orch launch   makes new ones")
    return provider


def _on_record(reader: Reader, sought: Candidate) -> tuple[str, Candidate] | None:
    """Return the cluster that has these machines already, and its candidate."""
    for record in reader.clusters():
        for intent in reader.intents(record):
            if intent.state not in FINAL_STATES and _identity(intent.candidate) == _identity(sought):
                return record.name, intent.candidate
    return None


def _identity(candidate: Candidate) -> tuple[str, str, str, str]:
    return candidate.provider, candidate.detail("project"), candidate.zone, candidate.adopted


def _checked_name(name: str) -> str:
    if re.fullmatch(r"[a-z][a-z0-9-]*", name) is None or len(name) > LONGEST_CLUSTER_NAME:
        raise UserError(
            f"'{name}' cannot be a cluster's name",
            f"up to {LONGEST_CLUSTER_NAME} lower-case letters, digits and dashes, a letter first",
            "give one: -c NAME",
        )
    return name


def _refuse(reader: Reader, found: UnmanagedSlice, cluster: str) -> None:
    if found.problem is not None:
        raise found.problem
    record = reader.cluster(cluster)
    if record is None:
        return
    live = any(intent.state not in FINAL_STATES for intent in reader.intents(record))
    if live or reader.jobs(record):  # else an adoption was interrupted before it started
        raise ConflictError(
            f"there is a cluster '{cluster}' already", "it has other machines", "use another name: -c NAME"
        )


def _require_releasable(record: ClusterRecord, intents: tuple[Intent, ...]) -> Intent:
    live = [intent for intent in intents if intent.state not in FINAL_STATES]
    released = [intent for intent in intents if intent.candidate.adopted and intent.state is IntentState.DELETED]
    if not live and released:
        return released[-1]  # cut off before the record was closed
    if not live or not live[-1].candidate.adopted:
        raise _not_adopted(record.name)
    if live[-1].state is IntentState.ENDING:
        raise ConflictError(f"'{record.name}' is being taken down", next_step=f"orch down {record.name}")
    return live[-1]


def _not_adopted(name: str) -> UserError:
    message = "only machines that orch did not make can be released"
    return UserError(f"'{name}' was not adopted", message, f"orch status {name}   or, to end it: orch down {name}")


def _refuse_while_busy(session: Session) -> None:
    record_finished_jobs(session)
    name = session.cluster.name
    running = [job for job in session.store.jobs(session.cluster) if job.started and job.state != "ended"]
    if running:
        raise ConflictError(
            f"job {running[0].id} runs on '{name}'",
            "",
            f"orch cancel {name} {running[0].id}   then: orch release {name}",
        )


def _remove_marks(session: Session, intent: Intent) -> None:
    """Remove our timer, our labels and our key."""
    provider = session.provider_of(intent)
    if not isinstance(provider, Adopts):
        raise UserError(
            f"machines of '{intent.candidate.provider}' cannot be released", next_step="orch down   ends them"
        )
    view = provider.observe(intent.name)
    if f'"{TIMER_LABEL}"' in session.cluster.host_contents:
        hosts = view.hosts
        done = (
            session.host_operations(hosts).run_script(render_limits(LimitsSpec()).encode(), range(len(hosts)))
            if hosts
            else ()
        )
        if not done or not all(outcome.ok for outcome in done):
            session.narrator.note("the timer of `limits` could not be taken off its hosts: it still ends jobs there")
    session.narrator.note(f"taking our labels and our key off {intent.candidate.adopted}")
    provider.release(intent.name)
    deadline = session.now() + RELEASE_DEADLINE
    while (view := provider.observe(intent.name)).state is not SliceState.ABSENT:
        if session.now() > deadline:
            raise CloudError(
                f"'{intent.candidate.adopted}' still carries our labels", view.reason, "run the same command again"
            )
        session.keeper.hold()
        session.services.clock.sleep(PAUSE)
