"""The closed table of routes. What is not in it does not exist; what is in it has a role."""

from __future__ import annotations

from orchestrator.documents.comparison import MOST_COMPARED
from orchestrator.engine.state.sent_trees import TreeLimits
from orchestrator.service import (
    accuracy_page,
    budget_form,
    budgets,
    comparing,
    entry_pages,
    guide_page,
    health,
    host_access,
    order_pages,
    orders,
    page_values,
    project_settings,
    records,
    sent_files,
    spending,
    token_exchange,
    tokens,
)
from orchestrator.service.budget_form import BudgetForm
from orchestrator.service.budgets import BudgetRequest
from orchestrator.service.computer_tokens import ComputerForm, create_computer_token, show_computer_form
from orchestrator.service.drawing.chip_marks import MEASURES
from orchestrator.service.entry_pages import JoinForm, LinkForm, NameForm, SignOutForm
from orchestrator.service.job_output import show_output
from orchestrator.service.order_pages import LaunchForm, OrderForm
from orchestrator.service.output_waits import MOST_SECONDS
from orchestrator.service.plans import OrderRequest, PlanRequest
from orchestrator.service.route import Medium, Parameter, Role, Route
from orchestrator.store.order_records import ORDER_VERBS

_LIMIT = Parameter(name="limit", kind=int, default=100, least=1, most=1000, meaning="The most items.")
_BEFORE = Parameter(name="before", kind=float, meaning="Only runs whose newest job is older, in epoch seconds.")
_PROJECT = Parameter(name="project", default="", meaning="Only those of one project.")
_IN = Parameter(name="project", default="", meaning="The project of the cluster; yours without it.")
_OWNER = Parameter(name="owner", default="", meaning="Only those on clusters of one member.")
_AFTER = Parameter(name="after", kind=int, default=0, meaning="Only events past this number.")
_PROGRESS = Parameter(name="progress", kind=int, meaning="Progress past this number; from now on without it.")
_PAST = Parameter(name="after", default="", meaning="Only clusters whose names come later: NAME or PROJECT/NAME.")
_OUTPUT = (
    Parameter(name="project", default="", meaning="The project of the cluster; yours without it."),
    Parameter(name="job", kind=int, least=1, meaning="The job; the current one without it."),
    Parameter(name="uid", default="", meaning="The cluster's uid, where its name alone is not enough."),
    Parameter(name="host", kind=int, most=10_000, most_values=1000, meaning="A host; once for each, all without it."),
    Parameter(name="tail", kind=int, meaning="Begin with the last lines of each host."),
    Parameter(name="since", kind=int, meaning="Begin with what is at most so many seconds old."),
    Parameter(name="setup", default="no", choices=("yes", "no"), meaning="The output of the setup."),
    Parameter(name="wait", kind=int, default=0, most=MOST_SECONDS, meaning="Seconds to wait where nothing is new."),
    Parameter(name="begin", most_values=1000, meaning="FILE:BYTE where a file is read on; once for each file."),
)
_CLUSTER = Parameter(name="cluster", default="", meaning="Only those of one cluster.")
_RUN = Parameter(name="run", default="", meaning="Only this run.")
_ENDED = Parameter(name="ended", default="no", choices=("yes", "no"), meaning="Also those that have ended.")
_UNTIL = Parameter(name="before", kind=int, meaning="Only events below this number.")
_SCOPE = Parameter(
    name="scope",
    default="",
    choices=("", "project", "all"),
    meaning="project: those of the project that `project` names, or of yours; all: those of every project.",
)
_WHOSE = (_SCOPE, _PROJECT, _OWNER)
_POINTS = Parameter(name="points", kind=int, default=600, least=4, most=2000, meaning="The most points, about.")
_AXIS = Parameter(name="x", default="step", choices=("step", "time", "dollars"), meaning="The axis of the charts.")
_CHIPS = Parameter(name="chips", default="steps", choices=MEASURES, meaning="What the chips of a topology show.")
_VERB = Parameter(name="verb", choices=ORDER_VERBS[1:], default="down", meaning="The command.")
_JOB = Parameter(name="job", kind=int, least=1, meaning="The job to cancel; the newest running one without it.")
_NAME = Parameter(name="cluster", default="", longest=100, meaning="The cluster.")
_RUNS = Parameter(name="run", most_values=MOST_COMPARED, meaning="A run; once for each run that is compared.")
_BY = Parameter(
    name="by", default="owner", meaning="Of owner, project, cluster, run and day, with commas between them."
)
_SINCE = Parameter(name="since", default="30d", meaning="Only what was billed since: `24h`, `30d`, or `all`.")
_BUDGET = (
    Parameter(name="project", default="", meaning="The project of the budget; without it, that of all."),
    Parameter(name="member", default="", meaning="The member of the budget; without it, that of all."),
)
_ENTRY = (
    Parameter(name="name", default="", meaning="Of a token, invitation, sign-in or rule."),
    Parameter(name="member", default="", meaning="Everything with which this member enters."),
)
_KEY = Parameter(name="key", default="", meaning="The setting, as `orch config list` names it.")
_GUIDE = tuple(Parameter(name=name, default="", meaning=f"The answer to `{name}` of `orch init`.")
               for name in guide_page.KEYS)  # fmt: skip
_TARGET = Parameter(name="target", default="", meaning="The page to which it leads.")
_JSON, _PAGE, _TEXT, _EVENTS = Medium.JSON, Medium.PAGE, Medium.TEXT, Medium.EVENTS
_ANYONE, _VIEWER, _MEMBER = Role.ANYONE, Role.VIEWER, Role.MEMBER

ROUTES: tuple[Route, ...] = (
    Route(name="health", immediate=True, path="/healthz", role=_ANYONE, medium=_TEXT, handler=health.show_health,
          meaning="Whether the process lives."),
    Route(name="readiness", path="/readyz", role=_ANYONE, medium=_TEXT, handler=health.show_readiness,
          meaning="Whether the store can be read."),
    Route(name="metrics", path="/metrics", role=_VIEWER, medium=_TEXT, handler=health.show_metrics,
          meaning="Numbers for Prometheus."),
    Route(name="member", path="/v1/me", role=_VIEWER, medium=_JSON, schema="member", handler=records.show_member,
          parameters=(_IN,), meaning="Who asks, and what they may do."),
    Route(name="runs", path="/v1/runs", role=_VIEWER, medium=_JSON, schema="runs", handler=records.list_runs,
          parameters=(_LIMIT, _BEFORE, _CLUSTER, _RUN, *_WHOSE), meaning="The newest runs."),
    Route(name="run", path="/v1/runs/{run_id}", role=_VIEWER, medium=_JSON, schema="run", handler=records.show_run,
          meaning="One run with its attempts, checkpoints and costs."),
    Route(name="curves", path="/v1/runs/{run_id}/curves", role=_VIEWER, medium=_JSON, schema="curves",
          handler=records.show_curves, parameters=(_POINTS,), meaning="Loss, rate and cost of a run by step."),
    Route(name="measured", path="/v1/runs/{run_id}/measured", role=_VIEWER, medium=_JSON, schema="measured-run",
          handler=records.show_measured, meaning="What a run reached on its machines."),
    Route(name="compare", path="/v1/compare", role=_VIEWER, medium=_JSON, schema="comparison",
          handler=comparing.compare, parameters=(_RUNS,), meaning="Runs side by side: results and settings."),
    Route(name="clusters", path="/v1/clusters", role=_VIEWER, medium=_JSON, schema="status",
          handler=records.list_clusters, parameters=(_LIMIT, _PAST, *_WHOSE), meaning="The open clusters."),
    Route(name="cluster", path="/v1/clusters/{name}", role=_VIEWER, medium=_JSON, schema="status",
          handler=records.show_cluster, parameters=(_IN,), meaning="One cluster."),
    Route(name="job-output", path="/v1/clusters/{name}/logs", role=_VIEWER, medium=Medium.OUTPUT,
          schema="job-output", handler=show_output, parameters=_OUTPUT,
          meaning="The output of a job: a line of JSON about it, then for each part a line and its bytes."),
    Route(name="chips", path="/v1/clusters/{name}/chips", role=_VIEWER, medium=_JSON, schema="chips",
          handler=records.show_chips, parameters=(_IN,),
          meaning="Steps, heartbeats and chips of its hosts, as they are observed."),
    Route(name="access", path="/v1/clusters/{name}/access", method="POST", role=_MEMBER, medium=_JSON, schema="access",
          handler=host_access.grant_access, request=host_access.AccessRequest, parameters=(_IN,),
          meaning="Let a key log in to the hosts of a cluster for some hours; an engine writes it there."),
    Route(name="queue", path="/v1/queue", role=_VIEWER, medium=_JSON, schema="queue", handler=records.show_queue,
          parameters=(_CLUSTER, _ENDED, *_WHOSE), meaning="Jobs in their order, and pipelines."),
    Route(name="spend", sums=True, path="/v1/spend", role=_VIEWER, medium=_JSON, schema="spending",
          handler=spending.list_spending, parameters=(_BY, _SINCE, *_WHOSE),
          meaning="What machines have cost, summed."),
    Route(name="budgets", path="/v1/budgets", role=_VIEWER, medium=_JSON, schema="budgets",
          handler=budgets.list_budgets, meaning="What is used of each budget, and what is left."),
    Route(name="budget-set", path="/v1/budgets", method="PUT", role=Role.OWNER, medium=_JSON, schema="budgets",
          handler=budgets.set_budget, request=BudgetRequest, audit="budget",
          meaning="Set limits of a budget; those that are not named stay. Answers with this one."),
    Route(name="budget-remove", path="/v1/budgets", method="DELETE", role=Role.OWNER, medium=_JSON, schema="budgets",
          handler=budgets.remove_budget, parameters=_BUDGET, audit="budget", meaning="Remove a budget."),
    Route(name="tokens", path="/v1/tokens", role=_VIEWER, medium=_JSON, schema="tokens",
          handler=tokens.show_entries, meaning="What lets you into the service; to owners what lets anyone in."),
    Route(name="token-create", path="/v1/tokens", method="POST", role=_VIEWER, medium=_JSON, schema="tokens",
          handler=tokens.create_token, request=tokens.TokenRequest, audit="token",
          meaning="Make a token by its digest; for owners also one for others. Repeated, it stays the same one."),
    Route(name="token-revoke", path="/v1/tokens", method="DELETE", role=_VIEWER, medium=_JSON, schema="tokens",
          handler=tokens.revoke_entries, parameters=_ENTRY, audit="token",
          meaning="Take back what lets you in; for owners also what lets others in."),
    Route(name="invitation-create", path="/v1/invitations", method="POST", role=Role.OWNER, medium=_JSON,
          schema="tokens", handler=tokens.create_invitation, request=tokens.InvitationRequest, audit="invitation",
          meaning="Make an invitation by the digest of its link's end. Repeated, it stays the same one."),
    Route(name="settings", path="/v1/projects/{project}/settings", role=_MEMBER, medium=_JSON, schema="config-list",
          handler=project_settings.list_settings, meaning="As whom the clouds of a project are called."),
    Route(name="setting-set", path="/v1/projects/{project}/settings", method="PUT", role=Role.OWNER, medium=_JSON,
          schema="config-list", handler=project_settings.set_setting, request=project_settings.SettingRequest,
          audit="setting", meaning="Set as whom clouds are called, for machines that are made from now on."),
    Route(name="setting-remove", path="/v1/projects/{project}/settings", method="DELETE", role=Role.OWNER,
          medium=_JSON, schema="config-list", handler=project_settings.remove_setting, parameters=(_KEY,),
          audit="setting", meaning="Remove a setting of a project."),
    Route(name="events", path="/v1/events", role=_VIEWER, medium=_JSON, schema="events", handler=records.list_events,
          parameters=(_AFTER, _LIMIT, _CLUSTER, _IN), meaning="Events of the audit, oldest first."),
    Route(name="events-newest", path="/v1/events/newest", role=_VIEWER, medium=_JSON, schema="events",
          handler=records.list_newest_events, parameters=(_AFTER, _UNTIL, _LIMIT, _CLUSTER, *_WHOSE),
          meaning="The newest events of the audit, oldest first."),
    Route(name="capacity", path="/v1/capacity", role=_VIEWER, medium=_JSON, schema="capacity",
          handler=records.show_capacity, meaning="What requests for machines say of capacity."),
    Route(name="accuracy", computes=True, path="/v1/accuracy", role=_VIEWER, medium=_JSON, schema="accuracy",
          handler=accuracy_page.list_accuracy, meaning="What was estimated for runs, beside what was measured."),
    Route(name="records", path="/v1/records", role=_VIEWER, medium=_JSON, schema="records",
          handler=records.list_records, parameters=(_CLUSTER, _IN),
          meaning="The rows of clusters that a command on their hosts needs."),
    Route(name="event-stream", path="/v1/events/stream", role=_VIEWER, medium=_EVENTS, handler=None,
          parameters=(_AFTER, _PROGRESS),
          meaning="Events and progress as they happen; the header Last-Event-ID resumes after an event."),
    Route(name="plan", computes=True, path="/v1/plans", method="POST", role=_MEMBER, medium=_JSON, schema="order-plan",
          handler=orders.show_plan, request=PlanRequest, meaning="The plan of a command; nothing is done."),
    Route(name="order-create", computes=True, path="/v1/orders", method="POST", role=_MEMBER, medium=_JSON,
          schema="order", handler=orders.create_order, request=OrderRequest, keyed=True,
          meaning="Order what a plan shows. An engine carries it out; 412 when the plan would be another one now."),
    Route(name="tree", path="/v1/blobs/{digest}", role=_MEMBER, medium=_JSON, schema="tree",
          handler=sent_files.show_tree, meaning="Whether you have sent these files."),
    Route(name="tree-send", path="/v1/blobs/{digest}", method="PUT", role=_MEMBER, medium=_JSON, schema="tree",
          handler=sent_files.keep_tree, most_content=TreeLimits().archive_bytes,
          meaning="Send files of a launch, as orch packs them. Their digest is compared."),
    Route(name="orders", path="/v1/orders", role=_VIEWER, medium=_JSON, schema="orders", handler=orders.list_orders,
          parameters=(_LIMIT,), meaning="The newest orders."),
    Route(name="order", path="/v1/orders/{uid}", role=_VIEWER, medium=_JSON, schema="order",
          handler=orders.show_order, meaning="One order, and how it ended."),
    Route(name="token-exchange", path="/v1/tokens/exchange", method="POST", role=_ANYONE, medium=_JSON, oauth=True,
          schema="exchanged-token", handler=token_exchange.exchange_token, request=token_exchange.ExchangeForm,
          meaning="A token for a job of CI, for the OIDC token of an issuer that a rule trusts (RFC 8693)."),
    Route(name="computer-token-page", path="/token", role=_VIEWER, medium=_PAGE, handler=show_computer_form,
          meaning="The page on which a person makes a token for a computer."),
    Route(name="computer-token", path="/token", method="POST", role=_VIEWER, medium=_PAGE,
          handler=create_computer_token, request=ComputerForm, meaning="Make a token for a computer; shown once."),
    Route(name="login-page", path="/login", role=_ANYONE, medium=_PAGE, handler=entry_pages.show_login,
          parameters=(_TARGET,), meaning="How to sign in."),
    Route(name="login", path="/login", method="POST", role=_ANYONE, medium=_PAGE, handler=entry_pages.open_link,
          request=LinkForm, meaning="Open a session by the secret of a link."),
    Route(name="join-page", path="/join", role=_ANYONE, medium=_PAGE, handler=entry_pages.show_invitation,
          meaning="The page of an invitation; to open it changes nothing."),
    Route(name="join", path="/join", method="POST", role=_ANYONE, medium=_PAGE,
          handler=entry_pages.accept_invitation, request=JoinForm, meaning="Accept an invitation."),
    Route(name="choose-name", path="/sign-in/name", method="POST", role=_ANYONE, medium=_PAGE,
          handler=entry_pages.choose_name, request=NameForm, meaning="Choose a name at the first sign-in."),
    Route(name="sign-out", path="/sign-out", method="POST", role=_VIEWER, medium=_PAGE, handler=entry_pages.sign_out,
          request=SignOutForm, meaning="End the session."),
    Route(name="runs-page", path="/", role=_VIEWER, medium=_PAGE, handler=page_values.show_runs,
          parameters=(_LIMIT, _BEFORE, _PROJECT, _OWNER), meaning="The page of runs."),
    Route(name="run-page", path="/runs/{run_id}", role=_VIEWER, medium=_PAGE, handler=page_values.show_run,
          parameters=(_AXIS, _CHIPS), meaning="The page of one run."),
    Route(name="compare-page", path="/compare", role=_VIEWER, medium=_PAGE, handler=comparing.show_comparison,
          parameters=(_RUNS, _AXIS), meaning="The page that compares runs."),
    Route(name="clusters-page", path="/clusters", role=_VIEWER, medium=_PAGE, handler=page_values.show_clusters,
          parameters=(_LIMIT, _PAST, _PROJECT, _OWNER), meaning="The page of clusters."),
    Route(name="cluster-page", path="/clusters/{name}", role=_VIEWER, medium=_PAGE, handler=page_values.show_cluster,
          parameters=(_CHIPS, _IN), meaning="The page of one cluster."),
    Route(name="queue-page", path="/queue", role=_VIEWER, medium=_PAGE, handler=page_values.show_queue,
          meaning="The page of the queue."),
    Route(name="launch-page", path="/launch", role=_MEMBER, medium=_PAGE, handler=order_pages.show_launch_form,
          meaning="The form of a launch."),
    Route(name="launch-plan-page", computes=True, path="/launch", method="POST", role=_MEMBER, medium=_PAGE,
          handler=order_pages.show_launch_plan, request=LaunchForm, meaning="The plan of a launch."),
    Route(name="guide-page", computes=True, path="/new", role=_MEMBER, medium=_PAGE, handler=guide_page.show_guide,
          parameters=_GUIDE, meaning="The questions that lead to a task file."),
    Route(name="order-form-page", computes=True, path="/order", role=_MEMBER, medium=_PAGE,
          handler=order_pages.show_plan_of_command, parameters=(_VERB, _NAME, _JOB),
          meaning="The plan of a command, with the button that orders it."),
    Route(name="order-create-page", computes=True, path="/order", method="POST", role=_MEMBER, medium=_PAGE,
          handler=order_pages.create_order, request=OrderForm, keyed=True, meaning="Order what the plan shows."),
    Route(name="order-page", path="/orders/{uid}", role=_VIEWER, medium=_PAGE, handler=order_pages.show_order,
          meaning="The page of one order."),
    Route(name="spend-page", sums=True, path="/spend", role=_VIEWER, medium=_PAGE,
          handler=budget_form.show_spending, parameters=(_BY, _SINCE, _PROJECT, _OWNER), meaning="The page of costs."),
    Route(name="budget-set-page", path="/spend", method="POST", role=Role.OWNER, medium=_PAGE,
          handler=budget_form.set_budget_on_page, request=BudgetForm, parameters=(_BY, _SINCE, _PROJECT, _OWNER),
          meaning="Set limits of a budget."),
    Route(name="accuracy-page", computes=True, path="/accuracy", role=_VIEWER, medium=_PAGE,
          handler=accuracy_page.show_accuracy, parameters=(_PROJECT, _OWNER),
          meaning="The page of what was estimated for runs, beside what was measured."),
    Route(name="events-page", path="/events", role=_VIEWER, medium=_PAGE, handler=page_values.show_events,
          parameters=(_LIMIT, _CLUSTER, _IN), meaning="The page of events."),
)  # fmt: skip
