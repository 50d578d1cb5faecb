"""`orch simulate CLOUD`: a command meets the simulated cloud, and nothing of a real one or of other records."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from support.orch_process import Orch

SHOW = "import json, os; print(json.dumps(dict(os.environ)))"
ASK_AWS = """
import boto3, json, os
from botocore.exceptions import ClientError
boto3.client("s3").put_object(Bucket="mine", Key="k", Body=b"1")
names = []
for client in (boto3.client("s3"), boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])):
    names += [one["Key"] for one in client.list_objects_v2(Bucket="mine")["Contents"]]
name = "/aws/service/neuron/dlami/base/ubuntu-24.04/latest/image_id"
try:
    boto3.client("ssm").get_parameter(Name=name)
except ClientError as error:
    refused = error.response["Error"]["Code"]
who = boto3.client("sts").get_caller_identity()["Account"]
print(json.dumps({"names": names, "refused": refused, "who": who, "env": dict(os.environ)}))
"""


@pytest.fixture
def orch(tmp_path: Path) -> Orch:
    leaks = {
        "GOOGLE_APPLICATION_CREDENTIALS": "real",
        "CLOUDSDK_CORE_ACCOUNT": "real",
        "AWS_PROFILE": "real",
        "AWS_SESSION_TOKEN": "real",
        "ORCH_STORE": "real",
    }
    return Orch(tmp_path, {"TMPDIR": str(tmp_path), **leaks})


def test_the_command_reaches_the_simulated_google_and_nothing_else(orch: Orch) -> None:
    env = json.loads(orch.ok("simulate", "gcp", "--", sys.executable, "-c", SHOW))
    assert env["ORCH_GCP_ENDPOINT"].startswith("http://127.0.0.1:")
    assert env["CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU"] == env["ORCH_GCP_ENDPOINT"] + "/"
    assert "real" not in env.values()
    assert "GOOGLE_APPLICATION_CREDENTIALS" not in env and "CLOUDSDK_CONFIG" not in env
    assert env["AWS_SHARED_CREDENTIALS_FILE"] == os.devnull, "no account of another cloud is reached either"
    assert Path(env["ORCH_HOME"]) != orch.folder / "orch"
    assert not Path(env["ORCH_HOME"]).exists(), "the folder of one play is removed after it"


def test_the_command_reaches_the_simulated_aws_with_the_faults_of_the_scenario(orch: Orch) -> None:
    (orch.folder / "mine.toml").write_text('[[fault]]\ncall = "*"\nfault = "denied"\nrate = 1.0\ntimes = 1\n')
    words = ("simulate", "aws", "--scenario", "mine.toml", "--", sys.executable, "-c", ASK_AWS)
    seen = json.loads(orch.ok(*words))
    assert (seen["names"], seen["who"], seen["refused"]) == (["k", "k"], "123456789012", "AccessDeniedException")
    env = seen["env"]
    assert env["AWS_ENDPOINT_URL"].startswith("http://127.0.0.1:")
    assert (env["AWS_REGION"], env["AWS_DEFAULT_REGION"], env["AWS_PAGER"]) == ("us-east-1", "us-east-1", "")
    assert env["AWS_CONFIG_FILE"] == env["AWS_SHARED_CREDENTIALS_FILE"] == os.devnull
    assert env["AWS_EC2_METADATA_DISABLED"] == "true"
    assert "real" not in env.values()
    assert not Path(env["GOOGLE_APPLICATION_CREDENTIALS"]).exists(), "no account of another cloud is reached either"


@pytest.mark.parametrize(
    ("program", "status"), [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137)]
)
def test_its_exit_status_is_the_commands(orch: Orch, program: str, status: int) -> None:
    assert orch("simulate", "gcp", "--", sys.executable, "-c", program).returncode == status


def test_a_command_that_cannot_be_run_is_reported_in_a_few_lines(orch: Orch) -> None:
    done = orch("simulate", "gcp", "--", "no-such-program")
    assert done.returncode == 2
    assert "no-such-program cannot be run" in done.stderr and len(done.stderr.splitlines()) <= 5


def test_a_mistake_in_a_scenario_is_reported_with_the_path_of_the_user(orch: Orch) -> None:
    (orch.folder / "mine.toml").write_text("sed = 1\n")
    done = orch("simulate", "gcp", "--scenario", "mine.toml", "--", "true")
    assert done.returncode == 2 and "mine.toml" in done.stderr, done.stderr


def test_a_scenario_is_named_or_is_a_file(orch: Orch) -> None:
    orch.ok("simulate", "gcp", "--scenario", "calm", "--", "true")
    (orch.folder / "calm").write_text("sed = 1\n")
    assert orch("simulate", "gcp", "--scenario", "calm", "--", "true").returncode == 2, (
        "the user's own file comes first"
    )
    wrong = orch("simulate", "gcp", "--scenario", "clam", "--", "true")
    assert wrong.returncode == 2 and "there is no scenario 'clam'" in wrong.stderr and "calm, flaky-api" in wrong.stderr


def test_an_unknown_option_is_not_taken_for_the_command(orch: Orch) -> None:
    wrong = orch("simulate", "gcp", "--scenari", "calm", "--", "true")
    assert wrong.returncode == 2 and "--scenari" in wrong.stderr


def test_a_named_home_folder_is_kept_with_its_records(orch: Orch) -> None:
    for _ in range(2):
        orch.ok("simulate", "gcp", "--home", "kept", "--", sys.executable, "-m", "orchestrator", "status")
    assert (orch.folder / "kept").is_dir()


def test_without_a_command_it_serves_until_ctrl_c_and_prints_what_to_export(orch: Orch) -> None:
    with orch.start("simulate", "gcp") as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().startswith("export ORCH_GCP_ENDPOINT=http://127.0.0.1:")
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        ("", "the servers of the simulated clouds (distribution orch-fronts) are not installed"),
        (
            "[orch.fronts]\ngcp = absent_module:open_front\n",
            "absent_module:open_front: No module named 'absent_module'",
        ),
    ],
)
def test_without_an_installed_front_it_says_what_to_install(orch: Orch, declared: str, why: str) -> None:
    first = orch.folder / "first"  # Python takes the first distribution of a name on its path
    info = first / "orch_fronts-9.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: orch-fronts\nVersion: 9\n")
    (info / "entry_points.txt").write_text(declared)
    refused = Orch(orch.folder, {**orch.more, "PYTHONPATH": str(first)})("simulate", "gcp", "--home", "h", "--", "true")
    assert refused.returncode == 2
    assert refused.stderr.splitlines() == [
        "error[usage]: orch simulate gcp is not available",
        f"  why:  {why}",
        "  next: in a checkout of orch: scripts/bootstrap   or: pip install --no-deps ./tests/fronts",
    ]
    assert not (orch.folder / "h").exists(), "nothing was begun"
