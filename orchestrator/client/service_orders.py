"""Orders that a service carries out. The store of this computer is not opened."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from orchestrator.client.http import Client, Plan, explain_refusals
from orchestrator.client.order_end import await_end
from orchestrator.client.orders import Costs, HostCommand, Order, OrderCalls, PlanChangedError, PlannedOrder
from orchestrator.client.sent_files import NamedFiles, name_files, name_folder, send_files
from orchestrator.client.transport import ServiceError, read_exit_status
from orchestrator.errors import ConflictError, OrchError, UserError
from orchestrator.formatting import format_price

if TYPE_CHECKING:
    from orchestrator.client.transport import Document
    from orchestrator.engine.preparation.prepared import CommandResult
    from orchestrator.engine.progress import DescribedNarrator
    from orchestrator.plan.preview import PreviewFormat
    from orchestrator.task.parse import TaskFile

_MOST_TRIES = 8  # to order, when files are missing each time
_MACHINE_OPTIONS = ("infra", "use_spot", "num_nodes", "disk_size", "image_id")  # engine/preparation/cluster_match.py


class ServicePlan(PlannedOrder):
    """The plan that a service made.

    Attributes:
        order: What was asked for.
        plan: The answer.
        files: The task of a launch, and the files that it needs; None for other orders.
    """

    def __init__(self, order: Order, plan: Plan, files: NamedFiles | None) -> None:
        """Take a plan of a service.

        Args:
            order: What was asked for.
            plan: The answer.
            files: The task of a launch, and the files that it needs.
        """
        document = plan.document
        self.order, self.plan, self.files = order, plan, files
        self.verb, self.cluster = order.verb, str(document["cluster"])
        notes = order.file.notes if order.file is not None else ()
        self.notes = (*notes, *(files.notes.notes if files is not None else ()), *document["notes"])
        self.doubts = files.notes.doubts if files is not None else ()
        self.ends = tuple(document["ends"])
        self.idle = document.get("idle") or ""
        self.has_run = order.verb in ("launch", "resume")

    @property
    def refusal(self) -> OrchError | None:
        refused = self.plan.document["steps"].get("refusal")
        return None if refused is None else _read_refusal(refused)

    @property
    def expected_status(self) -> int:
        return int(self.plan.document["steps"]["ending"]["status"])

    def list_doubtful(self) -> list[str]:
        return [
            *(f"note: {note}" for note in self.notes),
            *(f"warning: {doubt}" for doubt in self.doubts),
            *(f"transfer {one}" for one in self.plan.document["transfers"]),
        ]

    def render(self, form: PreviewFormat, *, verbose: bool, width: int, command: str | None) -> str:
        steps = self.plan.document["steps"]
        if form == "sh":
            step = "-v shows every request and script, -o json for programs"
            raise UserError("-o sh does not work through a service", "it makes no shell scripts", step)
        if form == "json":
            text = json.dumps({**steps, "command": command}, indent=2) + "\n"
        else:
            text = str(self.plan.document["details" if verbose else "text"])
            if command is not None and self.refusal is None and any(step["do"] != "wait" for step in steps["steps"]):
                text += "" if verbose else "Details: -v (requests, scripts), -o json (for programs)\n"
                text += f"To do it: {command or 'the same command without --dry-run'}\n"
        return self.files.show_paths(text) if self.files is not None else text

    def render_head(self, width: int) -> str:
        return str(self.plan.document["head"])


class ServiceOrders(OrderCalls):
    """Sends orders to a service, whose engine carries them out."""

    def __init__(self, client: Client) -> None:
        """Take a client, which the caller closes.

        Args:
            client: Of the service.
        """
        self._client = client

    elsewhere = True

    def plan(self, order: Order) -> ServicePlan:
        self._refuse_here_only(order)
        files = None
        if order.file is not None:
            self._refuse_task(order.file)
            files = name_files(order.file.only)
        elif order.command is not None:
            _refuse_likely_secrets(order.command)
            files = name_folder(order.command) if order.command.workdir is not None else None
        with explain_refusals(self._client):
            plan = self._client.make_plan(order.verb, **_make_request(order, files))
        if (owner := plan.document["owner"]) and not order.force:
            what = f"cluster '{plan.document['cluster']}' belongs to {owner}"
            raise ConflictError(what, "", "if that is meant: the same with --force")
        return ServicePlan(order, plan, files)

    def find_costs(self, planned: PlannedOrder) -> tuple[PlannedOrder, Costs]:
        document = _of_service(planned).plan.document
        large = bool(document.get("asks_transfers"))
        return planned, Costs(rented=document["cost"] or "", transfers=tuple(document["transfers"]), large=large)

    def record_ends(self, cluster: str, narrator: DescribedNarrator) -> None:
        """Do nothing: the service's engine follows every job."""

    def carry_out(self, planned: PlannedOrder, narrator: DescribedNarrator, *, follow: bool) -> CommandResult:
        client = self._client
        # Events are followed before it is ordered, so that none of them is missed.
        with explain_refusals(client), client.follow_events() as events:
            try:
                order = self._send(_of_service(planned), narrator)
            except KeyboardInterrupt:
                raise OrchError(
                    "interrupted while it was ordered",
                    "the service may have the order",
                    f"{client.url}/events   shows it",
                ) from None
            deletes = _of_service(planned).order.down
            return await_end(client, events, order, planned, narrator, follow=follow, deletes=deletes)

    def _refuse_here_only(self, order: Order) -> None:
        """Refuse options that an order cannot have, before anything is sent."""
        for name, given in order.here_only.items():
            if given:
                step = f"leave {name} out, or without the service: unset ORCH_SERVER"
                if name == "--no-down":
                    step = "launch it again without --down, or: unset ORCH_SERVER"
                raise UserError(f"{name} does not work through a service", f"ORCH_SERVER is {self._client.url}", step)

    @staticmethod
    def _refuse_task(file: TaskFile) -> None:
        if len(file.tasks) > 1:
            why = f"{file.file} has {len(file.tasks)} tasks, and an order is about one"
            step = "launch each task from its own file, or without the service: unset ORCH_SERVER"
            raise UserError("a pipeline does not work through a service", why, step)
        if file.local_by_default:
            why = "through a service nothing runs on this computer"
            raise UserError("no machine is requested", why, "name one: --infra CLOUD, or `resources` in the task file")
        _refuse_secret_values(file)

    def _send(self, planned: ServicePlan, narrator: DescribedNarrator) -> Document:
        """Order what a plan shows, and return the order. Files are sent first where the service lacks them."""
        trees = planned.files.trees if planned.files is not None else {}
        for _ in range(_MOST_TRIES):
            try:
                return self._client.order(planned.plan)
            except ServiceError as error:
                if error.code == "plan-changed":
                    now = self.plan(planned.order)
                    raise PlanChangedError(error.what, now, _describe_rise(planned, now)) from error
                missing = sorted(set(error.trees) & set(trees)) if error.code == "files-missing" else []
                if not missing:
                    raise
                for name in missing:
                    send_files(self._client, name, trees[name], narrator)
        raise ConflictError("it was not ordered", "the service lacks its files each time", "the same command again")


def _refuse_secret_values(file: TaskFile) -> None:
    """Refuse values of secrets: a secret stays where it is, and the service has others."""
    written = file.layers[0].data.get("secrets")
    values = cast("dict[str, Any]", written) if isinstance(written, dict) else {}
    for name, value in values.items():
        if value is not None:
            why = "values of secrets are never sent to a service, which has others"
            step = f"name it without a value, --secret {name}, where the service has it; or: unset ORCH_SERVER"
            raise UserError(f"the value of secret {name} stays on this computer", why, step)


def _refuse_likely_secrets(command: HostCommand) -> None:
    """Refuse variables that are secrets, or look like it: an order is kept on record."""
    for name, value in command.env:
        if value.is_secret:
            why = "it is a secret, or looks like one, and an order is kept on record"
            step = f"leave {name} out, or take your own connection: orch ssh CLUSTER -- COMMAND"
            raise UserError(f"the value of {name} stays on this computer", why, step)


def _of_service(planned: PlannedOrder) -> ServicePlan:
    if not isinstance(planned, ServicePlan):
        raise TypeError("the plan is not that of a service")
    return planned


def _make_request(order: Order, files: NamedFiles | None) -> dict[str, Any]:
    """Return the arguments of Client.make_plan beside the verb."""
    request: dict[str, Any] = {
        "cluster": order.cluster,
        "job": order.job,
        "run": order.run,
        "down": order.down,
        "abandon": order.abandon,
    }
    if files is not None:
        given = {name: order.options[name] for name in _MACHINE_OPTIONS if order.options.get(name) is not None}
        request |= {"task": files.task, "trees": files.described}
        request |= {"machine_options": {name: value is not False for name, value in given.items()}}
    if order.command is not None:
        request |= {
            "command": order.command.line,
            "hosts": order.command.hosts,
            "env": {name: value.reveal() for name, value in order.command.env},
            "workdir": next(iter(files.trees)) if files is not None else "",
            "devices": order.command.devices,
        }
    return request


def _describe_rise(seen: ServicePlan, now: ServicePlan) -> str:
    """Return from which price to which one a plan rose; "" where it costs no more."""
    before, after = seen.plan.document["price_per_hour"], now.plan.document["price_per_hour"]
    if after == before or (after is not None and before is not None and after < before):
        return ""
    return f"the price rose from {format_price(before)} to {format_price(after)}"


def _read_refusal(refusal: Mapping[str, Any]) -> OrchError:
    error = OrchError(str(refusal["what"]), str(refusal["why"]), str(refusal["next_step"]))
    error.code, error.exit_status = str(refusal["code"]), read_exit_status(refusal["status"])
    return error
