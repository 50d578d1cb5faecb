"""What nvidia-smi, tpu-info and neuron-monitor report, in the forms that their vendors document."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.remote.samples import ChipSample, parse_neuron, parse_nvidia, parse_tpu

MIB, GIB = 2**20, 2**30


def test_gpus_of_nvidia_smi() -> None:
    found = list(parse_nvidia(["0, 97, 61234, 81559, 64", "1, [N/A], 12, 81559, [N/A]"]))
    assert found == [
        ChipSample(name="0", use=0.97, used=61234 * MIB, total=81559 * MIB, temperature=64),
        ChipSample(name="1", used=12 * MIB, total=81559 * MIB),
    ]
    assert list(parse_nvidia(["NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."])) == []


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


@pytest.mark.parametrize("text", ["", "null", "[]", "{", "[" * 100_000, '{"neuron_runtime_data": [1]}', "1e999"])
def test_what_is_no_report_has_no_cores(text: str) -> None:
    assert list(parse_neuron(text)) == []


@given(st.text(max_size=80))
def test_any_line_of_a_host_can_be_read(text: str) -> None:
    for parse in (parse_nvidia, parse_tpu):
        list(parse([text]))
    list(parse_neuron(text))
