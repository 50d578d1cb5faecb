"""A task to JSON and back: equal, itself a task file, and without secrets."""

import hashlib
import json
from pathlib import Path

import pytest

from orchestrator.task.errors import TaskError
from orchestrator.task.model import Task
from orchestrator.task.parse import load_task_file, parse_task
from orchestrator.values import Secret

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))

FULL = """
name: full
num_nodes: 2
workdir: {url: "https://example.org/a.git", ref: main}
resources:
  autostop: {idle_minutes: 9, down: true, wait_for: jobs}
  job_recovery: {strategy: FAILOVER, max_restarts_on_errors: 4}
  max_hourly_cost: 99.5
  ordered:
    - {infra: gcp/us-west4/us-west4-a, accelerators: tpu-v5e-16, labels: {a: "", b: c},
       accelerator_args: {runtime_version: r, gcp_queued_resource: true, topology: 4x4, provisioning: flex-start,
                          max_run_hours: 2.5, valid_hours: 1, data_disks: ["d:ro"], secure_boot: true, api: tpu}}
    - {accelerators: v5e-8, accelerator_args: {reservation: mine}}
    - {instance_type: p5.48xlarge, infra: aws/us-east-1, use_spot: true, disk_size: 2TB, network_tier: best,
       image_id: {us-east-1: ami-1}}
    - {accelerators: p5.48xlarge, infra: aws/us-east-2/us-east-2a,
       accelerator_args: {provisioning: capacity-block, reservation: cr-1, placement_group: g, framework: torch}}
    - {instance_type: p9.48xlarge, infra: aws/us-east-2}
    - {infra: local, accelerators: v5e-16}
envs: {EMPTY: "", A: "a$b", N: 3}
secrets: {TOKEN: hidden, OTHER: alsohidden}
file_mounts:
  /a/$N: {source: s3://bbb/x, mode: COPY}
  /b: ./x$A
setup: "  echo $A\\n"
train: {backend: cpu, smoke: true, args: {data.tokenizer: null, optim: {lr: 1.5}}}
checkpoint: {bucket: s3://bbb/, every: 3, keep: 9}
recovery:
  {max_preemptions: 0, restart_on_exit_codes: [3, 4], fail_on_exit_codes: [9],
   hang_minutes: 0, on_demand_fallback: true}
limits: {max_hours: 1.5, idle_minutes: 9, max_cost: 3}
config:
  gcp: {vpc_name: v, subnet_names: [s, t], project: a-project, service_account: a@b, internal_ips: true, tags: [t, u],
        access: jump, jump: me@bastion, firewall: false, ssh_cidr: 203.0.113.7/32, oslogin: true}
  aws: {profile: p, subnets: [subnet-1, subnet-2], security_group: sg-1, instance_profile: i, access: jump,
        jump: me@bastion, ssh_cidr: 203.0.113.7/32, user: ec2-user}
"""


def test_everything_survives() -> None:
    task = parse_task(FULL, file="t.yaml", env={}).only
    assert dict(task.envs) == {"EMPTY": "", "A": "a$b", "N": "3"}
    assert Task.from_json(task.to_json()) == task


HOSTS = """
run: "true"
resources: {infra: hosts}
hosts: {user: u, addresses: [a, {host: "10.0.0.7", port: 23, jump: u@g}]}
"""


@pytest.mark.parametrize(
    ("text", "digest"),
    [
        (FULL, "e6f568918343a31ede7ae9163a8af5ae34bd658019b079019c59f04ed1deb4e0"),
        (HOSTS, "3b064db6dc5844b8547189518c8134eac1619eeab25723ee134e8ed0e3a49dba"),
    ],
    ids=["full", "hosts"],
)
def test_the_compared_json_has_the_bytes_of_earlier_versions(text: str, digest: str) -> None:
    """A job's digest covers them: after an upgrade the same command must find its unfinished job."""
    task = parse_task(text, file="t.yaml", env={}).only
    assert hashlib.sha256(task.to_compared().encode()).hexdigest() == digest
    assert hashlib.sha256(Task.from_json(task.to_json()).to_compared().encode()).hexdigest() == digest


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.name for path in EXAMPLES])
def test_every_example_parses_and_survives(path: Path) -> None:
    found = load_task_file(str(path), env={"HF_TOKEN": "hf"})
    assert found.only.name
    assert Task.from_json(found.only.to_json()) == found.only


def test_there_is_an_example_of_each_kind() -> None:
    names = {path.stem for path in EXAMPLES}
    assert {"train-local", "tpu-v5e-16", "p5", "trn1", "hosts"} <= names


@pytest.mark.parametrize(
    "text",
    [
        "resources: {infra: 'local:4'}",
        "num_nodes: 3",
        "num_nodes: 2\nresources: {infra: 'local:v5e-16'}",
        "resources: {infra: hosts}\nhosts: {user: u, addresses: [a, 'b:2', '[::1]:3']}",
        "resources: {infra: hosts, accelerators: 'H100:3'}\nhosts: {addresses: [a, b]}",
        "resources: {infra: hosts, accelerators: v5e-16}\nhosts: {addresses: [a, b, c, d, e, f, g, h]}",
        "resources: {infra: hosts, accelerators: p5.48xlarge}\nhosts: {addresses: [a]}",
        "resources: {accelerators: {H100: 8, A100: 8}}",
        "resources: {instance_type: p5.48xlarge, image_id: {us-east-1: ami-1}}",
        "secrets: {}\nenvs: {}",
        "workdir: .\nrun: x",
    ],
)
def test_each_kind_of_place_survives(text: str) -> None:
    task = parse_task(text, file="t.yaml", env={}).only
    restored = Task.from_json(task.to_json())
    assert restored == task
    assert [restored.count_hosts(c) for c in restored.choices] == [task.count_hosts(c) for c in task.choices]


def test_secrets_are_there_by_name_only_and_can_be_given_again() -> None:
    task = parse_task(FULL, file="t.yaml", env={}).only
    text = task.to_json()
    assert "hidden" not in text
    assert json.loads(text)["secrets"] == {"TOKEN": None, "OTHER": None}
    restored = Task.from_json(text)
    assert (restored.secrets, restored.missing_secrets, task.missing_secrets) == ((), ("TOKEN", "OTHER"), ())
    given = restored.with_secrets((Secret("TOKEN", "x"), Secret("STRANGE", "y")))
    assert ([secret.name for secret in given.secrets], given.missing_secrets) == (["TOKEN"], ("OTHER",))


def test_a_mount_of_s3_says_whether_it_is_written_to() -> None:
    text = "resources: {accelerators: 'H100:8'}\nfile_mounts: {/r: {source: s3://bbb, read_only: true}, /w: {source: s3://ccc}}"
    task = parse_task(text, file="t.yaml", env={}).only
    assert Task.from_json(task.to_json()) == task
    assert parse_task(task.to_json(), file="task.json", env={}).only == task


def test_the_json_is_a_task_file() -> None:
    task = parse_task(
        "name: a\nresources: {accelerators: [v5e-16, 'H100:8']}\nenvs: {A: 1}\nrun: x\n", file="t", env={}
    ).only
    assert parse_task(task.to_json(), file="task.json", env={}).only == task


@pytest.mark.parametrize("text", ["", "{", "[]", '{"nam": 1}', '{"resources": {"infra": "x"}}', "[" * 100_000, "null"])
def test_what_is_not_a_task_is_refused(text: str) -> None:
    with pytest.raises(TaskError):
        Task.from_json(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"run": "a", "run": "b"}', "the key 'run' twice"),
        ('{"envs": {"A": "1", "A": "2"}, "run": "b"}', "the key 'A' twice"),
        ('{"limits": {"max_hours": NaN}}', "NaN where a number must be"),
        ('{"limits": {"max_hours": -Infinity}}', "-Infinity where a number must be"),
        ('{"limits": {"max_cost": 1e999}}', "1e999 where a number must be"),
        ('{"envs": ' + "[" * 40 + "]" * 40 + "}", "nested more than 32 levels"),
        ('{"envs": ' * 10_000 + "{}" + "}" * 10_000, "nested more than 32 levels"),
        ('{"num_nodes": ' + "9" * 5_000 + "}", "integer string conversion"),
    ],
)
def test_what_two_readers_could_understand_differently_is_refused(text: str, why: str) -> None:
    with pytest.raises(TaskError) as caught:
        Task.from_json(text)
    assert why in caught.value.why
    assert len(str(caught.value)) < 300
