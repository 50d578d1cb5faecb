"""Random histories of a store: every changing method of Store, in any order, with any text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from hypothesis import strategies as st
from sqlalchemy import Connection

from orchestrator.errors import ConflictError
from orchestrator.hosts import HostPin, PinReason
from orchestrator.next_step import NextStep
from orchestrator.plan.causes import EndCause
from orchestrator.plan.observed import EndedAttempt, Intent, IntentState, Outcome
from orchestrator.plan.spending_budget import SpendingBudget
from orchestrator.slices import Candidate, OnDemand
from orchestrator.store.admission_records import NewSliceRecord
from orchestrator.store.bill_records import BillRecord, BlockRecord
from orchestrator.store.leases import Lease
from orchestrator.store.order_records import OrderRecord
from orchestrator.store.records import ClusterRecord, NewJob
from orchestrator.store.session_records import InvitationRecord, SessionRecord, SignInRecord
from orchestrator.store.setting_records import ProjectSetting
from orchestrator.store.store import Store
from orchestrator.store.token_records import TokenRecord
from orchestrator.store.trust_records import TrustRule

LOCAL = Candidate(
    provider="local", accelerator="cpu", hosts=4, chips_per_host=0, market=OnDemand(), details=(("shape", "4"),)
)
READS = frozenset(
    {
        "cluster", "clusters", "clusters_going_down", "intents", "job", "jobs", "unattended_jobs", "launch_requests",
        "find_run", "last_run_of", "deleted_cluster",
        "admissions", "host_pin", "host_pins_of",
        "ended_attempts", "pipeline", "unended_pipelines", "count_pipelines", "pipeline_jobs",
        "all_intents", "tokens", "counting_tokens", "trust_rules", "order", "find_order", "open_orders",
        "access_grants", "slice_owner", "slice_owners",
        "find_blob", "unused_blobs", "list_kept", "unfinished_jobs",
        "channel", "budgets", "find_spent_budget", "find_spent_before", "read_budget_revisions",
        "bills", "choose_token_name", "choose_computer_name", "project_settings",
        "trusted_checkpoints", "find_session", "invitations", "sign_ins", "member_names", "tasks_that_name",
    }
)  # fmt: skip
# leases, the change itself, and what is not audited (see audited.TABLES_NOT_AUDITED)
NOT_A_ROW = frozenset(
    {
        "acquire", "renew", "release", "change", "changing_whole", "close", "keep_servers_key",
        "run_key", "sign_in_key", "keep_progress", "drop_progress",
        "keep_blob", "use_blob", "begin_dropping", "end_dropping",
        "open_channel", "note_delivery", "note_delivery_problem",
        "note_session_use", "keep_entry_code", "take_entry_code", "open_grant", "note_poll", "decide_grant",
        "use_grant", "spend_token",
    }
)  # fmt: skip

_nasty = st.text(alphabet=st.characters(exclude_categories=()), max_size=12)  # NUL and half characters included
_small = st.integers(1, 3)


@dataclass(frozen=True)
class Step:
    method: str
    cluster: str
    number: int
    text: str
    state: IntentState
    cause: EndCause
    flag: bool


@contextmanager
def forging(store: Store) -> Iterator[Connection]:
    """Open a transaction in which an administrator of PostgreSQL may change events; on SQLite the file's owner may."""
    with store._database.writing() as tx:
        if not store.is_file:
            tx.exec_driver_sql("SET LOCAL session_replication_role = replica")
        yield tx


def histories(methods: list[str]) -> st.SearchStrategy[list[Step]]:
    step = st.builds(
        Step, st.sampled_from(methods), st.sampled_from(["a", "b"]), _small, _nasty, st.sampled_from(list(IntentState)),
        st.sampled_from(list(EndCause)), st.booleans(),
    )  # fmt: skip
    return st.lists(step, max_size=30)


def play(store: Store, step: Step) -> None:
    """Do one step; one that cannot be done now (no such intent, job or pipeline) is left out."""
    lease = store.acquire(f"cluster:{step.cluster}", "history")
    assert isinstance(lease, Lease)
    try:
        _DO[step.method](store, step, store.open_cluster(step.cluster, step.text), lease)
    except ConflictError as error:
        assert step.method in ("take_from_queue", "start_attempt", "bind_sign_in"), error
    finally:
        store.release(lease)


def _new(step: Step) -> NewJob:
    ranks = (0, step.number) if step.flag else None
    return NewJob(
        kind="launch",
        run_id=f"run-{step.number}",
        digest=step.text,
        task=step.text,
        bucket="",
        ranks=ranks,
        after_end="keep",
        launch_request=step.text,
        watch="engine" if step.flag else "",
        pipeline=step.text,
        stage=step.number,
    )


def _intent(call: Callable[[Store, Step, ClusterRecord, Lease, str], None]) -> Callable[..., None]:
    def only_if_there(store: Store, step: Step, cluster: ClusterRecord, lease: Lease) -> None:
        name = f"{step.cluster}-{step.number}"
        if any(intent.name == name for intent in store.intents(cluster)):
            call(store, step, cluster, lease, name)

    return only_if_there


def _job(call: Callable[[Store, Step, ClusterRecord, Lease], None]) -> Callable[..., None]:
    def only_if_there(store: Store, step: Step, cluster: ClusterRecord, lease: Lease) -> None:
        if any(job.id == step.number for job in store.jobs(cluster)):
            call(store, step, cluster, lease)

    return only_if_there


def _pipeline(call: Callable[[Store, Step, str, Lease], None]) -> Callable[..., None]:
    def only_if_there(store: Store, step: Step, _cluster: ClusterRecord, lease: Lease) -> None:
        uid = f"p{step.number}"
        if store.count_pipelines(uid):
            call(store, step, uid, lease)

    return only_if_there


def _intent_named(store: Store, cluster: ClusterRecord, name: str) -> Intent:
    return next(intent for intent in store.intents(cluster) if intent.name == name)


def _taken_over(step: Step) -> NewSliceRecord:
    return NewSliceRecord(
        cluster=f"taken-{step.number}",
        summary=step.text,
        generation=step.number,
        name=f"taken-{step.number}",
        token=f"token-{step.number}",
        candidate=LOCAL,
        account=step.text,
        created=1e9 if step.flag else 0.0,
        installation=step.text,
        epoch=step.number,
    )


def _ended(step: Step) -> EndedAttempt:
    code = step.number if step.flag else None
    return EndedAttempt(
        attempt=step.number,
        cause=step.cause,
        why=step.text,
        generation=step.number,
        at=12.5 if step.flag else 0.0,
        exit_code=code,
        rank=code,
        evidence=step.text,
    )


def _outcome(step: Step) -> Outcome:
    return Outcome(
        status=step.number, code=step.text, what=step.text, why=step.text, next_step=NextStep.parse(step.text)
    )


def _session(step: Step) -> SessionRecord:
    return SessionRecord(digest=f"s{step.number}", member=step.text, token=step.text, begun=1e9, used=1e9)


def _trust_rule(step: Step, store: Store) -> TrustRule:
    return TrustRule(
        uid=f"rule{len(store.trust_rules())}", name=f"{step.text}{len(store.trust_rules())}",
        issuer="https://ci.example.org", claims={"sub": step.text}, member=step.text, role="viewer",
        project=step.text, seconds=3600, created=1e9, expires=2e9 if step.flag else None,
    )  # fmt: skip


def _token(step: Step, store: Store, suffix: str) -> TokenRecord:
    return TokenRecord(
        digest=f"{step.text}{len(store.tokens())}", name=f"{step.text}{suffix}", member=step.text, role="member",
        created=1e9, expires=3e9,
    )  # fmt: skip


def _given_token(step: Step, store: Store, rule: TrustRule) -> TokenRecord:
    return TokenRecord(
        digest=f"given{len(store.tokens())}", name=f"{step.text}{len(store.tokens())}", member=rule.member,
        role=rule.role, created=1e9, expires=2e9, project=rule.project, parent=rule.subject,
    )  # fmt: skip


def _invitation(step: Step, store: Store) -> InvitationRecord:
    number = len(store.invitations())
    return InvitationRecord(
        digest=f"i{number}",
        name=f"{step.text}{number}",
        member=step.text,
        role="member",
        token_days=90,
        created=1e9,
        expires=3e9,
    )


def _sign_in(step: Step) -> SignInRecord:
    return SignInRecord(identity=f"p{step.number}", issuer=step.text, subject="s", member=step.text, created=1e9)


def _order(step: Step) -> OrderRecord:
    return OrderRecord(
        uid=f"o{step.number}", project="default", cluster=step.cluster, verb="down", arguments=step.text,
        plan=step.text, fingerprint=step.text, member=step.text, state="open", created=1e9,
    )  # fmt: skip


def _bill(step: Step) -> BillRecord:
    return BillRecord(
        source="aws", account="1", month="2026-11", token=f"t{step.number}", part="disks", begin=1e9,
        until=1e9 + len(step.text), microdollars=step.number - 2,
    )  # fmt: skip


def _block(step: Step) -> BlockRecord:
    return BlockRecord(
        block_id=f"cr-{step.number}", provider="aws", region=step.text, machine="p5.48xlarge", count=step.number,
        begin=1e9, until=2e9, microdollars=7_552 * 10**6 * step.number, project="default", member=step.text,
    )  # fmt: skip


def _pin(step: Step) -> HostPin:
    name = quote(step.text, safe="", errors="replace")
    return HostPin(name=name, kind=step.state, key=f"{step.number:04d}", job=f"u/{step.number}")


_DO: dict[str, Callable[..., Any]] = {
    "open_cluster": lambda store, step, cluster, lease: None,  # done before every step
    "set_desired_state": lambda store, step, cluster, lease: store.set_desired_state(
        cluster, "down" if step.flag else "up"
    ),
    "set_limits": lambda store, step, cluster, lease: store.set_limits(cluster, {"max_hours": step.number}),
    "note_hosts": lambda store, step, cluster, lease: store.note_hosts(lease, cluster, ()),
    "note_host_contents": lambda store, step, cluster, lease: store.note_host_contents(
        None, cluster, {"0": {"setup": step.text}}
    ),
    "note_state": lambda store, step, cluster, lease: store.note_state(cluster, "ready"),
    "record_observed_stop": lambda store, step, cluster, lease: store.record_observed_stop(cluster, stopped=step.flag),
    "close_cluster": lambda store, step, cluster, lease: store.close_cluster(lease, cluster),
    "write_intent": lambda store, step, cluster, lease: store.write_intent(
        lease, cluster, step.number, f"{step.cluster}-{step.number}", LOCAL, step.text, "request"
    ),
    "update_intent": _intent(
        lambda store, step, cluster, lease, name: store.update_intent(
            lease, cluster, name, step.state, step.cause if step.flag else None, step.text
        )
    ),
    "note_billing_start": _intent(
        lambda store, step, cluster, lease, name: store.note_billing_start(lease, cluster, name, 1e9 + step.number)
    ),
    "note_admitted_keys": lambda store, step, cluster, lease: store.note_admitted_keys(
        cluster.uid, step.number, {step.text: 2e9, "b": 2e9}, alone=step.flag
    ),
    "note_admission": lambda store, step, cluster, lease: store.note_admission(
        cluster.uid, step.number, "b", step.text, 2e9, confirmed=step.flag
    ),
    "drop_admission": lambda store, step, cluster, lease: [
        store.drop_admission(one) for one in store.admissions(cluster.uid, step.number)
    ],
    "touch_intent": _intent(lambda store, step, cluster, lease, name: store.touch_intent(lease, cluster, name)),
    "open_job": lambda store, step, cluster, lease: store.open_job(cluster, _new(step)),
    "queue_job": lambda store, step, cluster, lease: store.queue_job(cluster, _new(step)),
    "take_from_queue": _job(lambda store, step, cluster, lease: store.take_from_queue(lease, cluster, step.number)),
    "cancel_job": _job(lambda store, step, cluster, lease: store.cancel_job(cluster, step.number)),
    "set_watch": _job(
        lambda store, step, cluster, lease: store.set_watch(cluster, step.number, "engine" if step.flag else "")
    ),
    "start_attempt": _job(lambda store, step, cluster, lease: store.start_attempt(cluster, step.number, lease=lease)),
    "end_attempt": _job(lambda store, step, cluster, lease: store.end_attempt(cluster, step.number, _ended(step))),
    "next_attempt": _job(
        lambda store, step, cluster, lease: store.next_attempt(cluster, step.number, _ended(step), step.number + 1)
    ),
    "record_outcome": _job(
        lambda store, step, cluster, lease: store.record_outcome(cluster, step.number, _outcome(step))
    ),
    "record_take_over": lambda store, step, cluster, lease: store.record_take_over(lease, _taken_over(step)),
    "raise_epoch": lambda store, step, cluster, lease: store.raise_epoch(lease, cluster, "token", step.number),
    "record_transfer": _intent(
        lambda store, step, cluster, lease, name: store.record_transfer(
            lease, cluster, _intent_named(store, cluster, name), step.text
        )
    ),
    "record_earlier_end": _intent(
        lambda store, step, cluster, lease, name: store.record_earlier_end(
            lease, cluster, _intent_named(store, cluster, name), 1e9
        )
    ),
    "record_absence": _intent(
        lambda store, step, cluster, lease, name: store.record_absence(
            lease, cluster, _intent_named(store, cluster, name), step.cause, step.text, {step.number: _outcome(step)}
        )
    ),
    "open_pipeline": lambda store, step, cluster, lease: store.open_pipeline(
        step.text, (step.text, "b"), step.text, uid=f"p{step.number}"
    ),
    "advance_pipeline": _pipeline(
        lambda store, step, uid, lease: store.advance_pipeline(uid, step.number, lease=lease)
    ),
    "set_launch_request": _pipeline(lambda store, step, uid, lease: store.set_launch_request(uid, step.text)),
    "request_pipeline_end": _pipeline(lambda store, step, uid, lease: store.request_pipeline_end(uid, step.text)),
    "end_pipeline": _pipeline(lambda store, step, uid, lease: store.end_pipeline(uid, "ended", step.number, step.text)),
    "open_order": lambda store, step, cluster, lease: store.open_order(_order(step)),
    "end_order": lambda store, step, cluster, lease: [
        store.end_order(one, _outcome(step)) for one in store.open_orders() if one.uid == f"o{step.number}"
    ],
    "add_token": lambda store, step, cluster, lease: store.add_token(_token(step, store, str(len(store.tokens())))),
    "add_computer_token": lambda store, step, cluster, lease: store.add_computer_token(_token(step, store, "")),
    "set_project_setting": lambda store, step, cluster, lease: store.set_project_setting(
        ProjectSetting(
            project="default" if step.flag else f"p{step.number}", key="aws.role_arn", value=f"role-{step.text}"
        )
    ),
    "remove_project_setting": lambda store, step, cluster, lease: [
        store.remove_project_setting(one.project, one.key) for one in store.project_settings()[: step.number]
    ],
    "set_budget": lambda store, step, cluster, lease: store.set_budget(
        SpendingBudget(
            project="default" if step.flag else "",
            member=f"m{step.number}",
            dollars_per_month=1.5 * step.number,
            at_limit="stop" if step.flag else "refuse",
        )
    ),
    "change_budget_limits": lambda store, step, cluster, lease: store.change_budget_limits(
        f"project{step.number % 2}", "", {"dollars_per_month": 1.0 + step.number}
    ),
    "remove_budget": lambda store, step, cluster, lease: [
        store.remove_budget(one.project, one.member) for one in store.budgets()[: step.number]
    ],
    "import_bills": lambda store, step, cluster, lease: store.import_bills(
        [_bill(step)], [] if step.flag else [("aws", "1", "2026-11")]
    ),
    "record_block": lambda store, step, cluster, lease: store.record_block(_block(step)),
    "record_prediction": lambda store, step, cluster, lease: store.record_prediction(
        f"run-{step.number}", json.dumps({"speed": step.text})
    ),
    "trust_checkpoints": lambda store, step, cluster, lease: store.trust_checkpoints(
        cluster, f"run-{step.number}", {f"{step.number:064x}": step.number, "f" * 64: 1}
    ),
    "record_start": _intent(lambda store, step, cluster, lease, name: store.record_start(lease, cluster, name)),
    "begin_session": lambda store, step, cluster, lease: store.begin_session(_session(step)),
    "end_session": lambda store, step, cluster, lease: store.end_session(_session(step).digest),
    "add_trust_rule": lambda store, step, cluster, lease: store.add_trust_rule(_trust_rule(step, store)),
    "give_token": lambda store, step, cluster, lease: [
        store.give_token(rule, _given_token(step, store, rule), step.text) for rule in store.trust_rules()[-1:]
    ],
    "add_invitation": lambda store, step, cluster, lease: store.add_invitation(_invitation(step, store)),
    "accept_invitation": lambda store, step, cluster, lease: [
        store.accept_invitation(one.digest, f"of {one.digest}")
        for one in store.invitations()[:1]
        if one.state == "open"
    ],
    "bind_sign_in": lambda store, step, cluster, lease: store.bind_sign_in(_sign_in(step), proven=step.flag),
    "revoke_entry": lambda store, step, cluster, lease: [
        store.revoke_entry(one.name) for one in store.tokens()[:1] if one.revoked is None
    ],
    "revoke_member": lambda store, step, cluster, lease: [
        store.revoke_member(one.member) for one in store.sign_ins()[:1] if one.revoked is None
    ],
    "keep_host_pin": lambda store, step, cluster, lease: store.keep_host_pin(
        _pin(step),
        PinReason.NAMED if step.flag else PinReason.FIRST,
        instead_of=store.host_pin(_pin(step).name) if step.flag else None,
        cluster=step.cluster,
    ),
    "confirm_host_pins": lambda store, step, cluster, lease: store.confirm_host_pins(f"u/{step.number}", step.cluster),
    "event": lambda store, step, cluster, lease: store.event(step.cluster, "trouble", step.text),
    "record_condition": lambda store, step, cluster, lease: store.record_condition(
        step.cluster, step.text, f"waiting: {step.number}"
    ),
}
METHODS = sorted(_DO)
