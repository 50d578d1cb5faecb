"""Faults that others have with requests and machines, and orch has not. defect_table.py says whose each one is."""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from typing import Any

import pytest
from google_defects_bench import EMPTY_ZONE, Bench, shorten
from support.orch_process import until

from orchestrator.catalog.tpu import find_slice, list_generations
from orchestrator.engine.preparation.candidates import list_candidates
from orchestrator.simulator.scenario import Deed
from orchestrator.task.parse import parse_task

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
SPOT = "use_spot: true"
QUEUED = "accelerator_args: {gcp_queued_resource: true, valid_hours: %s}"


def request_of(bench: Bench, *words: str) -> dict[str, Any]:
    """The body of the request that a launch would send."""
    plan = json.loads(bench.orch.ok("plan", *words, "-o", "json"))
    (body,) = [step["request"]["body"] for step in plan["steps"] if step.get("request")]
    return dict(body)


def test_a_queued_request_is_gone_after_down(bench: Bench) -> None:
    bench.launch("spot", "hostname", more=SPOT)
    assert bench.left() == ["node spot-1", "queued spot-1"]
    bench.orch.ok("down", "spot", "--yes")
    assert bench.left() == []


def test_a_queued_request_that_got_nothing_in_time_is_gone(bench: Bench) -> None:
    task = bench.task("late", "hostname", zone=EMPTY_ZONE, more=QUEUED % "0.01")
    done = bench.orch("launch", task, "--yes")
    assert done.returncode == 5, done.stderr
    assert EMPTY_ZONE in done.stderr
    assert bench.left() == []


def test_every_request_that_waits_is_cancelled_not_only_the_last(bench: Bench) -> None:
    names = ("wait-a", "wait-b")
    for name in names:
        bench.task(name, "hostname", zone=EMPTY_ZONE, more=QUEUED % "6")
    running = [bench.orch.start("launch", f"{name}.yaml", "--yes") for name in names]
    try:
        until("both wait", lambda: bench.left() == [f"queued {name}-1" for name in names])
        begin = len(bench.google.server.requests)
        until("they were asked for a while", lambda: bool(_waited(running, 3.0)), 10.0)
        asked = Counter(method for method, _, _ in bench.google.server.requests[begin:])
        assert asked["GET"] <= 30, "two commands that wait for three seconds look now and then"
    finally:
        for process in running:
            process.send_signal(signal.SIGINT)
        ends = [process.communicate(timeout=60)[1] for process in running]
    assert [process.returncode for process in running] == [130, 130], ends
    assert bench.left() == []


def _waited(running: list[subprocess.Popen[str]], seconds: float) -> bool:
    try:
        running[0].wait(seconds)
    except subprocess.TimeoutExpired:
        return True
    return False


def test_a_node_that_somebody_deleted_does_not_hold_up_down(bench: Bench) -> None:
    bench.launch("taken", "hostname")
    bench.do("taken-1", Deed.VANISH)
    bench.orch.ok("down", "taken", "--yes")
    assert json.loads(bench.orch.ok("status", "-o", "json"))["clusters"] == []
    assert bench.left() == []


def test_a_slice_from_a_reservation_is_taken_from_it(bench: Bench) -> None:
    bench.launch("held", "hostname", more="accelerator_args: {reservation: mine}")
    with bench.google.cloud.open() as cloud:
        assert [look.market for look in cloud.live() if shorten(look.name) == "held-1"] == ["reservation:mine"]
    bench.orch.ok("down", "held", "--yes")
    assert bench.left() == []


def test_a_spot_request_says_spot_and_nothing_else(bench: Bench) -> None:
    body = request_of(bench, bench.task("s", "true", more=SPOT))
    assert body["spot"] == {} and "provisioningModel" not in body and "guaranteed" not in body
    node = body["tpu"]["nodeSpec"][0]["node"]
    assert "schedulingConfig" not in node, "the older word preemptible is not sent beside it"


def test_every_queued_request_has_an_end_also_one_for_flex_start(bench: Bench) -> None:
    flex = "accelerator_args: {provisioning: flex-start, max_run_hours: 4}"
    for more in (SPOT, flex, QUEUED % "6"):
        assert request_of(bench, bench.task("q", "true", more=more))["queueingPolicy"]["validUntilDuration"]
    body = request_of(bench, bench.task("q", "true", more=flex))
    assert (body["provisioningModel"], body["runDuration"]["maxRunDuration"]) == ("FLEX_START", "14400s")


def test_a_larger_disk_is_asked_for_and_not_ignored(bench: Bench) -> None:
    body = request_of(bench, bench.task("d", "true", accelerators="v5e-8", more="disk_size: 300"))
    assert body["bootDiskConfig"] == {"diskSizeGb": "300"}


def test_several_slices_are_counted_and_named_in_one_request(bench: Bench) -> None:
    body = request_of(bench, bench.task("m", "true"), "--num-nodes", "3")
    (spec,) = body["tpu"]["nodeSpec"]
    names = spec["multisliceParams"]
    assert (names["nodeCount"], shorten(names["nodeIdPrefix"])) == (3, "m-1")


def test_v4_is_asked_for_where_it_is_by_its_own_name_and_image(bench: Bench) -> None:
    task = bench.task("v4", "true", zone="us-central2-b", accelerators="v4-32")
    body = request_of(bench, task)
    assert (body["acceleratorType"], body["runtimeVersion"]) == ("v4-32", "tpu-ubuntu2204-base")


def test_v5e_gets_the_image_of_v5e(bench: Bench) -> None:
    assert request_of(bench, bench.task("i", "true"))["runtimeVersion"] == "v2-alpha-tpuv5-lite"


SIZES = [f"{each.prefix}-{size}" for each in list_generations() for size in each.sizes if each.zones]


@pytest.mark.parametrize("name", SIZES)
def test_hosts_are_slices_times_hosts_of_a_slice(name: str) -> None:
    tpu = find_slice(name)
    assert tpu is not None
    for slices in range(1, 5):
        text = f"resources: {{accelerators: {name}, infra: gcp}}\nnum_nodes: {slices}\nrun: x\n"
        task = parse_task(text, file="t.yaml", env={}).only
        assert {each.hosts for each in list_candidates(task)} == {slices * tpu.hosts}
