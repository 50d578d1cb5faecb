"""A person's commands on TPUs: a simulated Google behind sockets, real sshd hosts, every call a real process."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.heard import Heard, listening, losses
from support.orch_process import Orch
from support.slice_names import slice_name

from orch_fronts.google.cloud import SimulatedGoogle
from orchestrator.simulator.scenario import Deed
from orchestrator.simulator.state import Phase

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

FULL, EMPTY = "gcp/us-west4/us-west4-a", "gcp/us-east5/us-east5-b"
SCENARIO = """
[durations]
create = 0.5
end = 0.2
queue = 0.2
detect = 0.2
contact = 0

[[capacity]]
zone = "us-east5-b"
accelerator = "*"
amount = 0
"""
TINY = ("model.dim=32", "model.layers=1", "model.heads=2", "model.kv_heads=1", "batch=8", "threads=1")
TRAIN = ("train", "v5e-16", "--infra", FULL, "--use-spot", "--backend", "cpu", "-c", "spot", "--yes")
FOUR = f"name: four\nresources: {{accelerators: v5e-16, infra: {FULL}}}\nrun: |\n  %s\n"
ONE = f"""
name: one
resources:
  any_of:
  - {{accelerators: v5e-8, infra: {EMPTY}}}
  - {{accelerators: v5e-8, infra: {FULL}}}
run: echo here
"""
WAITING = f"name: waits\nresources: {{accelerators: v5e-8, infra: {EMPTY}, use_spot: true}}\nrun: echo never\n"
PAIR = f"name: pair\nresources: {{accelerators: v5e-16, infra: {FULL}}}\nnum_nodes: 2\nrun: |\n  %s\n"


@pytest.fixture(scope="module")
def google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedGoogle]:
    folder = tmp_path_factory.mktemp("google")
    (folder / "scenario.toml").write_text(SCENARIO)
    with SimulatedGoogle(folder) as google:
        yield google
    assert not [file for file in (folder / "local").glob("*") if file.is_dir()], "hosts were left"


@pytest.fixture
def orch(google: SimulatedGoogle, tmp_path: Path) -> Iterator[Orch]:
    """In the end there is nothing in any collection of the cloud, and nothing on record."""
    orch = Orch(tmp_path, dict(google.env))
    yield orch
    there, known = left(google), json.loads(orch.ok("status", "-o", "json"))["clusters"]
    for cluster in known:  # of a test that failed: the next one is to find nothing
        orch("down", cluster["name"])
    assert (there, known) == ([], [])


def left(google: SimulatedGoogle) -> list[str]:
    with google.cloud.open() as cloud:
        nodes = [f"node {look.name} {look.phase}" for look in cloud.live()]
        return nodes + [f"queued {each.name} {each.phase}" for each in cloud.state.queued.values() if not each.gone]


def preempt(google: SimulatedGoogle) -> str:
    """The only slice that is ready loses its machines."""
    with google.cloud.open() as cloud:
        (name,) = [look.name for look in cloud.live() if look.phase is Phase.READY]
        cloud.do(name, Deed.PREEMPT)
    return name


@pytest.fixture
def start(orch: Orch) -> Iterator[Callable[..., Heard]]:
    with listening(orch) as start:
        yield start


def task(orch: Orch, text: str, command: str = "") -> str:
    (orch.folder / "task.yaml").write_text(text % command if command else text)
    return "task.yaml"


def events(orch: Orch, cluster: str) -> str:
    return orch.ok("events", cluster)


def runs(orch: Orch, cluster: str) -> list[str]:
    (found,) = json.loads(orch.ok("status", cluster, "-o", "json"))["clusters"]
    return [job["run_id"] for job in found["jobs"]]


def test_a_training_continues_after_a_preemption_by_itself_and_after_down_by_resume(
    orch: Orch, google: SimulatedGoogle, start: Callable[..., Heard]
) -> None:
    training = start(*TRAIN, "--bucket", "gs://runs", "--checkpoint-every", "20", *TINY, "steps=100000")
    training.until(r"checkpoint 20 written(?s:.*)step \d+0/")
    first, second = (slice_name("spot", number, home=orch.state.parent) for number in (1, 2))
    assert preempt(google) == first
    training.until(rf"creating {second}(?s:.*)step \d+0/")
    orch.ok("down", "spot")
    assert training.status() == 130 and "was taken down" in training.text, training.text
    assert left(google) == []
    said = events(orch, "spot")
    assert re.search(rf"{first}: .*preempt", said) and f"{second}: planned -> accepted" in said, said

    resumed = start("resume", "spot", "--yes")
    resumed.until(r"step \d+0/(?s:.*)step \d+0/")
    assert orch.ok("exec", "spot", "--host", "3", "--no-prefix", "--", OF_FOUR) == "3 of 4\n"
    assert re.fullmatch(r"127\S+ \d+\n", orch.ok("ssh", "spot", "3", "--", "echo ${SSH_CONNECTION#* * }"))
    assert "rank 3/4: torch" in orch.ok("logs", "spot", "1", "--host", "3", "--no-prefix")
    resumed.process.send_signal(signal.SIGINT)
    assert resumed.status() == 130, resumed.text
    assert "continues to run" in resumed.text and "Traceback" not in resumed.text

    assert runs(orch, "spot")[:1] == re.findall(r"run (spot-\S+)", said)[:1]
    first, second = losses(training.text), losses(resumed.text)
    curve = dict(first)
    assert [step for step, _ in first].count(1) == 1, "the second attempt began again"
    assert second[0][0] > 20 and second[-1][1] < first[0][1]
    assert all(curve[step] == loss for step, loss in [*first, *second] if step in curve), (first, second)
    orch.ok("down", "spot")


OF_FOUR = 'echo "$ORCH_RANK of $ORCH_NUM_HOSTS"'


def test_a_preempted_node_is_ended_before_the_next_is_made(
    orch: Orch, google: SimulatedGoogle, start: Callable[..., Heard]
) -> None:
    program = 'echo "attempt $ORCH_ATTEMPT of rank $ORCH_RANK"; [ "$ORCH_ATTEMPT" -gt 1 ] || sleep 300'
    launched = start("launch", task(orch, FOUR, program), "--yes")
    for rank in range(4):
        launched.until(f"attempt 1 of rank {rank}")
    preempt(google)
    assert launched.status() == 0, launched.text
    assert sorted(re.findall(r"attempt 2 of rank (\d)", launched.text)) == ["0", "1", "2", "3"]
    with google.cloud.open() as cloud:
        calls = [(call.op, call.name) for call in cloud.mutations() if call.name.startswith("four-") and call.acted]
    first, second = (slice_name("four", number, home=orch.state.parent) for number in (1, 2))
    assert calls == [("create", first), ("end", first), ("create", second)]
    orch.ok("down", "four")


@pytest.mark.core
def test_a_zone_without_machines_is_reported_and_the_next_one_is_taken(orch: Orch) -> None:
    done = orch("launch", task(orch, ONE), "--yes")
    assert done.returncode == 0, done.stderr
    assert "us-east5-b" in done.stderr and "no more capacity" in done.stderr, done.stderr
    history = events(orch, "one")
    first, second = (slice_name("one", number, home=orch.state.parent) for number in (1, 2))
    assert re.search(rf"{first}: planned, gcp/us-east5/us-east5-b", history), history
    assert re.search(rf"{first}.*capacity", history), history
    (found,) = json.loads(orch.ok("status", "-o", "json"))["clusters"]
    assert (found["machines"]["slice"], found["machines"]["zone"]) == (second, "us-west4-a")
    orch.ok("down", "one")


def test_ctrl_c_while_machines_are_waited_for_takes_the_request_out_of_the_queue(
    orch: Orch, google: SimulatedGoogle, start: Callable[..., Heard]
) -> None:
    waiting = start("launch", task(orch, WAITING), "--yes")
    waiting.until(r"waiting for resources for 0 min\)")
    assert left(google) == [f"queued {slice_name('waits', home=orch.state.parent)} waiting-for-resources"]
    waiting.process.send_signal(signal.SIGINT)
    assert waiting.status() == 130, waiting.text
    assert "cancelled" in waiting.text and "Traceback" not in waiting.text
    assert left(google) == []


def test_two_slices_are_one_request_and_a_failing_worker_is_named(orch: Orch, google: SimulatedGoogle) -> None:
    said = orch.ok("launch", task(orch, PAIR, 'echo "$ORCH_RANK of $ORCH_NUM_HOSTS, slice $ORCH_SLICE_ID"'), "--yes")
    reported = {int(rank): words for rank, words in re.findall(r"rank=(\d), [0-9.]+\) (.*)", said)}
    assert reported == {rank: f"{rank} of 8, slice {rank // 4}" for rank in range(8)}
    name = slice_name("pair", home=orch.state.parent)
    with google.cloud.open() as cloud:
        (queued,) = [each for each in cloud.state.queued.values() if not each.gone]
        assert [look.name for look in cloud.live()] == [f"{name}-0", f"{name}-1"]
    assert queued.name == name
    failed = orch("launch", task(orch, PAIR, "[ $ORCH_RANK != 6 ] || { echo boom; exit 9; }"), "--yes")
    assert failed.returncode == 9, failed.stderr
    assert "worker6" in failed.stderr and "exit 9" in failed.stderr
    assert len(failed.stderr.partition("error[")[2].splitlines()) <= 5
    orch.ok("down", "pair")


DRY = """
import socket, sys
from orchestrator.__main__ import main
def refused(*args, **kwargs):
    raise AssertionError(f"the network was asked: {args}")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refused
status = main(sys.argv[1:])
loaded = [name for name in sys.modules if name.partition(".")[0] in ("google", "googleapiclient", "grpc", "httplib2")]
assert not loaded, loaded
sys.exit(status)
"""


def test_a_dry_run_sends_nothing_loads_no_google_library_and_writes_nothing(tmp_path: Path) -> None:
    orch = Orch(tmp_path)
    words = [*TRAIN[:-3], "-c", "spot", "--bucket", "gs://runs", "--dry-run", "-o", "json", *TINY]
    done = subprocess.run(
        [sys.executable, "-c", DRY, *words], capture_output=True, text=True, env=orch.env, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"queuedResources?queuedResourceId={slice_name('spot', home=orch.state.parent)}" in json.dumps(
        json.loads(done.stdout)
    )
    assert list(tmp_path.rglob("*")) == []


def test_a_task_for_tpus_is_rehearsed_on_hosts_of_its_shape(orch: Orch, google: SimulatedGoogle) -> None:
    before = len(google.server.requests)
    done = orch("rehearse", task(orch, FOUR, OF_FOUR), "-o", "json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["status"]) == (0, 0), done.stderr
    assert sorted(re.findall(r"\d of 4$", done.stderr, re.M)) == [f"{rank} of 4" for rank in range(4)]
    assert report["dollars"] > 0, "the price is that of the TPUs"
    assert len(google.server.requests) == before, "a rehearsal has its own cloud"


EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "cpu-gcp.yaml"
GPUS = """
name: gpus
resources: {accelerators: 'L4:1', infra: gcp/us-central1/us-central1-a, use_spot: true}
num_nodes: 2
run: echo "rank $ORCH_RANK of $ORCH_NUM_HOSTS"
"""


@pytest.mark.core
def test_the_example_runs_on_a_machine_without_accelerators_and_leaves_nothing(
    orch: Orch, google: SimulatedGoogle
) -> None:
    done = orch("launch", str(EXAMPLE), "--yes", "-c", "cents")
    assert done.returncode == 0, done.stderr
    assert "e2-standard-2 is the cheapest of" in done.stderr
    (found,) = json.loads(orch.ok("status", "-o", "json"))["clusters"]
    assert found["machines"]["accelerator"] == "e2-standard-2", found
    assert found["machines"]["price_per_hour"] == pytest.approx(0.067, abs=1e-3)
    assert orch.ok("exec", "cents", "--no-prefix", "--", "echo $ORCH_CHIPS_PER_HOST") == "0\n"
    assert re.search(r"(?m)^\d+$", orch.ok("logs", "cents", "1", "--no-prefix")), "nproc has run"
    orch.ok("stop", "cents", "--yes")
    orch.ok("start", "cents", "--yes")
    assert orch.ok("exec", "cents", "--no-prefix", "--", "echo here") == "here\n"
    orch.ok("down", "cents")
    assert left(google) == []


def test_two_gpu_machines_of_spot_are_one_cluster(orch: Orch, google: SimulatedGoogle) -> None:
    done = orch("launch", task(orch, GPUS), "--yes", "-c", "gpus")
    assert done.returncode == 0, done.stderr
    assert "rank 0 of 2" in done.stdout + done.stderr and "rank 1 of 2" in done.stdout + done.stderr
    (found,) = json.loads(orch.ok("status", "-o", "json"))["clusters"]
    assert found["machines"]["accelerator"] == "g2-standard-4", found
    with google.cloud.open() as cloud:
        made = [look.extra["compute"]["properties"] for look in cloud.live()]
    assert [one["scheduling"]["provisioningModel"] for one in made] == ["SPOT", "SPOT"]
    orch.ok("down", "gpus")
    assert left(google) == []
