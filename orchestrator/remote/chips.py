"""The chips of a host, by the tools that the host has. What a host reports is not trusted.

Formats, read in November 2026:

- nvidia-smi, the fields of `--help-query-gpu` and the text of `-q -d TEMPERATURE`. Older GPUs report the temperature at
  which they slow down. Newer ones report how far they are from a limit ("T.Limit"), and how far they are when they slow
  down: NVML, nvmlDeviceGetMarginTemperature and NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT. NVIDIA's own NVSentinel calls
  a GPU unhealthy whose margin is below that (github.com/NVIDIA/NVSentinel, GpuThermalMarginWatch).
  Errors are `ecc.errors.uncorrected.volatile.total`, those since the driver was loaded. Xid errors are only in the log
  of the kernel, which needs root.
- tpu-info, the table "TPU Runtime Utilization": docs.cloud.google.com/tpu/docs/tpu-info-cli. It has no temperature, no
  power and no errors.
- neuron-monitor: AWS Neuron documentation, "Neuron Monitor User Guide": `neuroncore_counters`, `memory_used`, and of
  `neuron_hw_counters` `mem_ecc_uncorrected` and `sram_ecc_uncorrected`, which are of a chip with all of its cores. It
  has no temperature.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from orchestrator.hosts import ChipReport, ChipSample
from orchestrator.remote.scripts import shell_source

SAMPLE_EVERY = 20  # seconds
STALE_SECONDS = 60.0  # a tool that hangs leaves an old sample
_AGE = re.compile(rb"^orch-chips-age (\d{1,9})$", re.MULTILINE)
_REPORTED = re.compile(rb"^orch-chips (.*)$", re.MULTILINE)
_LINE = re.compile(r"^orch-sample ([a-z]+) (.*)$", re.MULTILINE)
_TPU_ROW = re.compile(r"([0-9]{1,6})\s*[│|]\s*([0-9.]+) GiB / ([0-9.]+) GiB\s*[│|]\s*([0-9.]+)\s*%")
_LIMIT = re.compile(r"\s*(GPU [A-Za-z. ]*Temp)\s*:\s*(-?[0-9]{1,3}) C\s*")
_MIB, _GIB = 2**20, 2**30
_MOST_CHIPS = 256  # of one host
_HOTTEST, _MOST_WATTS, _MOST_COUNTED = 200, 20_000, 2**53  # beyond these a number is none of a chip


def chip_report_command() -> str:
    """Return the command that prints a host's newest sample of its chips, and has the next one taken beside it."""
    source = shell_source("chip-sample.sh")
    report = f"{shell_source('host.sh')}\n{shell_source('chip-report.sh')}"
    words = ["/bin/sh", "-c", report, "orch", source, str(SAMPLE_EVERY), shell_source("chip-keep.sh")]
    return f"{shlex.join(words)}; echo"  # what was cut in the middle of a line ends there


def parse_chip_report(output: bytes) -> ChipReport | None:
    """Return the chips in what `chip_report_command` printed; None where it printed nothing, or nothing new enough."""
    age = _AGE.search(output)
    if age is None or int(age[1]) > STALE_SECONDS:
        return None
    text = b"\n".join(_REPORTED.findall(output)).decode("utf-8", "replace")
    return ChipReport(age=float(age[1]), chips=parse_chips(sort_sample_lines(text)))


def sort_sample_lines(text: str) -> dict[str, list[str]]:
    """Return what the sampling scripts printed, by kind of line."""
    lines: dict[str, list[str]] = {}
    for kind, line in _LINE.findall(text):
        lines.setdefault(kind, []).append(line)
    return lines


def parse_chips(lines: Mapping[str, Sequence[str]]) -> tuple[ChipSample, ...]:
    """Return the chips that the tools of a host report."""
    chips = [
        *parse_nvidia(lines.get("nvidia", ()), lines.get("limits", ())),
        *parse_tpu(lines.get("tpu", ())),
        *parse_neuron("".join(lines.get("neuron", ())[:1])),
    ]
    return tuple(chips[:_MOST_CHIPS])


def chip_as_json(chip: ChipSample) -> dict[str, object]:
    """Return a chip as `orch top` and the service write it."""
    return {
        "name": chip.name,
        "use": chip.use,
        "memory_used": chip.used,
        "memory_total": chip.total,
        "temperature": chip.temperature,
        "slowdown_temperature": chip.slowdown,
        "power": chip.power,
        "uncorrected_errors": chip.errors,
    }


def parse_nvidia(lines: Iterable[str], limits: Iterable[str] = ()) -> Iterator[ChipSample]:
    """Yield the GPUs of nvidia-smi; it writes [N/A] for what a GPU does not report.

    Args:
        lines: Of its CSV.
        limits: Of its list of temperatures, which has the GPUs in the same order.
    """
    rows = [cells for line in lines if len(cells := [cell.strip() for cell in line.split(",")]) in (5, 7)]
    rows = [cells for cells in rows if re.fullmatch(r"[0-9]{1,4}", cells[0])]  # others are messages
    found = _parse_limits(limits)
    slowdowns = found if len(found) == len(rows) else [None] * len(rows)
    for cells, slowdown in zip(rows, slowdowns, strict=True):
        use, used, total, temperature, power, errors = map(_number, [*cells[1:], "", ""][:6])
        yield _make_chip(
            cells[0],
            use=None if use is None else use / 100,
            used=None if used is None else used * _MIB,
            total=None if total is None else total * _MIB,
            temperature=temperature,
            slowdown=slowdown,
            power=power,
            errors=errors,
        )


def _parse_limits(lines: Iterable[str]) -> list[float | None]:
    """Return the temperature at which each GPU slows down; None for one that does not report it."""
    gpus: list[dict[str, int]] = []
    for line in lines:
        if line.startswith("GPU "):
            gpus.append({})
        elif gpus and (row := _LIMIT.fullmatch(line)) is not None:
            gpus[-1].setdefault(row[1], int(row[2]))
    return [_find_slowdown(gpu) for gpu in gpus]


def _find_slowdown(gpu: Mapping[str, int]) -> float | None:
    names = ("GPU Current Temp", "GPU T.Limit Temp", "GPU Slowdown T.Limit Temp")
    if "GPU Slowdown Temp" in gpu or any(name not in gpu for name in names):
        return gpu.get("GPU Slowdown Temp")
    current, margin, margin_at_slowdown = (gpu[name] for name in names)
    return current + margin - margin_at_slowdown


def parse_tpu(lines: Iterable[str]) -> Iterator[ChipSample]:
    """Yield the chips of tpu-info that a program uses; it reports nothing of the others."""
    for line in lines:
        if (row := _TPU_ROW.search(line)) is not None:
            used, total, use = (_number(text) for text in row.groups()[1:])
            yield _make_chip(
                row[1],
                use=None if use is None else use / 100,
                used=None if used is None else used * _GIB,
                total=None if total is None else total * _GIB,
            )


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
        errors = _find_neuron_errors(report)
        found = [
            _make_chip(
                str(core), use=use[core], used=used.get(core), total=size or None,
                errors=errors.get(core // cores) if cores else None,
            )
            for core in sorted(use)
        ]  # fmt: skip
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        return  # no report, or one of another version
    yield from found


def _find_neuron_errors(report: Any) -> dict[int, int]:
    """Return the uncorrected errors of each device; {} where the report has none."""
    system: Any = report.get("system_data") or {}
    counters: Any = system.get("neuron_hw_counters") or {}
    devices: Any = counters.get("neuron_devices") or ()
    return {
        int(device["neuron_device_index"]): int(device["mem_ecc_uncorrected"]) + int(device["sram_ecc_uncorrected"])
        for device in devices
    }


def _make_chip(
    name: str,
    *,
    use: float | None = None,
    used: float | None = None,
    total: float | None = None,
    temperature: float | None = None,
    slowdown: float | None = None,
    power: float | None = None,
    errors: float | None = None,
) -> ChipSample:
    """Return a chip with the numbers that can be those of a chip."""
    size = _bound(total, _MOST_COUNTED)
    held = _bound(used, _MOST_COUNTED if size is None else size)
    count = _bound(errors, _MOST_COUNTED)
    return ChipSample(
        name=name,
        use=_bound(use, 1.0),
        used=None if held is None else int(held),
        total=None if size is None else int(size),
        temperature=_bound(temperature, _HOTTEST),
        slowdown=_bound(slowdown, _HOTTEST),
        power=_bound(power, _MOST_WATTS),
        errors=None if count is None else int(count),
    )


def _bound(number: float | None, most: float) -> float | None:
    return number if number is not None and 0 <= number <= most else None  # False for "not a number", too


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,9})?", text) else None
