"""The text of `orch status`, from the document that `-o json` prints and nothing else."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from orchestrator.cli.drawing.stages_text import describe_stage, format_stage
from orchestrator.cli.drawing.tables import draw_list, draw_table
from orchestrator.documents.clusters import PaidPerHour, describe_abandoned_job
from orchestrator.formatting import format_age, format_duration, format_local_time, format_price, parse_utc
from orchestrator.messages import count_noun
from orchestrator.plan.ranks import format_ranks
from orchestrator.project import DEFAULT_PROJECT
from orchestrator.slices import SliceState

# Machines that a limit, or another program, has ended: auxiliary resources stay until `down`.
_LEFT_OVER: dict[str, str] = {
    SliceState.ENDING: "removes what the machines leave behind; they are deleted, or are being deleted",
    SliceState.FAILED: "ends what is left of the machines, and removes what they leave behind",
}


def draw_clusters(document: Mapping[str, Any], *, with_project: bool) -> list[str]:
    """Return the lines of a table of clusters, and of what they cost."""
    clusters, now = document["clusters"], parse_utc(document["now"])
    owned = bool({item["owner"] or "" for item in clusters} - {"", document["member"]})  # by others
    whose = [*(["PROJECT"] if with_project else []), *(["OWNER"] if owned else [])]
    output = ["FROM OUTPUT"] if any(item["from_output"] for item in clusters) else []
    staged = ["PIPELINE"] if any(_find_stage(item) for item in clusters) else []
    columns = ("STATE", "SEEN", "HOSTS", "MACHINES", "WHERE", "MARKET", "JOB", *staged, *output, "PRICE")
    rows: list[tuple[str, ...]] = [("NAME", *whose, *columns)]
    for item in clusters:
        machines = item["machines"]
        rows.append(
            (
                item["name"],
                *([item["project"]] if with_project else []),
                *([item["owner"] or "-"] if owned else []),
                item["state"],
                format_age(parse_utc(item["state_at"]), now),
                str(machines["hosts"]) if machines else "0",
                machines["accelerator"] if machines else "-",
                _format_place(machines) if machines else "-",
                machines["market"] if machines else "-",
                _describe_current_job(item),
                *([format_stage(_find_stage(item))] if staged else []),
                *([item["from_output"]["text"] if item["from_output"] else "-"] if output else []),
                _format_price(item),
            )
        )
    lines = draw_table(rows, sys.stdout, optional=("MARKET", "WHERE", "SEEN"), whole=bool(output))
    paid = _sum_prices(clusters)
    return [*lines, f"in all {paid} now"] if paid.dollars or paid.unknown else lines


def draw_cluster(document: Mapping[str, Any]) -> list[str]:
    """Return the lines of the only cluster of a document."""
    (item,), now = document["clusters"], parse_utc(document["now"])
    lines = draw_list(list(_list_facts(item, now)), sys.stdout)
    if item["hosts"]:
        rows = [("RANK", "HOST", "ADDRESS", "INTERNAL")]
        for host in item["hosts"]:
            address = f"{host['user']}@{host['host']}:{host['port']}"
            rows.append((str(host["rank"]), host["label"], address, host["internal_ip"]))
        lines += ["", *draw_table(rows, sys.stdout)]
    if item["jobs"]:
        head = ("JOB", "KIND", "STATE", "HOSTS", "RUN", "TOOK", "RESULT")
        jobs = [head, *(_make_job_row(job, now) for job in item["jobs"])]
        lines += ["", *draw_table(jobs, sys.stdout, optional=("TOOK", "HOSTS"))]
    lines += [f"  attempt {past['attempt']} ended ({past['cause']}): {past['why']}" for past in item["ended_attempts"]]
    if item["earlier_machines"]:
        lines += ["", "EARLIER MACHINES"]
        for past in item["earlier_machines"]:
            lines.append(f"  {past['slice']}: {past['state']}" + (f" ({past['why']})" if past["why"] else ""))
    if item["last_events"]:
        lines += ["", f"LAST EVENTS   (all: orch events {item['name']})"]
        lines += [f"  {format_local_time(parse_utc(one['at']))}  {one['what']}" for one in item["last_events"]]
    return lines


def draw_limit_notes(document: Mapping[str, Any]) -> list[str]:
    """Return a line for each cluster whose machines may have ended by themselves since they were seen."""
    return [
        f"'{item['name']}' has reached its limit of {item['passed_limit']} since it was seen, and may have ended: "
        f"orch status {item['name']} --refresh"
        for item in document["clusters"]
        if item["passed_limit"]
    ]


def _list_facts(item: Mapping[str, Any], now: float) -> Iterable[tuple[str, str]]:
    name, at, machines = item["name"], parse_utc(item["state_at"]), item["machines"]
    yield "cluster", f"{name}   {item['summary']}".rstrip()
    yield "state", f"{item['state']}, {'since' if at > now else 'seen'} {format_age(at, now)}"
    if item["working"]:
        yield "in use by", item["working"]
    elif item["abandoned_job"] is not None:
        continued, ended = describe_abandoned_job(name, item["abandoned_job"])
        yield "next", continued
        yield "or", ended
    elif item["state"] in _LEFT_OVER and all(job["state"] == "ended" for job in item["jobs"]):
        yield "next", f"orch down {name}   {_LEFT_OVER[item['state']]}"
    if machines is not None:
        chips = f", {count_noun(machines['chips_per_host'], 'chip')} each" if machines["chips_per_host"] else ""
        hosts = f"{count_noun(machines['hosts'], 'host')} of {machines['accelerator']}{chips}"
        yield "machines", f"{hosts} on {_format_place(machines)}, {machines['market']}"
        note = f" ({machines['price_note']})" if machines["price_note"] else ""
        yield "price", format_price(machines["list_price_per_hour"]) + note
    if item["from_output"] is not None:
        yield "progress", f"{item['from_output']['text']}   from output, {item['from_output']['form']}"
    if (stage := _find_stage(item)) is not None:
        yield "pipeline", describe_stage(stage)
    if item["project"] != DEFAULT_PROJECT:
        yield "project", item["project"]
    if item["owner"]:
        yield "owner", item["owner"]
    created = parse_utc(item["created"])
    yield "created", f"{format_local_time(created)}, {format_age(created, now)}"


def _format_place(machines: Mapping[str, Any]) -> str:
    return "/".join(filter(None, (machines["provider"], machines["region"], machines["zone"])))


def _format_price(item: Mapping[str, Any]) -> str:
    if item["machines"] is None:
        return format_price(0.0)
    return "disks only" if item["state"] == SliceState.STOPPED else format_price(item["machines"]["price_per_hour"])


def _sum_prices(clusters: Sequence[Mapping[str, Any]]) -> PaidPerHour:
    billed = [one["machines"] for one in clusters if one["machines"] and one["machines"]["billed_since"]]
    prices = [machines["price_per_hour"] for machines in billed]
    return PaidPerHour(dollars=sum(one for one in prices if one is not None), unknown=prices.count(None))


def _find_current_job(item: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return next((job for job in item["jobs"] if job["id"] == item["current_job"]), None)


def _find_stage(item: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the stage of a pipeline that the current job of a cluster runs; None for none."""
    job = _find_current_job(item)
    return None if job is None else job.get("stage")  # a service of an earlier version does not say it


def _describe_current_job(item: Mapping[str, Any]) -> str:
    """Return `3 running, attempt 2`, `3 exit 0`, or `-` for none."""
    job = _find_current_job(item)
    if job is None:
        return "-"
    if job["state"] == "ended":
        return f"{job['id']} exit {job['status']}"
    return f"{job['id']} {_format_state(job)}"


def _format_state(job: Mapping[str, Any]) -> str:
    return str(job["state"]) + (f", attempt {job['attempt']}" if job["attempt"] > 1 else "")


def _make_job_row(job: Mapping[str, Any], now: float) -> tuple[str, ...]:
    ended = now if job["ended"] is None else parse_utc(job["ended"])
    took = format_duration(ended - parse_utc(job["created"]))
    hosts = "all" if job["hosts"] is None else format_ranks(job["hosts"])
    result = f"exit {job['status']}: {job['what'] or ''}" if job["state"] == "ended" else ""
    return (str(job["id"]), job["kind"], _format_state(job), hosts, job["run_id"], took, result)
