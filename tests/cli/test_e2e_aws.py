"""A person's commands on EC2: a simulated AWS behind sockets, real sshd hosts, every call a real process."""

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

from orch_fronts.aws.cloud import SimulatedAws
from orch_fronts.aws.ec2.visit import left as beside
from orchestrator.simulator.scenario import Deed
from orchestrator.simulator.state import Phase

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

SCENARIO = """
[durations]
create = 0.5
end = 0.2
stop = 0.2
start = 0.5
detect = 0.2
contact = 0

[[capacity]]
zone = "us-east-1a"
accelerator = "*"
amount = 0
"""
TINY = ("model.dim=32", "model.layers=1", "model.heads=2", "model.kv_heads=1", "batch=8", "threads=1")
H100 = ("train", "H100:8", "--num-nodes", "2", "--infra", "aws/us-east-1", "--backend", "cpu", "-c", "p5", "--yes")
TRN1 = ("train", "Trainium:16", "--num-nodes", "4", "--use-spot", "--infra", "aws/us-east-1/us-east-1b")
TRAINIUM = (*TRN1, "--backend", "cpu", "-c", "trn", "--yes")
ONE = "name: one\nresources: {accelerators: 'H100:1', infra: aws/us-east-1/us-east-1b}\nrun: |\n  %s\n"


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedAws]:
    folder = tmp_path_factory.mktemp("aws")
    (folder / "scenario.toml").write_text(SCENARIO)
    with SimulatedAws(folder) as aws:
        yield aws
    assert not [file for file in (folder / "local").glob("*") if file.is_dir()], "hosts were left"


@pytest.fixture
def orch(aws: SimulatedAws, tmp_path: Path) -> Iterator[Orch]:
    """In the end there is nothing in any collection of the cloud, and nothing on record."""
    orch = Orch(tmp_path, dict(aws.env))
    orch.ok("config", "set", "aws.instance_profile", "orch-host")
    yield orch
    there, known = left(aws), json.loads(orch.ok("status", "-o", "json"))["clusters"]
    for cluster in known:  # of a test that failed: the next one is to find nothing
        orch("down", cluster["name"])
    assert (there, known) == ([], [])


@pytest.fixture
def start(orch: Orch) -> Iterator[Callable[..., Heard]]:
    with listening(orch) as start:
        yield start


def left(aws: SimulatedAws) -> list[str]:
    """Instances, and what was made beside them."""
    with aws.cloud.open() as cloud:
        instances = [f"instances {look.name} {look.phase}" for look in cloud.live()]
        return instances + [one for one in beside(cloud) if not one.endswith("/default")]


def task(orch: Orch, text: str, command: str = "") -> str:
    (orch.folder / "task.yaml").write_text(text % command if command else text)
    return "task.yaml"


OF_ALL = 'echo "$ORCH_RANK of $ORCH_NUM_HOSTS"'


def test_two_p5_train_together_in_the_zone_that_has_them(orch: Orch, aws: SimulatedAws) -> None:
    done = orch(*H100, "--bucket", "s3://runs", "--checkpoint-every", "4", *TINY, "steps=8")
    assert done.returncode == 0, done.stderr
    assert "us-east-1a" in done.stderr and "InsufficientInstanceCapacity" in done.stderr, "the full zone is reported"
    assert "checkpoint 8 written" in done.stderr + done.stdout
    (found,) = json.loads(orch.ok("status", "-o", "json"))["clusters"]
    assert (found["machines"]["slice"], found["machines"]["zone"]) == (
        slice_name("p5", 2, home=orch.state.parent),
        "us-east-1b",
    )
    assert sorted(orch.ok("exec", "p5", "--no-prefix", "--", OF_ALL).splitlines()) == ["0 of 2", "1 of 2"]
    assert "rank 1/2: torch" in orch.ok("logs", "p5", "1", "--host", "1", "--no-prefix")
    assert re.fullmatch(r"127\S+ \d+\n", orch.ok("ssh", "p5", "1", "--", "echo ${SSH_CONNECTION#* * }"))
    assert "checkpoints/" in orch.ok("storage", "ls", f"s3://runs/{found['jobs'][0]['run_id']}")
    orch.ok("down", "p5")
    assert left(aws) == []


@pytest.mark.parametrize(
    ("region", "bucket"), [("us-east-1", "s3://west"), ("us-west-2", "s3://runs"), ("us-west-2", "s3://west")]
)
def test_a_run_finds_the_region_of_its_bucket_wherever_its_machines_are(
    orch: Orch, aws: SimulatedAws, region: str, bucket: str
) -> None:
    aws.buckets.create_bucket_in("us-west-2", "west")
    command = ("train", "H100:1", "--infra", f"aws/{region}", "--backend", "cpu", "-c", "far", "--yes")
    done = orch(*command, "--bucket", bucket, "--checkpoint-every", "4", *TINY, "steps=8")
    assert done.returncode == 0, done.stderr
    assert "checkpoint 8 written" in done.stderr + done.stdout
    (found,) = json.loads(orch.ok("status", "-o", "json"))["clusters"]
    assert found["machines"]["zone"].startswith(region)
    assert "step-00000008" in orch.ok("storage", "ls", "-r", f"{bucket}/{found['jobs'][0]['run_id']}")
    seen = orch.ok("exec", "far", "--no-prefix", "--", "echo ${AWS_REGION-none}")
    assert seen == "none\n", "for programs it is the region they run in"
    orch.ok("down", "far")


def test_a_program_gets_the_region_of_its_bucket_and_no_other(orch: Orch, aws: SimulatedAws) -> None:
    aws.buckets.create_bucket_in("us-west-2", "west")
    shows = ONE + "checkpoint: {bucket: 's3://west'}\n"
    done = orch("launch", task(orch, shows, 'echo "region $ORCH_BUCKET_REGION of ${AWS_REGION-none}"'), "--yes")
    assert done.returncode == 0, done.stderr
    assert "region us-west-2 of none" in done.stdout + done.stderr
    orch.ok("down", "one")


def test_four_trn1_on_spot_go_on_after_a_reclaim_and_after_down_by_resume(
    orch: Orch, aws: SimulatedAws, start: Callable[..., Heard]
) -> None:
    training = start(*TRAINIUM, "--bucket", "s3://runs", "--checkpoint-every", "20", *TINY, "steps=100000")
    training.until(r"checkpoint 20 written(?s:.*)step \d+0/")
    with aws.cloud.open() as cloud:
        (name,) = [look.name for look in cloud.live() if look.phase is Phase.READY]
        cloud.do(name, Deed.PREEMPT)
    first, second = (slice_name("trn", number, home=orch.state.parent) for number in (1, 2))
    training.until(rf"creating {second}(?s:.*)step \d+0/")
    orch.ok("down", "trn")
    assert training.status() == 130 and "was taken down" in training.text, training.text
    assert left(aws) == []
    said = orch.ok("events", "trn")
    assert re.search(rf"{first}: .*preempt", said) and f"{second}: planned -> accepted" in said, said

    resumed = start("resume", "trn", "--yes")
    resumed.until(r"step \d+0/(?s:.*)step \d+0/")
    assert orch.ok("exec", "trn", "--host", "3", "--no-prefix", "--", OF_ALL) == "3 of 4\n"
    resumed.process.send_signal(signal.SIGINT)
    assert resumed.status() == 130, resumed.text
    first, second = losses(training.text), losses(resumed.text)
    curve = dict(first)
    assert [step for step, _ in first].count(1) == 1, "the second attempt began again"
    assert second[0][0] > 20 and second[-1][1] < first[0][1]
    assert all(curve[step] == loss for step, loss in [*first, *second] if step in curve), (first, second)
    orch.ok("down", "trn")


def test_a_machine_is_stopped_and_started_and_a_failure_reaches_the_exit_status(orch: Orch) -> None:
    failed = orch("launch", task(orch, ONE, "echo boom; exit 9"), "--yes")
    assert failed.returncode == 9, failed.stderr
    orch.ok("stop", "one")
    assert "disks" in orch.ok("status") and "$" not in orch.ok("status")
    assert json.loads(orch.ok("status", "-o", "json"))["clusters"][0]["machines"]["price_per_hour"] is None
    orch.ok("start", "one", "--yes")
    assert "$" in orch.ok("status")
    assert orch.ok("exec", "one", "--no-prefix", "--", "echo here") == "here\n"
    orch.ok("down", "one")
    (run,) = [run for run in json.loads(orch.ok("runs", "-o", "json"))["runs"] if run["cluster"] == "one"]
    assert (run["status"], run["state"]) == (9, "ended") and run["dollars"] > 0, run


EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "cpu-aws.yaml"


@pytest.mark.core
def test_the_example_runs_on_a_small_machine_without_accelerators_and_leaves_nothing(
    orch: Orch, aws: SimulatedAws
) -> None:
    done = orch("launch", str(EXAMPLE), "--yes", "-c", "cents")
    assert done.returncode == 0, done.stderr
    assert "t3.medium is the cheapest of the 22 types in orch's table that fit" in done.stderr
    (found,) = json.loads(orch.ok("status", "-o", "json"))["clusters"]
    assert found["machines"]["accelerator"] == "t3.medium" and found["machines"]["price_per_hour"] == 0.0416
    with aws.cloud.open() as cloud:
        assert not [one for one in beside(cloud) if "eipalloc" in one or "placement" in one]
    assert orch.ok("exec", "cents", "--no-prefix", "--", "echo $ORCH_CHIPS_PER_HOST") == "0\n"
    assert re.search(r"(?m)^\d+$", orch.ok("logs", "cents", "1", "--no-prefix")), "nproc has run"
    orch.ok("down", "cents")
    assert left(aws) == []


def test_the_example_has_a_plan_in_an_empty_home(tmp_path: Path) -> None:
    planned = json.loads(Orch(tmp_path).ok("launch", str(EXAMPLE), "--dry-run", "-o", "json"))
    (create,) = [step for step in planned["steps"] if step["do"] == "create_slice"]
    assert create["request"]["body"]["InstanceType"] == "t3.medium"
    assert planned["wanted"]["candidates"][0]["price_per_hour"] == 0.0416


DRY = """
import socket, sys
from orchestrator.__main__ import main
def refused(*args, **kwargs):
    raise AssertionError(f"the network was asked: {args}")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refused
status = main(sys.argv[1:])
loaded = [name for name in sys.modules if name.partition(".")[0] in ("boto3", "botocore", "jmespath", "urllib3")]
assert not loaded, loaded
sys.exit(status)
"""


def test_a_dry_run_sends_nothing_loads_no_aws_library_and_writes_nothing(tmp_path: Path) -> None:
    orch = Orch(tmp_path)
    words = [*H100[:-1], "--bucket", "s3://runs", "--dry-run", "-o", "json", *TINY]
    done = subprocess.run(
        [sys.executable, "-c", DRY, *words], capture_output=True, text=True, env=orch.env, cwd=tmp_path, check=False
    )
    assert done.returncode == 4, done.stderr
    refusal = json.loads(done.stdout)["refusal"]
    assert refusal["status"] == 4 and "aws.instance_profile" in refusal["next_step"], "as a real launch would refuse"
    (create,) = [step for step in json.loads(done.stdout)["steps"] if step["do"] == "create_slice"]
    assert create["request"]["method"] == "RunInstances"
    assert len(create["request"]["body"]["NetworkInterfaces"]) == 33
    assert "aws.instance_profile" in done.stderr
    assert list(tmp_path.rglob("*")) == []


def test_machines_that_could_not_open_the_bucket_are_not_rented(aws: SimulatedAws, tmp_path: Path) -> None:
    orch = Orch(tmp_path, {**aws.env, "AWS_ENDPOINT_URL": "https://ec2.invalid"})  # as with the real one: no stand-ins
    done = orch(*H100, "--bucket", "s3://runs", *TINY)
    assert done.returncode == 4, done.stderr
    assert "s3://runs" in done.stderr and "aws.instance_profile" in done.stderr
