"""Plans and orders: what a member asks for is shown first, and then carried out by an engine."""

from __future__ import annotations

import hashlib

from orchestrator.documents.orders import order_as_json, orders_as_json
from orchestrator.engine.operations.orders import list_jobs_that_end
from orchestrator.engine.state.names import new_run_id
from orchestrator.errors import AccessError, NotFoundError, OrchError
from orchestrator.exits import Exit
from orchestrator.project import check_project
from orchestrator.service.plans import OrderPlan, OrderRequest, PlanRequest, describe_difference, make_order_plan
from orchestrator.service.route import Answer, Call, Role
from orchestrator.service.sent_files import refuse_missing_trees
from orchestrator.store.lookup import find_cluster, suggest_run
from orchestrator.store.order_records import OrderRecord, make_order_uid

RUN_VERBS = ("launch", "resume", "exec")


class PreconditionError(OrchError):
    """The plan would be another one now than the member saw."""

    code = "plan-changed"
    exit_status = Exit.CONFLICT


class ReusedKeyError(OrchError):
    """A key was sent with another request before."""

    code = "key-reused"
    exit_status = Exit.CONFLICT


def show_plan(call: Call) -> Answer:
    """Answer with the plan of a request."""
    request: PlanRequest = call.body
    plan = plan_for(call, request)
    with call.site.open_reader(plan.project, call.only_project) as store:
        ends = list_jobs_that_end(store, plan.ready, call.site.now())
    document = {
        "version": 1,
        "kind": "order-plan",
        "verb": request.verb,
        "cluster": plan.cluster,
        "project": plan.project,
        "plan": plan.digest,
        "price_per_hour": plan.price_per_hour,
        "cost": plan.cost or None,
        "transfers": list(plan.transfers),
        "asks_transfers": plan.asks_transfers,
        "head": plan.head,
        "owner": plan.owner or None,
        "ends": list(ends),
        "idle": plan.idle or None,
        "text": plan.text,
        "details": plan.details,
        "notes": list(plan.notes),
        "steps": plan.steps,
    }
    return Answer(document=document)


def create_order(call: Call) -> Answer:
    """Record an order, and answer with it."""
    order = open_order(call)
    return Answer(document=order_as_json(order), location=f"/v1/orders/{order.uid}", status=202)


def show_order(call: Call) -> Answer:
    """Answer with one order."""
    with call.open_reader() as store:
        return Answer(document=order_as_json(store.order(call.path["uid"])))


def list_orders(call: Call) -> Answer:
    """Answer with the newest orders."""
    with call.open_reader() as store:
        return Answer(document=orders_as_json(store.newest_orders(call.query["limit"])))


def open_order(call: Call) -> OrderRecord:
    """Record the order of a request whose plan is still the one that the member saw.

    The same request with the same key is the same order, also when the plan is another one meanwhile.

    Raises:
        ReusedKeyError: The key belongs to another request.
        PreconditionError: The plan would be another one now.
        OrchError: The command would be refused.
    """
    request: OrderRequest = call.body
    member = call.person.name if call.person is not None else ""
    uid, fingerprint = make_order_uid(member, call.key), _fingerprint(request)
    with call.site.open_reader() as reader:  # the key is of the member, in whichever project
        known = reader.find_order(uid)
    if known is None:
        plan = _confirm_plan(call, request)
        order = OrderRecord(
            uid=uid,
            project=plan.project,
            cluster=plan.cluster,
            verb=request.verb,
            arguments=plan.arguments,
            plan=plan.digest,
            fingerprint=fingerprint,
            member=member,
            state="open",
            created=call.site.now(),
            run_id=_choose_run_id(plan, request.verb),
        )
        with call.site.open_store(request.verb, plan.project) as store:
            known = store.open_order(order)
    if known.fingerprint != fingerprint or call.only_project not in ("", known.project):
        raise ReusedKeyError(
            "this key was sent with another request before", "a key belongs to one request", "send a new key"
        )
    call.site.wake_engine()
    return known


def plan_for(call: Call, request: PlanRequest) -> OrderPlan:
    """Return the plan of a request for who asks.

    Raises:
        OrchError: The request cannot be planned.
    """
    project, own = request.project or call.project, call.only_project
    if own and project != own:
        raise AccessError(
            f"you do not work in the project {project}", f"you are in {own}", f"export ORCH_PROJECT={own}"
        )
    check_project(project, "name a project of the service")
    if own:
        _find_subject(call, request)
    role = call.person.role if call.person is not None else Role.ANYONE
    if request.abandon and role < Role.OWNER:
        why = "a record that is closed may be of machines that still cost money"
        raise AccessError("only an owner gives up machines", why, "ask one")
    rules = call.site.member_rules if role < Role.ADMIN else None
    return make_order_plan(request, project, force=role >= Role.OWNER, rules=rules)


def _find_subject(call: Call, request: PlanRequest) -> None:
    """Refuse what is not on record in the project of who asks: what else would refuse it suggests names of others.

    Raises:
        NotFoundError: There is no such cluster or run.
    """
    if request.verb == "launch":
        return
    with call.open_reader() as store:
        if request.verb != "resume":
            find_cluster(store, request.cluster)
            return
        name = request.run or request.cluster
        if store.last_run_of(name) is None and store.find_run(name) is None:
            raise NotFoundError(
                f"no cluster and no run called '{name}' is on record", suggest_run(store, name), "orch runs"
            )


def _confirm_plan(call: Call, request: OrderRequest) -> OrderPlan:
    plan = plan_for(call, request)
    plan.ready.raise_refusal()
    refuse_missing_trees(call, sorted(request.trees))
    if difference := describe_difference(request.plan, plan):
        raise PreconditionError(
            f"nothing was done: {difference}", "the plan is not the one you saw", "ask for it again"
        )
    return plan


def _choose_run_id(plan: OrderPlan, verb: str) -> str:
    if verb not in RUN_VERBS:
        return ""
    job = plan.ready.job
    return job.run_id if job is not None and job.run_id else new_run_id(plan.cluster)


def _fingerprint(request: OrderRequest) -> str:
    return hashlib.sha256(request.model_dump_json().encode()).hexdigest()
