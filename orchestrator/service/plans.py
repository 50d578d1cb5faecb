"""The plan of an order: what a member sees before anything is done, and what has to be the same when it is done.

A plan is a function of the request and of the records, so it is not stored. Its digest has five parts: the cluster, the
machines, their price, the steps with every request, and what large transfers cost. An order names the digest of the
plan that the member saw; the plan is made again then, and a part that is another one is named. A lower price is no
difference.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, field_validator

from orchestrator.engine.operations.orders import prepare_order
from orchestrator.engine.operations.transfers import Transfer, is_large, learn_buckets_within, list_launch_transfers
from orchestrator.engine.preparation.ownership import refuse_other_owner
from orchestrator.engine.preparation.prepared import PreparedCommand
from orchestrator.engine.preparation.spending import describe_cost, list_machines_to_pay
from orchestrator.engine.preparation.trees import DescribedTree
from orchestrator.engine.state.recorded import open_reader
from orchestrator.errors import UserError
from orchestrator.formatting import format_price
from orchestrator.plan.actions import CreateSlice, StartSlice
from orchestrator.plan.desired import Cancel, Run
from orchestrator.plan.dry_run import Plan, make_plan
from orchestrator.plan.preview import render_head, render_plan
from orchestrator.plan.preview_format import describe_idle
from orchestrator.plan.preview_json import render_json
from orchestrator.project import qualify_name
from orchestrator.remote.tree import Tree, TreeFile
from orchestrator.service.member_rules import MemberRules
from orchestrator.setup_guide.clouds import choose_machines_here
from orchestrator.task.config import load_config
from orchestrator.task.errors import InvalidValueError
from orchestrator.task.model import Task
from orchestrator.task.parse import parse_task
from orchestrator.task.sent_tree import SCHEME, list_sent_trees, parse_sent_tree
from orchestrator.task.yaml_reader import LARGEST_BYTES

_WIDTH = 100
_PRICES = ("price_per_hour", "price_note", "dollars")
_PARTS = ("the cluster", "the machines", "the price", "the steps", "the transfers")
BUCKET_SECONDS = 10.0  # that a plan waits at most for the place and size of buckets that no plan had before
_AMOUNTS = ("the price", "the transfers")
MachineOption = Literal["infra", "use_spot", "num_nodes", "disk_size", "image_id"]
Verb = Literal["launch", "resume", "exec", "cancel", "stop", "start", "down"]
_MOST_BYTES = 1 << 20  # of a command and its variables


class TreeDescription(BaseModel):
    """What a plan needs to know of files that the member has, or has sent."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    files: int = Field(ge=0, le=10**9, description="How many files it has.")
    bytes: int = Field(ge=0, le=2**53, description="Of all files.")
    decisive: dict[str, str] = Field(
        default={}, max_length=5_000, description="SHA-256 by path, of the files that decide whether setup runs again."
    )


class PlanRequest(BaseModel):
    """What a member asks for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    verb: Verb = Field(description="The command.")
    project: str = Field(default="", max_length=40, description="The project of the cluster; yours without it.")
    cluster: str = Field(default="", max_length=100, description="The cluster; of a launch, in place of the task's.")
    job: int | None = Field(default=None, ge=1, description="The job to cancel; the newest running one without it.")
    down: bool = Field(default=False, description="Whether a launch or resume deletes the machines when it ends.")
    abandon: bool = Field(default=False, description="Whether `down` gives up machines that do not answer; for owners.")
    run: str = Field(default="", max_length=200, description="The run to resume; the last of the cluster without it.")
    task: str = Field(default="", max_length=LARGEST_BYTES, description="The task file of a launch, as YAML.")
    command: str = Field(default="", max_length=_MOST_BYTES, description="The line for the shell of an exec.")
    hosts: list[Annotated[int, Field(ge=0, lt=1_000_000)]] | None = Field(
        default=None, min_length=1, max_length=100_000, description="Ranks of an exec; all hosts without it."
    )
    env: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=200)], str] = Field(
        default={}, max_length=1000, description="Variables of an exec. They are kept on record: no secrets."
    )
    workdir: str = Field(
        default="", max_length=100, description="The folder that an exec sends first, `orch-tree:DIGEST`; see `trees`."
    )
    devices: bool = Field(default=False, description="Whether an exec sends the bundled trainer, to list devices.")
    machine_options: dict[MachineOption, bool] = Field(
        default={}, description="Options that the command line contains; refused for a cluster with other machines."
    )
    trees: dict[str, TreeDescription] = Field(
        default={}, max_length=100, description="Of each `orch-tree:` that the task names: what is in it."
    )

    @field_validator("task")
    @classmethod
    def _use_line_feeds(cls, text: str) -> str:
        return text.replace("\r\n", "\n")  # which forms send


class OrderRequest(PlanRequest):
    """What a member asks for, with the plan that they saw."""

    plan: str = Field(min_length=1, max_length=200, description="The digest of the plan.")


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderPlan:
    """The plan of an order.

    Attributes:
        cluster: The name of the cluster.
        project: The project of the cluster.
        arguments: What the order keeps beside verb and cluster; see engine/unattended/orders.py.
        digest: Of the plan.
        steps: The plan as a document, as `-o json` prints it.
        text: The plan for people.
        details: The same with every request and script.
        price_per_hour: Of the machines that it may begin to pay for; 0 for none, None when not known.
        notes: Lines to show with it.
        cost: What it may begin to pay, in one line; "" for nothing.
        transfers: What is read from other regions, with its cost, a line each.
        asks_transfers: Whether they cost so much that the member is asked.
        head: The first lines of the text, to be shown above a question about the cost.
        owner: To whom the cluster belongs, where that is another member; else "".
        idle: What the machines do by themselves when they are idle; "" for nothing.
    """

    cluster: str
    project: str
    arguments: str
    digest: str
    steps: Mapping[str, Any]
    text: str
    details: str
    price_per_hour: float | None
    notes: tuple[str, ...]
    cost: str
    transfers: tuple[str, ...]
    asks_transfers: bool
    head: str
    owner: str
    idle: str
    ready: PreparedCommand


def make_order_plan(
    request: PlanRequest, project: str, *, force: bool = False, rules: MemberRules | None = None
) -> OrderPlan:
    """Return the plan of a request. Sends nothing and changes nothing.

    Args:
        request: What a member asks for.
        project: In which clusters are found.
        force: Whether the member may change clusters of other members.
        rules: What the task may use of this computer; None for everything.

    Raises:
        OrchError: The request cannot be planned.
    """
    if request.verb != "launch" and not (request.cluster or (request.verb == "resume" and request.run)):
        raise UserError(f"`{request.verb}` needs a cluster", "", "name it in `cluster`")
    arguments: dict[str, Any] = {"down": request.down} if request.verb in ("launch", "resume") else {}
    kept: dict[str, DescribedTree] = {}
    if request.verb == "launch":
        arguments["task"] = _read_task(request.task, rules, project)
        kept = _describe_trees(arguments["task"], request)
    if request.verb == "down" and request.abandon:
        arguments["abandon"] = True
    if request.verb == "exec":
        arguments |= _describe_command(request)
        kept = _describe_sent({"workdir": arguments["workdir"]} if arguments["workdir"] else {}, request)
    if request.verb == "cancel":
        arguments["job"] = request.job
    if request.verb == "resume" and request.run:
        arguments["run"] = request.run
    if force and request.verb not in ("launch", "resume"):
        arguments["force"] = True
    ready = prepare_order(request.verb, request.cluster, arguments, project, kept)
    if learn_buckets_within(ready, BUCKET_SECONDS):
        ready = prepare_order(request.verb, request.cluster, arguments, project, kept)
    ready = ready.refuse_options({str(name): value for name, value in request.machine_options.items()})
    owner = _name_subject(ready, arguments, project, force=force)
    plan, refusal = make_plan(ready.desired, ready.recorded, ready.facts), ready.refusal()
    document = json.loads(render_json(plan, advice=ready.advice, refusal=refusal))
    price = _find_price(ready, plan)
    transfers = list_launch_transfers(ready, reads_bucket=False)
    subject = f"{qualify_name(project, ready.cluster)} {arguments.get('uid', '')}"
    return OrderPlan(
        cluster=ready.cluster,
        project=project,
        arguments=json.dumps(arguments, sort_keys=True),
        digest=_make_digest(subject, _select_compared(request.verb, document, arguments), price, transfers),
        steps=document,
        text=render_plan(plan, width=_WIDTH, command=None, advice=ready.advice, refusal=refusal),
        details=render_plan(plan, verbose=True, width=_WIDTH, command=None, advice=ready.advice, refusal=refusal),
        price_per_hour=price,
        notes=(*ready.notes, *([f"the cluster belongs to {owner}"] if force and owner else [])),
        cost=describe_cost(rented) if (rented := list_machines_to_pay(ready)) else "",
        transfers=tuple(map(str, transfers)),
        asks_transfers=is_large(transfers),
        head=render_head(plan, width=_WIDTH, advice=ready.advice),
        owner=owner,
        idle=describe_idle(ready.desired) if isinstance(ready.desired, Run) else "",
        ready=ready,
    )


def _name_subject(ready: PreparedCommand, arguments: dict[str, Any], project: str, *, force: bool) -> str:
    """Note in the arguments which cluster, run and job an order is about, beyond their names.

    Returns:
        The member to whom the cluster belongs, where that is another one; else "".
    """
    with open_reader(project) as reader:
        record, member = reader.cluster(ready.cluster), reader.member
    if ready.verb not in ("launch", "resume") and record is not None:
        arguments["uid"] = record.uid
    if isinstance(ready.desired, Cancel):
        arguments["job"] = int(ready.desired.folder.partition("-")[0])
    if ready.verb == "resume" and ready.job is not None:
        arguments["run"] = ready.job.run_id
        _refuse_run_of_another_member(ready.job.run_id, project, force=force)
    return record.owner if record is not None and record.owner not in ("", member) else ""


def _refuse_run_of_another_member(run_id: str, project: str, *, force: bool) -> None:
    """Refuse to resume what another member launched, with their files and in their bucket, on whatever cluster.

    Raises:
        ConflictError: It is such a run, and the member may not change clusters of others.
    """
    with open_reader(project) as reader:
        found = reader.find_run(run_id)
        launched_on = reader.clusters_by_uid({found[1].cluster_uid}) if found is not None else {}
        for cluster in launched_on.values():
            if (refused := refuse_other_owner(cluster, reader.member, force=force)) is not None:
                raise refused


def describe_difference(seen: str, plan: OrderPlan) -> str:
    """Return what differs between the plan that a member saw and the present one; "" when nothing does.

    Args:
        seen: The digest of the plan that the member saw.
        plan: The present plan.
    """
    before, now = seen.split("."), plan.digest.split(".")
    if len(before) != len(now):
        return "that is not a digest of a plan"
    names = [name for name, old, new in zip(_PARTS, before, now, strict=True) if not _is_kept(name, old, new)]
    found = f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)
    return f"{found} changed since; the price is {format_price(plan.price_per_hour)} now" if names else ""


def _is_kept(name: str, old: str, new: str) -> bool:
    if name not in _AMOUNTS or "unknown" in (old, new) or not old.isdigit():
        return old == new
    return int(new) <= int(old)


def _make_digest(cluster: str, document: Mapping[str, Any], price: float | None, transfers: Sequence[Transfer]) -> str:
    bare = _without_prices(document)
    # A wait asks for nothing, and what is left of it is another time at each look.
    bare["steps"] = [step for step in bare["steps"] if step["do"] != "wait"]
    machines = bare["wanted"].pop("candidates", None)
    moved = [one.dollars for one in transfers] if is_large(transfers) else []
    amount = None if None in moved else sum(one for one in moved if one is not None)
    return ".".join((_hash(cluster), _hash(machines), _count(price), _hash(bare), _count(amount)))


def _select_compared(verb: str, document: Mapping[str, Any], arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what of a plan has to be the same when it is done: of an exec not the number that its job gets."""
    if verb != "exec":
        return document
    return {"wanted": {"arguments": dict(arguments)}, "steps": [], "refusal": document.get("refusal")}


def _count(dollars: float | None) -> str:
    return "unknown" if dollars is None else str(round(dollars * 10_000))


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _without_prices(value: Any) -> Any:
    if isinstance(value, dict):
        document = cast("dict[str, Any]", value)
        return {name: _without_prices(one) for name, one in document.items() if name not in _PRICES}
    if isinstance(value, list):
        return [_without_prices(one) for one in cast("list[object]", value)]
    return value


def _find_price(ready: PreparedCommand, plan: Plan) -> float | None:
    """Return the price of the machines that the plan creates or starts."""
    created = [action.spec.candidate for action in plan.actions if isinstance(action, CreateSlice)]
    if any(isinstance(action, StartSlice) for action in plan.actions) and ready.recorded.current is not None:
        created.append(ready.recorded.current.candidate)
    prices = [one.price_per_hour for one in created]
    return None if None in prices else sum(price for price in prices if price is not None)


def _read_task(text: str, rules: MemberRules | None, project: str) -> str:
    """Return the one task of a task file as JSON.

    Raises:
        OrchError: It is wrong, is a pipeline, names files of a computer, or uses more of this one than the rules allow.
    """
    config = load_config(os.environ)
    variables = os.environ if rules is None else rules.select_variables(os.environ)
    file = parse_task(
        text,
        file="task",
        env=variables,
        config=config,
        find_source_problem=_refuse_local_source,
        choose_machines=partial(choose_machines_here, project=project),
    )
    if len(file.tasks) > 1:
        raise UserError("a pipeline cannot be launched from here", "", "orch launch FILE   on a computer")
    if rules is not None:
        rules.check_task(file.only, config)
    if written := [one.name for one in file.only.secrets if os.environ.get(one.name) != one.value]:
        what = f"the value of the secret {written[0]} is in the task"
        raise UserError(what, "an order is kept on record, and secrets are not", f"write `{written[0]}: null`")
    return file.only.to_json()


def _describe_trees(task: str, request: PlanRequest) -> dict[str, DescribedTree]:
    """Return what is known of the files that a task names by their digest, by label.

    Raises:
        UserError: The request does not describe one of them.
    """
    return _describe_sent({label: str(sent) for label, sent in list_sent_trees(Task.from_json(task)).items()}, request)


def _describe_command(request: PlanRequest) -> dict[str, Any]:
    """Return the arguments of an exec.

    Raises:
        UserError: It has no command, or its folder was not sent.
    """
    if not request.command.strip():
        raise UserError("no command is given", "", "name it in `command`")
    if sum(map(len, [request.command, *request.env.values()])) > _MOST_BYTES:
        raise UserError("the command and its variables are too long", f"at most {_MOST_BYTES:,} bytes", "send a file")
    if request.workdir and parse_sent_tree(request.workdir) is None:
        raise UserError(f"`{request.workdir}` is not a folder that was sent", "", "send it: /openapi.json, /v1/blobs")
    return {
        "command": request.command,
        "hosts": request.hosts,
        "env": request.env,
        "workdir": request.workdir,
        "devices": request.devices,
    }


def _describe_sent(names: Mapping[str, str], request: PlanRequest) -> dict[str, DescribedTree]:
    found: dict[str, DescribedTree] = {}
    for label, sent in names.items():
        described = request.trees.get(sent)
        if described is None:
            raise UserError(f"`trees` does not describe {sent}", "the task names it", "see /openapi.json")
        files = tuple(
            TreeFile(path=path, size=0, mode=0, sha256=digest) for path, digest in sorted(described.decisive.items())
        )
        digest = sent.removeprefix(SCHEME)
        tree = Tree(root=Path(sent), files=files, digest=digest, total_bytes=described.bytes)
        found[label] = DescribedTree(tree=tree, count=described.files)
    return found


def _refuse_local_source(path: str) -> InvalidValueError | None:
    if parse_sent_tree(path) is not None:  # orders.py refuses what the member has not sent
        return None
    step = "take it from a bucket or a git repository, or: orch launch FILE   on a computer"
    return InvalidValueError(f"`{path}` is a path of a computer", "the service sends no local files", step)
