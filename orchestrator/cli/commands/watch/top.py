"""`orch top`: a live table of the hosts and chips of a cluster."""

from __future__ import annotations

import json
import shutil
import sys
import time
from typing import TYPE_CHECKING

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.tables import draw_table
from orchestrator.cli.drawing.terminal import inspect_terminal, write_stderr, write_stdout
from orchestrator.cli.execution.host_access import enter_hosts
from orchestrator.cli.execution.host_ssh import refuse_stopped
from orchestrator.cli.parameters.clusters import CLUSTER
from orchestrator.client.host_records import host_record_source, open_host_records
from orchestrator.formatting import format_size, format_utc
from orchestrator.messages import escape_controls
from orchestrator.plan.ranks import MOST_NAMED
from orchestrator.store.lookup import find_cluster, select_hosts

if TYPE_CHECKING:
    from orchestrator.engine.operations.top import Round
    from orchestrator.hosts import ChipSample
    from orchestrator.remote.samples import HostSample

_HOME, _TO_END_OF_LINE, _TO_END = "\x1b[H", "\x1b[K", "\x1b[J"
_MOST_CHIPS = 16  # up to so many have rows without --chips


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch top mine", "live until Ctrl-C"),
        ("orch top mine --once --chips", "one table, with a row for every chip"),
        ("orch top mine -o json", ""),
    ],
)
@click.argument("cluster", type=CLUSTER)
@click.option(
    "--interval",
    type=click.FloatRange(min=1),
    default=5.0,
    show_default=True,
    metavar="S",
    help="Seconds between rounds.",
)
@click.option("--once", is_flag=True, help="Print one table and end, as into a pipe.")
@click.option("--chips", is_flag=True, help=f"A row for every chip, also of more than {_MOST_CHIPS}.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def top(ctx: click.Context, cluster: str, interval: float, once: bool, chips: bool, output: str) -> None:
    """Show load, memory, disk and chips of the hosts of CLUSTER, and the step of its job, by the hosts' own tools.

    Chips come from nvidia-smi, tpu-info or neuron-monitor, where the host has it. A host that does not answer has a row
    that says so; the exit status is then still 0.
    """
    from orchestrator.engine.operations.top import open_rounds

    with open_host_records(cluster) as store:
        record = find_cluster(store, cluster)
        select_hosts(record)
        refuse_stopped(record)
    live = output == "text" and not once and inspect_terminal(sys.stdout).live
    try:
        with host_record_source(cluster) as records, open_rounds(cluster, write_stderr, records, enter_hosts) as look:
            found = look()
            if output == "json":
                write_stdout(json.dumps(top_as_json(cluster, found, time.time()), indent=2))
            elif not live:
                write_stdout(*_list_lines(found, chips=chips))
            while live:
                _draw(cluster, found, interval, chips=chips)
                time.sleep(interval)
                found = look()
    except KeyboardInterrupt:
        ctx.exit(130)


def _draw(cluster: str, found: Round, interval: float, *, chips: bool) -> None:
    """Write a table over the one before, cut to the height of the terminal."""
    head = f"{cluster}  {time.strftime('%H:%M:%S')}  every {interval:g} s, Ctrl-C ends it"
    lines = [head, "", *_list_lines(found, chips=chips)]
    height = shutil.get_terminal_size().lines - 1
    if len(lines) > height:
        lines = [*lines[: height - 1], f"… {len(lines) - height + 1} more lines: orch top {cluster} --once"]
    sys.stdout.write(_HOME + "".join(f"{escape_controls(line)}{_TO_END_OF_LINE}\n" for line in lines) + _TO_END)
    sys.stdout.flush()


def _list_lines(found: Round, *, chips: bool) -> list[str]:
    lines = draw_table(
        [_HEAD, *(_row(found, sample) for sample in found.samples)], sys.stdout, optional=("DISK", "LOAD")
    )
    silent = [sample for sample in found.samples if not sample.outcome.ok]
    for sample in silent[:MOST_NAMED]:
        lines.append(f"{_label(found, sample)} does not answer: {sample.outcome.detail or sample.outcome.verdict}")
    if found.job is not None:
        lines.append(f"job {found.job.id}{f', {found.job.run_id}' if found.job.run_id else ''}")
    count = sum(len(sample.chips) for sample in found.samples)
    if count and (chips or count <= _MOST_CHIPS):
        rows = [("HOST", "CHIP", "USE", "MEMORY", "TEMP", "POWER", "ERRORS")]
        rows += [
            (_label(found, one), chip.name, *_chip(chip), *_rest(chip)) for one in found.samples for chip in one.chips
        ]
        lines += ["", *draw_table(rows, sys.stdout)]
    return lines


_HEAD = ("HOST", "CONTACT", "LOAD", "MEMORY", "DISK", "CHIPS", "USE", "CHIPMEM", "TEMP", "STEP", "LAG")


def _row(found: Round, sample: HostSample) -> tuple[str, ...]:
    label = _label(found, sample)
    if not sample.outcome.ok:
        return (label, sample.outcome.verdict, *("-" for _ in _HEAD[2:]))
    load = "-" if sample.load is None else f"{sample.load:.1f}/{sample.processors or '?'}"
    lag = found.find_lag(sample)
    step = sample.job.step if sample.job is not None else None
    return (
        label,
        "ok",
        load,
        _share(sample.memory),
        _share(sample.disk),
        str(len(sample.chips)) if sample.chips else "-",
        *_chip(_summarize(sample.chips)),
        "-" if step is None else str(step),
        "-" if lag is None else str(lag),
    )


def _label(found: Round, sample: HostSample) -> str:
    return next((host.label for host in found.hosts if host.rank == sample.outcome.rank), str(sample.outcome.rank))


def _summarize(chips: tuple[ChipSample, ...]) -> ChipSample:
    """Return the mean use of a host's chips, the fullest memory, and the highest temperature."""
    from orchestrator.hosts import ChipSample

    uses = [chip.use for chip in chips if chip.use is not None]
    full = max(chips, key=lambda chip: (chip.used or 0) / (chip.total or 1), default=ChipSample(name=""))
    return ChipSample(
        name="",
        use=sum(uses) / len(uses) if uses else None,
        used=full.used,
        total=full.total,
        temperature=max((chip.temperature for chip in chips if chip.temperature is not None), default=None),
    )


def _chip(chip: ChipSample) -> tuple[str, str, str]:
    use = "-" if chip.use is None else f"{chip.use:.0%}"
    size = "-" if chip.used is None else format_size(chip.used)
    memory = _share((chip.used, chip.total)) if chip.used is not None and chip.total else size
    return use, memory, "-" if chip.temperature is None else f"{chip.temperature:.0f}°C"


def _rest(chip: ChipSample) -> tuple[str, str]:
    power = "-" if chip.power is None else f"{chip.power:.0f}W"
    return power, "-" if chip.errors is None else str(chip.errors)


def _share(sizes: tuple[int, int] | None) -> str:
    """Return `12/80G` in GiB, one word, so that a row stays a line."""
    if sizes is None:
        return "-"
    used, total = (size / 2**30 for size in sizes)
    return f"{used:.0f}/{total:.0f}G" if total >= 10 else f"{used:.1f}/{total:.1f}G"


def top_as_json(cluster: str, found: Round, now: float) -> dict[str, object]:
    """Return a round as in data/top.schema.json."""
    return {
        "version": 2,
        "kind": "top",
        "now": format_utc(now),
        "cluster": cluster,
        "job": found.job.id if found.job is not None else None,
        "run_id": (found.job.run_id or None) if found.job is not None else None,
        "hosts": [_host_json(found, sample) for sample in found.samples],
    }


def _host_json(found: Round, sample: HostSample) -> dict[str, object]:
    from orchestrator.remote.chips import chip_as_json

    job = sample.job
    return {
        "rank": sample.outcome.rank,
        "contact": sample.outcome.ok,
        "failure": None if sample.outcome.ok else sample.outcome.verdict,
        "load": sample.load,
        "processors": sample.processors,
        "memory_used": sample.memory[0] if sample.memory else None,
        "memory_total": sample.memory[1] if sample.memory else None,
        "disk_used": sample.disk[0] if sample.disk else None,
        "disk_total": sample.disk[1] if sample.disk else None,
        "job_state": str(job.phase) if job is not None else None,
        "step": job.step if job is not None else None,
        "step_lag": found.find_lag(sample),
        "beat_age": job.beat_age if job is not None else None,
        "chips": [chip_as_json(chip) for chip in sample.chips],
    }
