"""The schema for editors and the table for people say what the reader does."""

from pathlib import Path

import jsonschema
import pytest
import yaml

from orchestrator.task.errors import TaskError
from orchestrator.task.export import list_fields, make_files, make_task_schema
from orchestrator.task.model import Task, TaskSection
from orchestrator.task.parse import parse_task

ROOT = Path(__file__).parents[2]
# SkyPilot task YAML reference, release 0.14.1.
DIALECT = """
name workdir num_nodes resources setup run envs secrets managed_secrets file_mounts volumes service pool config inputs
outputs api_server_access event_callback file_mounts_mapping volume_mounts _metadata
"""
DIALECT_RESOURCES = """
infra cloud region zone accelerators accelerator_args instance_type cpus memory use_spot job_recovery disk_size
disk_tier local_disk ephemeral_storage network_tier max_hourly_cost ports image_id labels autostop volumes priority
priority_class any_of ordered
"""
VALIDATOR = jsonschema.Draft202012Validator(make_task_schema())
FIELDS = dict(list_fields(TaskSection.json_schema()))


@pytest.mark.parametrize(("file", "text"), make_files().items(), ids=[file.name for file in make_files()])
def test_each_file_made_from_the_models_is_current(file: Path, text: str) -> None:
    assert file.read_text(encoding="utf-8") == text, "python -m orchestrator.task.export"


def test_every_field_of_the_public_dialect_is_in_the_table() -> None:
    paths = set(FIELDS)
    assert set(DIALECT.split()) <= paths
    assert {f"resources.{name}" for name in DIALECT_RESOURCES.split()} <= paths
    args = {
        f"resources.accelerator_args.{name}"
        for name in ("runtime_version", "tpu_name", "tpu_vm", "gcp_queued_resource")
    }
    stop = {f"resources.autostop.{name}" for name in ("idle_minutes", "down", "wait_for", "hook", "hook_timeout")}
    storage = {f"file_mounts.*.{name}" for name in ("name", "source", "store", "persistent", "mode", "type", "config")}
    assert args | stop | storage <= paths


# One value for every served field; together they are a check that no served field is refused.
SERVED = {
    "name": "a",
    "workdir": ".",
    "workdir.url": "https://example.org/a.git",
    "workdir.ref": "main",
    "git": {"commit": "0123abc"},
    "git.commit": "0123abc",
    "git.branch": "main",
    "git.changes": "0123abcd",
    "git.remote": "https://example.org/a.git",
    "git.version": "1.2.3",
    "git.version_variable": "PBR_VERSION",
    "num_nodes": 2,
    "resources": {},
    "resources.infra": "gcp",
    "resources.cloud": "gcp",
    "resources.priority_class": "high",
    "resources.ephemeral_storage": 50,
    "inputs": {"s3://bbb": 3},
    "outputs": {"s3://bbb": 3},
    "resources.region": "us-west4",
    "resources.zone": "us-west4-a",
    "resources.accelerators": "v5e-16",
    "resources.accelerator_args": {},
    "resources.accelerator_args.runtime_version": "v2-alpha-tpuv5-lite",
    "resources.accelerator_args.tpu_vm": True,
    "resources.accelerator_args.gcp_queued_resource": True,
    "resources.accelerator_args.topology": "4x4",
    "resources.accelerator_args.provisioning": "best-effort",
    "resources.accelerator_args.reservation": "-",
    "resources.accelerator_args.max_run_hours": 2.5,
    "resources.accelerator_args.valid_hours": 1,
    "resources.accelerator_args.data_disks": ["data:ro"],
    "resources.accelerator_args.secure_boot": True,
    "resources.accelerator_args.api": "tpu",
    "resources.accelerator_args.placement_group": "mine",
    "resources.accelerator_args.framework": "jax",
    "resources.instance_type": "p5.48xlarge",
    "resources.cpus": "4+",
    "resources.memory": "16GB+",
    "resources.use_spot": True,
    "resources.disk_size": "200GB",
    "resources.network_tier": "standard",
    "resources.image_id": "ami-1",
    "resources.labels": {"a": "b"},
    "resources.max_hourly_cost": 1000,
    "resources.num_nodes": 2,
    "resources.settings": {"accumulate": 2},
    "resources.estimate": {"steps": 100},
    "resources.estimate.step_seconds": [0.5, 1.0],
    "resources.estimate.steps": 100,
    "resources.estimate.source": "MaxText",
    "resources.estimate.losses_per_hour": 0.05,
    "resources.grow": True,
    "resources.auto": {"budget": 100},
    "resources.auto.budget": 100,
    "resources.auto.by": "5d",
    "resources.auto.max_hosts": 8,
    "resources.auto.only": "gcp,spot",
    "resources.auto.tokens": "20B",
    "resources.auto.flops": 1e21,
    "resources.auto.memory": 320,
    "resources.any_of": [{"infra": "gcp"}],
    "resources.ordered": [{"infra": "gcp"}],
    "resources.autostop": "1h",
    "resources.autostop.idle_minutes": 3,
    "resources.autostop.down": True,
    "resources.autostop.wait_for": "jobs",
    "resources.job_recovery": "FAILOVER",
    "resources.job_recovery.strategy": "FAILOVER",
    "resources.job_recovery.max_restarts_on_errors": 1,
    "resources.job_recovery.recover_on_exit_codes": [1],
    "setup": "a",
    "run": "a",
    "metrics": {},
    "metrics.pattern": "iter {step} {} loss={loss}",
    "envs": {"A": 1},
    "secrets": {"A": "b"},
    "file_mounts": {"/a": "s3://bbb"},
    "resources.disk_tier": "best",
    "resources.ports": ["8000-8010", 80],
    "resources.priority": -5,
    "file_mounts.*.source": "s3://bbb",
    "file_mounts.*.name": "bbb",
    "file_mounts.*.store": "gcs",
    "file_mounts.*.mode": "COPY",
    "file_mounts.*.persistent": True,
    "file_mounts.*.read_only": True,
    "config": {},
    "config.gcp": {},
    "config.gcp.vpc_name": "v",
    "config.gcp.subnet_names": ["s"],
    "config.gcp.project": "a-project",
    "config.gcp.service_account": "a@b.iam",
    "config.gcp.internal_ips": True,
    "config.gcp.tags": ["t"],
    "config.gcp.access": "iap",
    "config.gcp.jump": "me@bastion",
    "config.gcp.firewall": False,
    "config.gcp.ssh_cidr": "203.0.113.7/32",
    "config.gcp.oslogin": True,
    "config.aws": {},
    "config.aws.profile": "work",
    "config.aws.role_arn": "arn:aws:iam::123456789012:role/orch-project",
    "config.aws.external_id": "for-vision",
    "config.gcp.impersonate": "orch@p.iam.gserviceaccount.com",
    "config.aws.subnets": ["subnet-1"],
    "config.aws.security_group": "sg-1",
    "config.aws.instance_profile": "trainer",
    "config.aws.access": "ssm",
    "config.aws.jump": "me@bastion",
    "config.aws.ssh_cidr": "203.0.113.7/32",
    "config.aws.user": "ec2-user",
    "checkpoint": {},
    "checkpoint.bucket": "s3://bbb",
    "checkpoint.every": 5,
    "checkpoint.keep": 2,
    "recovery": {},
    "recovery.max_preemptions": 0,
    "recovery.max_failures": 1,
    "recovery.restart_on_exit_codes": [7],
    "recovery.fail_on_exit_codes": [2],
    "recovery.strategy": "FAILOVER",
    "recovery.hang_minutes": 0,
    "recovery.capacity_wait_hours": 1.5,
    "recovery.on_demand_fallback": True,
    "limits": {},
    "limits.max_hours": 1.5,
    "limits.idle_minutes": 3,
    "limits.max_cost": 10,
    "train": {},
    "train.backend": "xla",
    "train.args": {"model": {"dim": 64}},
    "train.smoke": True,
    "train.allow_misfit": True,
    "hosts": {"addresses": ["a"]},
    "hosts.addresses": ["a"],
    "hosts.addresses[].host": "a",
    "hosts.addresses[].user": "u",
    "hosts.addresses[].port": 2222,
    "hosts.addresses[].key": "~/k",
    "hosts.addresses[].jump": "a@b",
    "hosts.addresses[].internal_ip": "10.0.0.1",
    "hosts.user": "u",
    "hosts.port": 22,
    "hosts.key": "~/k",
    "hosts.jump": "a@b:1,c@d",
}
# What a field needs beside it to make sense.
BESIDE = {
    "hosts": {"resources": {"infra": "hosts"}, "hosts": {"addresses": ["x"]}},
    "resources": {"resources": {"accelerators": "v5e-16"}},
    "resources.auto": {"resources": {"ordered": [{"accelerators": "v5e-16"}]}},
    "resources.grow": {
        "resources": {"accelerators": "v5e-16", "estimate": {"step_seconds": [0.5, 1.0], "steps": 100}},
        "train": {"args": {"model": "tiny"}},
        "checkpoint": {"bucket": "gs://runs"},
    },
    "resources.settings": {"resources": {"accelerators": "v5e-16"}, "train": {"args": {"model": "tiny"}}},
    "resources.instance_type": {},
    "resources.cpus": {},
    "resources.memory": {},
    "resources.accelerator_args.placement_group": {"resources": {"accelerators": "H100:8"}},
    "resources.accelerator_args.framework": {"resources": {"accelerators": "Trainium:16"}},
    "resources.image_id": {"resources": {"accelerators": "H100:8", "infra": "aws/us-east-1"}},
    "resources.region": {"resources": {"accelerators": "v5e-16", "cloud": "gcp"}},
    "resources.zone": {"resources": {"accelerators": "v5e-16", "cloud": "gcp"}},
    "file_mounts.*.source": {"file_mounts": {"/data": {"read_only": True}}},
    "file_mounts.*.name": {"file_mounts": {"/data": {"store": "gcs"}}},
    "file_mounts.*.persistent": {"file_mounts": {"/data": {"source": "gs://bbb"}}},
    "file_mounts.*.store": {"file_mounts": {"/data": {"name": "bbb"}}},
    "file_mounts": {"file_mounts": {"/data": {"source": "s3://bbb"}}},
    "train.backend": {"resources": {"accelerators": "v5e-16"}},
    "workdir.ref": {"workdir": {"url": "https://example.org/a.git"}},
}


def document(path: str) -> dict[str, object]:
    beside = next((BESIDE[key] for key in (path, path.rpartition(".")[0], path.split(".", 1)[0]) if key in BESIDE), {})
    data: dict[str, object] = yaml.safe_load(yaml.safe_dump(beside))
    at: dict[str, object] = data
    parts = path.replace("*", "/data").split(".")
    for part in parts[:-1]:
        if part.endswith("[]"):
            at[part[:-2]] = [{"host": "x"}]
            at = at[part[:-2]][0]  # type: ignore[index]  # just made
        else:
            at = at.setdefault(part, {})  # type: ignore[assignment]  # sections are maps
    at[parts[-1]] = SERVED[path]
    return data


@pytest.mark.parametrize("path", [path for path, field in FIELDS.items() if "not" not in field])
def test_a_served_field_is_accepted_by_reader_and_schema(path: str) -> None:
    data = document(path)
    task = parse_task(yaml.safe_dump(data), file="t.yaml", env={}).only
    VALIDATOR.validate(data)
    assert Task.from_json(task.to_json()) == task, (
        "the record of a job has the field too: orchestrator/task/json_form.py"
    )


@pytest.mark.parametrize(
    "text",
    [
        "nam: a",
        "num_nodes: '2'",
        "resources: {local_disk: nvme}",
        "service: {}",
        "limits: {max_hours: 0}",
        "workdir: ''",
    ],
)
def test_reader_and_schema_refuse_the_same(text: str) -> None:
    assert not VALIDATOR.is_valid(yaml.safe_load(text))
    with pytest.raises(TaskError):
        parse_task(text, file="t.yaml", env={})


@pytest.mark.parametrize(
    ("args", "right"),
    [
        ("{steps: 5, model.dim: 64, optim: {lr: 0.1}, model: 300m, dtype: bf16}", True),
        ("{model: {dim: 64}, data: gs://bbb/x, checkpoint.uri: null}", True),
        ("{stesp: 5}", False),
        ("{optim: {rate: 1}}", False),
        ("{dtype: bf61}", False),
        ("{steps: 0}", False),
        ("{steps: true}", False),
    ],
)
def test_an_editor_checks_the_settings_of_the_trainer(args: str, right: bool) -> None:
    assert VALIDATOR.is_valid(yaml.safe_load(f"train: {{args: {args}}}")) is right


def test_an_editor_offers_the_names_of_machines_and_takes_others() -> None:
    schema = make_task_schema()
    assert {"v5litepod-16", "H100:8", "Trainium:16"} <= set(schema["$defs"]["accelerators"]["enum"])
    assert {"p5.48xlarge", "g2-standard-4"} <= set(schema["$defs"]["instance_type"]["enum"])
    for written in ("gpus: 'H100:8'", "accelerators: 'v4:2x2x4'", "any_of: [{accelerators: h100:8}]"):
        VALIDATOR.validate(yaml.safe_load(f"resources: {{{written}}}"))


def test_every_property_of_the_schema_is_described_and_the_schema_has_a_name() -> None:
    schema = make_task_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"] == "urn:orch:task-file"
    assert [path for path, node in list_fields(schema) if not node.get("description")] == []


def test_every_example_is_valid_by_the_schema() -> None:
    for path in (ROOT / "examples").glob("*.yaml"):
        VALIDATOR.validate(yaml.safe_load(path.read_text(encoding="utf-8")))


def test_a_task_as_json_is_valid_by_the_schema() -> None:
    import json

    task = parse_task("resources: {accelerators: [v5e-16, 'H100:8']}\nrun: x\n", file="t.yaml", env={}).only
    VALIDATOR.validate(json.loads(task.to_json()))
