"""The state of hosts and their chips now, by the tools that the hosts have, in one command a host.

Formats, read in November 2026: nvidia-smi, `--help-query-gpu`; tpu-info, the table "TPU Runtime Utilization" in
docs.cloud.google.com/tpu/docs/tpu-info-cli; neuron-monitor, the AWS Neuron documentation, "Neuron Monitor User Guide".
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.hosts import HostJob, HostOutcome
from orchestrator.remote.fleet import Fleet, HostResult
from orchestrator.remote.jobs import check_job_name, parse_job_states
from orchestrator.remote.scripts import shell_command, shell_source

_SECONDS = 45.0  # for the tools of one host
_LINE = re.compile(r"^orch-sample ([a-z]+) (.*)$", re.MULTILINE)
_TPU_ROW = re.compile(r"([0-9]{1,6})\s*[│|]\s*([0-9.]+) GiB / ([0-9.]+) GiB\s*[│|]\s*([0-9.]+)\s*%")
_MIB, _GIB = 2**20, 2**30
_MOST_CHIPS = 256  # of one host; what a host reports is not trusted


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipSample:
    """One chip, or one NeuronCore. What the tool does not report is None.

    Attributes:
        name: Its number, as its tool has it.
        use: Share of the time that it computed, 0 to 1.
        used: Bytes of its memory in use.
        total: Bytes of its memory.
        temperature: In degrees Celsius.
    """

    name: str
    use: float | None = None
    used: int | None = None
    total: int | None = None
    temperature: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSample:
    """One host.

    Attributes:
        outcome: Of the command on it; what follows is empty where it failed.
        load: Mean number of processes that ran or waited in the last minute.
        processors: Their number.
        memory: Bytes in use and in all.
        disk: The same of the file system of the home folder.
        job: The state of the job that was asked for.
    """

    outcome: HostOutcome
    load: float | None = None
    processors: int | None = None
    memory: tuple[int, int] | None = None
    disk: tuple[int, int] | None = None
    chips: tuple[ChipSample, ...] = ()
    job: HostJob | None = None


def sample_hosts(fleet: Fleet, job: str = "") -> tuple[HostSample, ...]:
    """Return the state of every host, with one command on each.

    Args:
        fleet: The hosts.
        job: Folder of the job whose progress is read; "" for none.
    """
    command = shlex.join(["/bin/sh", "-c", shell_source("host-sample.sh"), "orch"])
    if job:
        check_job_name(job)
        command += "; " + shell_command("job-status.sh", job)
    return tuple(_parse(result) for result in fleet.run(command, timeout=_SECONDS).hosts)


def _parse(result: HostResult) -> HostSample:
    if not result.outcome.ok:
        return HostSample(outcome=result.outcome)
    lines: dict[str, list[str]] = {}
    for kind, text in _LINE.findall(result.output.decode("utf-8", "replace")):
        lines.setdefault(kind, []).append(text)
    load = _numbers(lines.get("load", [""])[0])
    chips = [
        *parse_nvidia(lines.get("nvidia", ())),
        *parse_tpu(lines.get("tpu", ())),
        *parse_neuron("".join(lines.get("neuron", ())[:1])),
    ]
    return HostSample(
        outcome=result.outcome,
        load=load[0] if load else None,
        processors=int(load[1]) if len(load) > 1 else None,
        memory=_pair(lines.get("memory", [""])[0]),
        disk=_pair(lines.get("disk", [""])[0]),
        chips=tuple(chips[:_MOST_CHIPS]),
        job=next((state for _, state in parse_job_states(result)), None),
    )


def parse_nvidia(lines: Sequence[str]) -> Iterator[ChipSample]:
    """Yield the GPUs of nvidia-smi; it writes [N/A] for what a GPU does not report."""
    for line in lines:
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != 5 or not re.fullmatch(r"[0-9]{1,4}", cells[0]):
            continue  # a message, such as that the driver does not answer
        use, used, total, temperature = map(_number, cells[1:])
        yield ChipSample(
            name=cells[0],
            use=None if use is None else use / 100,
            used=None if used is None else int(used * _MIB),
            total=None if total is None else int(total * _MIB),
            temperature=temperature,
        )


def parse_tpu(lines: Sequence[str]) -> Iterator[ChipSample]:
    """Yield the chips of tpu-info that a program uses; it reports nothing of the others."""
    for line in lines:
        if (row := _TPU_ROW.search(line)) is not None:
            used, total, use = (_number(text) or 0.0 for text in row.groups()[1:])
            yield ChipSample(name=row[1], use=use / 100, used=int(used * _GIB), total=int(total * _GIB))


def parse_neuron(text: str) -> Iterator[ChipSample]:
    """Yield the NeuronCores of a report of neuron-monitor: those of the host, or those that programs use."""
    try:
        report: Any = json.loads(text or "{}")
        hardware: Any = report.get("neuron_hardware_info") or {}
        cores = int(hardware.get("neuroncore_per_device_count") or 0)
        count = min(cores * int(hardware.get("neuron_device_count") or 0), _MOST_CHIPS)
        size = int(hardware.get("neuron_device_memory_size") or 0) // cores if cores else 0
        use, used = dict.fromkeys(range(count), 0.0), dict.fromkeys(range(count), 0)
        for runtime in report.get("neuron_runtime_data") or ():
            data = runtime["report"]
            for core, one in data["neuroncore_counters"]["neuroncores_in_use"].items():
                use[int(core)] = use.get(int(core), 0.0) + float(one["neuroncore_utilization"]) / 100
            memory = data["memory_used"]["neuron_runtime_used_bytes"]["usage_breakdown"]["neuroncore_memory_usage"]
            for core, kinds in memory.items():
                used[int(core)] = used.get(int(core), 0) + sum(map(int, kinds.values()))
        found = [
            ChipSample(name=str(core), use=use[core], used=used.get(core), total=size or None) for core in sorted(use)
        ]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        return  # no report, or one of another version
    yield from found


def _numbers(text: str) -> list[float]:
    found = [_number(word) for word in text.split()]
    return [one for one in found if one is not None] if None not in found else []


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,9})?", text) else None


def _pair(text: str) -> tuple[int, int] | None:
    found = _numbers(text)
    return (int(found[0]) * 1024, int(found[1]) * 1024) if len(found) == 2 else None
