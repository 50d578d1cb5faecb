"""What nvidia-smi, tpu-info and neuron-monitor report, in the forms that their vendors document."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.hosts import ChipSample
from orchestrator.remote.chips import parse_neuron, parse_nvidia, parse_tpu

MIB, GIB = 2**20, 2**30

# `nvidia-smi -q -d TEMPERATURE` as drivers print it, read in public records in November 2026: absolute limits of a GPU
# with driver 555.52 (a forum post of June 2024), margins of an H100 (a bug report of a GPU with remapped rows).
ABSOLUTE = """
GPU 00000000:01:00.0
        GPU Current Temp                  : 35 C
        GPU T.Limit Temp                  : N/A
        GPU Shutdown Temp                 : 100 C
        GPU Slowdown Temp                 : 97 C
        GPU Max Operating Temp            : 105 C
        Memory Current Temp               : N/A
"""
MARGINS = """
GPU 00000000:19:00.0
        GPU Current Temp                  : 31 C
        GPU T.Limit Temp                  : 55 C
        GPU Shutdown T.Limit Temp         : -8 C
        GPU Slowdown T.Limit Temp         : -2 C
        GPU Max Operating T.Limit Temp    : 0 C
        Memory Current Temp               : 39 C
"""
# A GB10 (public record, September 2026): it reports a margin, and not at which one it slows down.
NO_LIMIT = """
GPU 0000000F:01:00.0
        GPU Current Temp                  : 44 C
        GPU T.Limit Temp                  : 52 C
        GPU Shutdown T.Limit Temp         : N/A
        GPU Slowdown T.Limit Temp         : N/A
        GPU Max Operating T.Limit Temp    : 0 C
"""


def test_gpus_of_nvidia_smi() -> None:
    found = list(parse_nvidia(["0, 97, 61234, 81559, 64", "1, [N/A], 12, 81559, [N/A]"]))
    assert found == [
        ChipSample(name="0", use=0.97, used=61234 * MIB, total=81559 * MIB, temperature=64),
        ChipSample(name="1", used=12 * MIB, total=81559 * MIB),
    ]
    assert list(parse_nvidia(["NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."])) == []


def test_power_and_errors_of_nvidia_smi() -> None:
    found = list(parse_nvidia(["0, 97, 61234, 81559, 64, 634.12, 0", "1, 0, 12, 81559, 31, [N/A], 2"]))
    assert [(one.power, one.errors) for one in found] == [(634.12, 0), (None, 2)]


def test_the_temperature_of_slowing_down_is_what_the_driver_reports() -> None:
    rows = ["0, 1, 2, 3, 35", "1, 1, 2, 3, 31", "2, 1, 2, 3, 44"]
    found = list(parse_nvidia(rows, (ABSOLUTE + MARGINS + NO_LIMIT).splitlines()))
    assert [one.slowdown for one in found] == [97, 88, None], "31 C, and 55 + 2 more until it slows down"


def test_limits_of_other_gpus_than_those_listed_are_nobodys() -> None:
    found = list(parse_nvidia(["0, 1, 2, 3, 35"], (ABSOLUTE + MARGINS).splitlines()))
    assert [one.slowdown for one in found] == [None]


def test_a_number_that_no_chip_has_is_not_known() -> None:
    (found,) = parse_nvidia(["0, 101, 81560, 81559, 5000, 999999, 1"])
    assert found == ChipSample(name="0", total=81559 * MIB, errors=1)
    rows = ["0, -1, -2, -3, -4, -5, -6", "1, nan, inf, 1e9, NaN, Infinity, 0x10"]
    assert list(parse_nvidia(rows)) == [ChipSample(name="0"), ChipSample(name="1")]


def test_chips_of_tpu_info() -> None:
    table = """
TPU Chips
┃ Chip        ┃ Type         ┃ Devices ┃ PID  ┃
│ /dev/vfio/0 │ TPU v6e chip │ 1       │ 1052 │
TPU Runtime Utilization
│ 8      │ 18.45 GiB / 31.25 GiB    │    100.00% │
│ 9      │ 10.40 GiB / 31.25 GiB    │      0.00% │
TensorCore Utilization
│ 0       │                  13.60%│
"""
    assert list(parse_tpu(table.splitlines())) == [
        ChipSample(name="8", use=1.0, used=int(18.45 * GIB), total=int(31.25 * GIB)),
        ChipSample(name="9", use=0.0, used=int(10.40 * GIB), total=int(31.25 * GIB)),
    ]
    assert list(parse_tpu(["Libtpu metrics unavailable. Is there a framework using the TPU?"])) == []


def runtime(used: int, busy: int) -> dict[str, Any]:
    """Return what neuron-monitor reports of a program on core `busy` of two."""
    memory = {str(core): {"constants": used if core == busy else 0, "tensors": 1} for core in range(2)}
    use = {str(core): {"neuroncore_utilization": 50.0 if core == busy else 0} for core in range(2)}
    return {
        "pid": 1,
        "report": {
            "memory_used": {"neuron_runtime_used_bytes": {"usage_breakdown": {"neuroncore_memory_usage": memory}}},
            "neuroncore_counters": {"neuroncores_in_use": use},
        },
    }


def test_cores_of_neuron_monitor() -> None:
    hardware = {"neuron_device_count": 2, "neuroncore_per_device_count": 2, "neuron_device_memory_size": 32 * GIB}
    report = {"neuron_runtime_data": [runtime(100, 0), runtime(200, 1)], "neuron_hardware_info": hardware}
    assert list(parse_neuron(json.dumps(report))) == [
        ChipSample(name="0", use=0.5, used=102, total=16 * GIB),
        ChipSample(name="1", use=0.5, used=202, total=16 * GIB),
        ChipSample(name="2", use=0.0, used=0, total=16 * GIB),
        ChipSample(name="3", use=0.0, used=0, total=16 * GIB),
    ]
    assert list(parse_neuron('{"neuron_runtime_data": null, "neuron_hardware_info": {"error": "no device"}}')) == []


def test_errors_of_neuron_monitor_are_of_a_chip_with_all_its_cores() -> None:
    hardware = {"neuron_device_count": 2, "neuroncore_per_device_count": 2, "neuron_device_memory_size": 32 * GIB}
    devices = [
        {"neuron_device_index": index, "mem_ecc_corrected": 9, "mem_ecc_uncorrected": index, "sram_ecc_uncorrected": 2}
        for index in range(2)
    ]
    report = {
        "neuron_runtime_data": [runtime(100, 0)],
        "neuron_hardware_info": hardware,
        "system_data": {"neuron_hw_counters": {"neuron_devices": devices}},
    }
    assert [one.errors for one in parse_neuron(json.dumps(report))] == [2, 2, 3, 3]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-50", "1e300"])
def test_a_number_of_neuron_monitor_that_no_core_has_is_not_known(number: str) -> None:
    report = json.dumps({"neuron_runtime_data": [runtime(1, 0)]}).replace("50.0", number)
    assert [one.use for one in parse_neuron(report)] == [None, 0.0]


@pytest.mark.parametrize("text", ["", "null", "[]", "{", "[" * 100_000, '{"neuron_runtime_data": [1]}', "1e999"])
def test_what_is_no_report_has_no_cores(text: str) -> None:
    assert list(parse_neuron(text)) == []


@given(st.text(max_size=80))
def test_any_line_of_a_host_can_be_read(text: str) -> None:
    for parse in (parse_nvidia, parse_tpu):
        list(parse([text]))
    list(parse_nvidia(["0, 1, 2, 3, 4"], ["GPU 0", text]))
    list(parse_neuron(text))
