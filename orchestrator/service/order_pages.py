"""Pages that change something: each shows the plan first, in the words of the command line, and then one button."""

from __future__ import annotations

import secrets
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.errors import OrchError
from orchestrator.service.orders import PreconditionError, open_order, plan_for
from orchestrator.service.plans import OrderPlan, OrderRequest, PlanRequest
from orchestrator.service.problems import find_http_status
from orchestrator.service.route import Answer, Call
from orchestrator.task.yaml_reader import LARGEST_BYTES

_EXAMPLE = """\
name: mine
resources:
  infra: local:1
run: |
  echo hello
"""


class LaunchForm(BaseModel):
    """The form of a launch."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: str = Field(default="", max_length=LARGEST_BYTES)
    cluster: str = Field(default="", max_length=100)
    down: bool = False


class OrderForm(OrderRequest):
    """The form below a plan. An empty field is one that was left out."""


def show_launch_form(call: Call) -> Answer:
    """Show the form of a launch."""
    form = LaunchForm(task=_EXAMPLE)
    return Answer(template="launch.html", values={"form": form, "error": None, "form_token": call.form_token})


def show_launch_plan(call: Call) -> Answer:
    """Show the plan of a launch, or its form again with what is wrong with it."""
    form: LaunchForm = call.body
    request = PlanRequest(verb="launch", task=form.task, cluster=form.cluster, down=form.down)
    try:
        return _show_plan(call, request, plan_for(call, request))
    except OrchError as error:
        values = {"form": form, "error": error, "form_token": call.form_token}
        return Answer(template="launch.html", values=values, status=find_http_status(error))


def show_plan_of_command(call: Call) -> Answer:
    """Show the plan of a command for a cluster that exists."""
    query = call.query
    request = PlanRequest(verb=query["verb"], cluster=query["cluster"], job=query["job"])
    return _show_plan(call, request, plan_for(call, request))


def create_order(call: Call) -> Answer:
    """Record the order and lead to its page; show the present plan where it is another one than the member saw."""
    form: OrderForm = call.body
    try:
        return Answer(location=f"/orders/{open_order(call).uid}", status=303)
    except PreconditionError as error:
        request = PlanRequest(**form.model_dump(exclude={"plan"}))
        return _show_plan(call, request, plan_for(call, request), error)


def show_order(call: Call) -> Answer:
    """Show one order."""
    with call.open_reader() as store:
        order = store.order(call.path["uid"])
        run = store.find_run(order.run_id) if order.run_id else None
    values = {"order": order, "run": run[1].run_id if run is not None else "", "now": call.site.now()}
    return Answer(template="order.html", values=values)


def _show_plan(call: Call, request: PlanRequest, plan: OrderPlan, changed: OrchError | None = None) -> Answer:
    fields: dict[str, Any] = request.model_dump(exclude_defaults=True) | {"plan": plan.digest}
    values = {
        "plan": plan,
        "request": request,
        "fields": fields,
        "changed": changed,
        "refusal": plan.ready.refusal(),
        "key": secrets.token_urlsafe(16),
        "form_token": call.form_token,
    }
    return Answer(template="plan.html", values=values, status=412 if changed else 200)
