"""Discovery from files of the kernel alone, described well enough to choose a device and to compute MFU."""

from __future__ import annotations

from pathlib import Path

import pytest
from machines import AMAZON, EFA, GOOGLE, NVIDIA, SMI, driver, machine, tool

from trainer.accelerators import health, nvidia
from trainer.accelerators.device import Device
from trainer.accelerators.discovery import discover_devices
from trainer.accelerators.peaks import PEAKS, find_peak_flops

CHIPS = (
    ("0x005e", "v4", 32, 2, 1, 275),
    ("0x0062", "v5p", 95, 2, 1, 459),
    ("0x0063", "v5e", 16, 1, 1, 197),
    ("0x006f", "v6e", 32, 1, 1, 918),
    ("0x0076", "v7", 192, 2, 2, 2307),
)


@pytest.mark.parametrize(("pci", "name", "memory", "cores", "devices", "tera"), CHIPS)
def test_tpu_chips_are_known_by_their_pci_ids(
    tmp_path: Path, pci: str, name: str, memory: int, cores: int, devices: int, tera: float
) -> None:
    environ = {"TPU_ACCELERATOR_TYPE": f"{name}-16", "TPU_TOPOLOGY": "2x2x2", "TPU_WORKER_HOSTNAMES": "a,b"}
    *found, _ = discover_devices(machine(tmp_path, [(GOOGLE, pci)] * 4 + [(GOOGLE, "0x9999")]), environ)
    assert [device.index for device in found] == [0, 1, 2, 3]
    first = found[0]
    assert (first.kind, first.name, first.vendor, first.total_mem_mb) == ("tpu", f"TPU {name}", "Google", memory * 1024)
    assert (first.cores, first.devices, first.slice, first.bus) == (cores, devices, f"{name}-16 2x2x2", "0000:00:1e.0")
    assert first.topology == f"chip 0 of 4, {cores} cores, {name}-16 2x2x2, 2 hosts, ICI"
    assert find_peak_flops(first, "bf16") == tera * 1e12 / devices


@pytest.mark.parametrize(
    ("pci", "name", "chips", "cores", "devices", "memory", "tera"),
    [
        ("0x7164", "AWS Trainium1", 16, 2, 2, 32, 190),
        ("0x7364", "AWS Trainium2", 16, 8, 4, 96, 667),
        ("0x7564", "AWS Trainium3", 4, 8, 4, 144, 671),
    ],
)
def test_trainium_is_known_by_its_driver_and_pci_ids(
    tmp_path: Path, pci: str, name: str, chips: int, cores: int, devices: int, memory: int, tera: float
) -> None:
    root = machine(tmp_path, [(AMAZON, pci)] * chips + [EFA] * 8, [f"neuron{index}" for index in range(chips)])
    driver(root, 0, cores=cores, neighbours="12, 3, 4, 1", used=2**30)
    *found, _ = discover_devices(root)
    assert [device.index for device in found] == list(range(chips))  # not 0, 1, 10, 11, ...
    first = found[0]
    assert (first.name, first.cores, first.devices, first.total_mem_mb) == (name, cores, devices, memory * 1024)
    assert first.available_mem_mb == (memory - cores) * 1024
    assert first.topology == f"chip 0 of {chips}, {cores} cores, NeuronLink to 4 chips, 8 EFA"
    assert find_peak_flops(first, "bf16") == tera * 1e12 / devices
    assert found[1].available_mem_mb is None  # nothing is said of it
    driven = health.read_neuron_driver(0, root)
    assert driven["neuron_core1"] == {"present": 2**30, "peak": 2**31}
    assert len(driven) == cores


def test_gpus_are_described_by_their_tool_in_the_order_of_their_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(tmp_path / "bin", "nvidia-smi", SMI, monkeypatch)
    root = machine(tmp_path / "root", [(NVIDIA, "0x2330")] * 2 + [EFA] * 32, ["nvidia0", "nvidia1", "nvidiactl"])
    *found, _ = discover_devices(root)
    assert [(d.index, d.bus, d.total_mem_mb, d.available_mem_mb) for d in found] == [
        (0, "0000:53:00.0", 81559, 81008),
        (1, "0000:64:00.0", 81559, None),
    ]
    assert found[0].topology == "GPU 0 of 2, NVLink to 1 GPUs, 32 EFA"
    assert (found[0].vendor, found[0].links, found[0].network) == ("NVIDIA", "NVLink to 1 GPUs", "32 EFA")
    assert find_peak_flops(found[0], "bf16") == 989e12
    assert find_peak_flops(found[0], "fp32") is None


def test_health_of_a_gpu_is_what_its_tool_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(tmp_path, "nvidia-smi", SMI, monkeypatch)
    found = nvidia.query_health("GPU-a0a0a0a0-1111-2222-3333-444444444444")
    assert (found["utilization.gpu"], found["power.draw"], found["clocks.sm"]) == (37, 312.45, 1980)
    assert found["clocks_event_reasons.active"] == "0x0000000000000000"
    assert nvidia.query_health("GPU-none") == {}
    # A driver before 535 answers nothing at all when a query has a name that it does not know.
    tool(tmp_path, "nvidia-smi", SMI.replace("case", 'case "$*" in *event*) exit 2;; esac; case', 1), monkeypatch)
    assert nvidia.query_health("GPU-a0a0")["clocks_throttle_reasons.active"] == "0x0000000000000000"


@pytest.mark.parametrize(
    ("name", "tera"),
    [
        ("NVIDIA A100-SXM4-40GB", 312),
        ("NVIDIA A100 80GB PCIe", 312),
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H200", 989),
        ("NVIDIA B300 SXM6 AC", 2250),
        ("NVIDIA H200 NVL", None),
        ("NVIDIA H100 80GB HBM3 MIG 3g.40gb", None),
        ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", None),
        ("NVIDIA A10G", 70),
        ("NVIDIA L4", 121),
        ("NVIDIA L40S", 362),
        ("NVIDIA A10", None),
        ("Tesla T4", None),
    ],
)
def test_only_a_known_gpu_has_a_peak(name: str, tera: float | None) -> None:
    expected = None if tera is None else tera * 1e12
    assert (
        find_peak_flops(
            Device(kind="cuda", name=name, vendor="NVIDIA", index=0, total_mem_mb=1, available_mem_mb=1, topology=None),
            "bf16",
        )
        == expected
    )


def test_gpus_are_reported_when_the_tool_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    known = discover_devices(machine(tmp_path / "a", [(NVIDIA, "0x2335")] * 2, ["nvidia0", "nvidia1"]))
    assert [(d.name, d.index, d.total_mem_mb, d.bus) for d in known[:-1]] == [
        ("NVIDIA H200", 0, None, "0000:00:1e.0"),
        ("NVIDIA H200", 1, None, "0000:01:1e.0"),
    ]
    unknown = discover_devices(machine(tmp_path / "b", [(NVIDIA, "0xffff")], ["nvidia0"]))
    assert [(d.kind, d.name) for d in unknown[:-1]] == [("cuda", "NVIDIA GPU")]


@pytest.mark.parametrize(
    ("visible", "indices"),
    [(None, [0, 1, 2]), ("2,0", [2, 0]), ("GPU-b", [1]), ("0,9,1", [0]), ("", []), ("GPU-,1", []), ("-1", [])],
)
def test_what_cuda_shows_to_a_process(visible: str | None, indices: list[int]) -> None:
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert nvidia.list_visible_indices(environ, ["GPU-a1", "GPU-b2", "GPU-c3"]) == indices


@pytest.mark.parametrize(
    ("pci", "environ", "devices"),
    [
        ("0x7364", {"NEURON_LOGICAL_NC_CONFIG": "1"}, 8),
        ("0x7565", {"NEURON_RT_VIRTUAL_CORE_SIZE": "2"}, 4),
        ("0x7364", {"NEURON_LOGICAL_NC_CONFIG": "odd"}, 4),
        ("0x7164", {"NEURON_LOGICAL_NC_CONFIG": "1"}, 2),
    ],
)
def test_two_cores_of_a_chip_may_be_one(tmp_path: Path, pci: str, environ: dict[str, str], devices: int) -> None:
    found = discover_devices(machine(tmp_path, [(AMAZON, pci)], ["neuron0"]), environ)[0]
    assert found.devices == devices


def test_tpu_with_an_ambiguous_pci_id_has_no_memory_and_no_peak(tmp_path: Path) -> None:
    found = discover_devices(machine(tmp_path, [(GOOGLE, "0x0027")] * 4), {})[0]
    assert (found.kind, found.peers, found.devices, found.total_mem_mb) == ("tpu", 4, 2, None)
    assert find_peak_flops(found, "bf16") is None


def test_a_machine_without_accelerators_has_its_processor(tmp_path: Path) -> None:
    (found,) = discover_devices(machine(tmp_path, [(AMAZON, "0x8061"), (NVIDIA, "0x2330")]))
    assert (found.kind, found.name, found.vendor) == ("cpu", "Some AMD CPU", "AMD")
    assert (found.total_mem_mb, found.available_mem_mb) == (16000, 8000)
    assert found.topology is not None
    assert found.topology.endswith("cores, 2 sockets")


def test_the_monitors_first_report_is_taken_and_it_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert health.read_neuron_monitor() == {}
    tool(tmp_path, "neuron-monitor", 'echo \'{"system_data": {"memory": 7}}\'; exec sleep 600', monkeypatch)
    assert health.read_neuron_monitor() == {"system_data": {"memory": 7}}
    tool(tmp_path, "neuron-monitor", "echo no json", monkeypatch)
    assert health.read_neuron_monitor() == {}


def test_every_peak_has_its_source() -> None:
    assert all(peak.source and len(peak.as_of) == 7 and peak.flops > 4e13 for peak in PEAKS.values())
