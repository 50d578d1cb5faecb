"""Plans and orders: what a member asks for is shown first, and then carried out by an engine."""

from __future__ import annotations

import hashlib

from orchestrator.engine.state.names import new_run_id
from orchestrator.errors import OrchError
from orchestrator.exits import Exit
from orchestrator.service.plans import OrderPlan, OrderRequest, PlanRequest, describe_difference, make_order_plan
from orchestrator.service.route import Answer, Call, Role
from orchestrator.store.order_records import OrderRecord, make_order_uid
from orchestrator.summaries.orders import order_as_json, orders_as_json

RUN_VERBS = ("launch", "resume")


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
    document = {
        "version": 1,
        "kind": "order-plan",
        "verb": request.verb,
        "cluster": plan.cluster,
        "plan": plan.digest,
        "price_per_hour": plan.price_per_hour,
        "text": plan.text,
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
    with call.site.open_reader() as store:
        return Answer(document=order_as_json(store.order(call.path["uid"])))


def list_orders(call: Call) -> Answer:
    """Answer with the newest orders."""
    with call.site.open_reader() as store:
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
    with call.site.open_reader() as reader:
        known = reader.find_order(uid)
    if known is None:
        plan = _confirm_plan(call, request)
        order = OrderRecord(
            uid=uid,
            project=call.site.project,
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
        with call.site.open_store(request.verb) as store:
            known = store.open_order(order)
    if known.fingerprint != fingerprint:
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
    return make_order_plan(request, call.site.project, force=call.person is not None and call.person.role >= Role.OWNER)


def _confirm_plan(call: Call, request: OrderRequest) -> OrderPlan:
    plan = plan_for(call, request)
    plan.ready.raise_refusal()
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
