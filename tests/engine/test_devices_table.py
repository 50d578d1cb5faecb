"""Devices of many hosts in one table: alike in one row, different apart, whatever a host prints around its answer."""

from __future__ import annotations

import json

import pytest

from orchestrator.engine.operations.devices import group_devices, parse_devices

GPU = {"kind": "cuda", "name": "NVIDIA H200", "index": 0, "total_mem_mb": 143771, "topology": "NVLink"}


def gpus(count: int, free: int) -> list[dict[str, object]]:
    return [{**GPU, "index": index, "available_mem_mb": free - index} for index in range(count)]


@pytest.mark.promise("P40")
def test_hosts_that_are_alike_share_a_row_and_the_least_free_memory_counts() -> None:
    (row,) = group_devices({0: gpus(8, 140000), 1: gpus(8, 90000)})
    assert (row.ranks, row.count, row.name, row.memory, row.free) == ((0, 1), 8, "NVIDIA H200", 143771, 89993)


@pytest.mark.promise("P40")
def test_a_host_that_misses_a_device_gets_its_own_row() -> None:
    rows = group_devices({0: gpus(8, 1000), 1: gpus(7, 1000), 2: gpus(8, 1000)})
    assert [(row.ranks, row.count) for row in rows] == [((0, 2), 8), ((1,), 7)]
    slow = [{**gpu, "topology": "PCIe"} for gpu in gpus(8, 1000)]
    assert [row.topology for row in group_devices({0: gpus(8, 1000), 1: slow})] == ["NVLink", "PCIe"]


def test_the_answer_is_found_among_other_lines() -> None:
    answer = json.dumps(gpus(2, 10), indent=2)
    assert parse_devices(f"motd [hello]\n[\nwarning: x\n{answer}\nbye\n".encode()) == tuple(gpus(2, 10))
    assert parse_devices(b"[]\n") == ()
    for bad in (b"", b"Traceback\n", b"[\n1, 2]\n", answer.encode()[:-5]):
        assert parse_devices(bad) is None
