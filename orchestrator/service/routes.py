"""The closed table of routes. What is not in it does not exist; what is in it has a role."""

from __future__ import annotations

from orchestrator.service import comparing, health, order_pages, orders, page_values, records, spending
from orchestrator.service.order_pages import LaunchForm, OrderForm
from orchestrator.service.plans import OrderRequest, PlanRequest
from orchestrator.service.route import Medium, Parameter, Role, Route
from orchestrator.store.order_records import ORDER_VERBS
from orchestrator.summaries.comparison import MOST_COMPARED

_LIMIT = Parameter(name="limit", kind=int, default=100, least=1, most=1000, meaning="The most items.")
_BEFORE = Parameter(name="before", kind=float, meaning="Only runs whose newest job is older, in epoch seconds.")
_PROJECT = Parameter(name="project", default="", meaning="Only those of one project.")
_OWNER = Parameter(name="owner", default="", meaning="Only those on clusters of one member.")
_AFTER = Parameter(name="after", kind=int, default=0, meaning="Only events past this number.")
_CLUSTER = Parameter(name="cluster", default="", meaning="Only those of one cluster.")
_POINTS = Parameter(name="points", kind=int, default=600, least=4, most=2000, meaning="The most points, about.")
_AXIS = Parameter(name="x", default="step", choices=("step", "time", "dollars"), meaning="The axis of the charts.")
_VERB = Parameter(name="verb", choices=ORDER_VERBS[1:], default="down", meaning="The command.")
_JOB = Parameter(name="job", kind=int, least=1, meaning="The job to cancel; the newest running one without it.")
_NAME = Parameter(name="cluster", default="", meaning="The cluster.")
_RUNS = Parameter(name="run", most_values=MOST_COMPARED, meaning="A run; once for each run that is compared.")
_BY = Parameter(
    name="by", default="owner", meaning="Of owner, project, cluster, run and day, with commas between them."
)
_SINCE = Parameter(name="since", default="30d", meaning="Only what was billed since: `24h`, `30d`, or `all`.")
_JSON, _PAGE, _TEXT, _EVENTS = Medium.JSON, Medium.PAGE, Medium.TEXT, Medium.EVENTS
_ANYONE, _VIEWER, _MEMBER = Role.ANYONE, Role.VIEWER, Role.MEMBER

ROUTES: tuple[Route, ...] = (
    Route(name="health", path="/healthz", role=_ANYONE, medium=_TEXT, handler=health.show_health,
          meaning="Whether the process lives."),
    Route(name="readiness", path="/readyz", role=_ANYONE, medium=_TEXT, handler=health.show_readiness,
          meaning="Whether the store can be read."),
    Route(name="metrics", path="/metrics", role=_VIEWER, medium=_TEXT, handler=health.show_metrics,
          meaning="Numbers for Prometheus."),
    Route(name="member", path="/v1/me", role=_VIEWER, medium=_JSON, schema="member", handler=records.show_member,
          meaning="Who asks, and what they may do."),
    Route(name="runs", path="/v1/runs", role=_VIEWER, medium=_JSON, schema="runs", handler=records.list_runs,
          parameters=(_LIMIT, _BEFORE, _PROJECT, _OWNER), meaning="The newest runs."),
    Route(name="run", path="/v1/runs/{run_id}", role=_VIEWER, medium=_JSON, schema="run", handler=records.show_run,
          meaning="One run with its attempts, checkpoints and costs."),
    Route(name="curves", path="/v1/runs/{run_id}/curves", role=_VIEWER, medium=_JSON, schema="curves",
          handler=records.show_curves, parameters=(_POINTS,), meaning="Loss, rate and cost of a run by step."),
    Route(name="compare", path="/v1/compare", role=_VIEWER, medium=_JSON, schema="comparison",
          handler=comparing.compare, parameters=(_RUNS,), meaning="Runs side by side: results and settings."),
    Route(name="clusters", path="/v1/clusters", role=_VIEWER, medium=_JSON, schema="status",
          handler=records.list_clusters, parameters=(_PROJECT, _OWNER), meaning="The open clusters."),
    Route(name="cluster", path="/v1/clusters/{name}", role=_VIEWER, medium=_JSON, schema="status",
          handler=records.show_cluster, meaning="One cluster."),
    Route(name="queue", path="/v1/queue", role=_VIEWER, medium=_JSON, schema="queue", handler=records.show_queue,
          meaning="Jobs and pipelines that have not ended."),
    Route(name="spend", path="/v1/spend", role=_VIEWER, medium=_JSON, schema="spending",
          handler=spending.list_spending, parameters=(_BY, _SINCE, _PROJECT, _OWNER),
          meaning="What machines have cost, summed."),
    Route(name="events", path="/v1/events", role=_VIEWER, medium=_JSON, schema="events", handler=records.list_events,
          parameters=(_AFTER, _LIMIT, _CLUSTER), meaning="Events of the audit, oldest first."),
    Route(name="event-stream", path="/v1/events/stream", role=_VIEWER, medium=_EVENTS, handler=None,
          parameters=(_AFTER,), meaning="Events as they happen; the header Last-Event-ID resumes after one."),
    Route(name="plan", path="/v1/plans", method="POST", role=_MEMBER, medium=_JSON, schema="order-plan",
          handler=orders.show_plan, request=PlanRequest, meaning="The plan of a command; nothing is done."),
    Route(name="order-create", path="/v1/orders", method="POST", role=_MEMBER, medium=_JSON, schema="order",
          handler=orders.create_order, request=OrderRequest, keyed=True,
          meaning="Order what a plan shows. An engine carries it out; 412 when the plan would be another one now."),
    Route(name="orders", path="/v1/orders", role=_VIEWER, medium=_JSON, schema="orders", handler=orders.list_orders,
          parameters=(_LIMIT,), meaning="The newest orders."),
    Route(name="order", path="/v1/orders/{uid}", role=_VIEWER, medium=_JSON, schema="order",
          handler=orders.show_order, meaning="One order, and how it ended."),
    Route(name="runs-page", path="/", role=_VIEWER, medium=_PAGE, handler=page_values.show_runs,
          parameters=(_LIMIT, _BEFORE, _PROJECT, _OWNER), meaning="The page of runs."),
    Route(name="run-page", path="/runs/{run_id}", role=_VIEWER, medium=_PAGE, handler=page_values.show_run,
          parameters=(_AXIS,), meaning="The page of one run."),
    Route(name="compare-page", path="/compare", role=_VIEWER, medium=_PAGE, handler=comparing.show_comparison,
          parameters=(_RUNS, _AXIS), meaning="The page that compares runs."),
    Route(name="clusters-page", path="/clusters", role=_VIEWER, medium=_PAGE, handler=page_values.show_clusters,
          parameters=(_PROJECT, _OWNER), meaning="The page of clusters."),
    Route(name="cluster-page", path="/clusters/{name}", role=_VIEWER, medium=_PAGE, handler=page_values.show_cluster,
          meaning="The page of one cluster."),
    Route(name="queue-page", path="/queue", role=_VIEWER, medium=_PAGE, handler=page_values.show_queue,
          meaning="The page of the queue."),
    Route(name="launch-page", path="/launch", role=_MEMBER, medium=_PAGE, handler=order_pages.show_launch_form,
          meaning="The form of a launch."),
    Route(name="launch-plan-page", path="/launch", method="POST", role=_MEMBER, medium=_PAGE,
          handler=order_pages.show_launch_plan, request=LaunchForm, meaning="The plan of a launch."),
    Route(name="order-form-page", path="/order", role=_MEMBER, medium=_PAGE, handler=order_pages.show_plan_of_command,
          parameters=(_VERB, _NAME, _JOB), meaning="The plan of a command, with the button that orders it."),
    Route(name="order-create-page", path="/order", method="POST", role=_MEMBER, medium=_PAGE,
          handler=order_pages.create_order, request=OrderForm, keyed=True, meaning="Order what the plan shows."),
    Route(name="order-page", path="/orders/{uid}", role=_VIEWER, medium=_PAGE, handler=order_pages.show_order,
          meaning="The page of one order."),
    Route(name="spend-page", path="/spend", role=_VIEWER, medium=_PAGE, handler=spending.show_spending,
          parameters=(_BY, _SINCE, _PROJECT, _OWNER), meaning="The page of costs."),
    Route(name="events-page", path="/events", role=_VIEWER, medium=_PAGE, handler=page_values.show_events,
          parameters=(_LIMIT, _CLUSTER), meaning="The page of events."),
)  # fmt: skip
