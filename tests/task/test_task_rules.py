"""Combinations that cannot be. Each is refused with what is wrong; the same file without it is accepted."""

import pytest

from orchestrator.errors import UserError
from orchestrator.storage.address import Address
from orchestrator.task.errors import InvalidValueError, TaskError
from orchestrator.task.layers import Overrides
from orchestrator.task.parse import parse_task
from orchestrator.task.short_forms import check_bucket

# what breaks the rule, what is said (line: what), the same put right
RULES = [
    ("resources: {infra: local, use_spot: true}", "1: `use_spot` with infra: local", "resources: {infra: local}"),
    (
        "resources:\n  infra: gcp\n  cloud: gcp\n  accelerators: v5e-8",
        "3: `infra` and `cloud` exclude each other",
        "resources:\n  cloud: gcp\n  accelerators: v5e-8",
    ),
    (
        "resources:\n  any_of: [{infra: local}]\n  ordered: [{infra: local}]",
        "3: `any_of` and `ordered` exclude each other",
        "resources:\n  ordered: [{infra: local}]",
    ),
    (
        "resources:\n  any_of:\n  - any_of: [{infra: local}]",
        "3: `resources.any_of[0].any_of` is not served by orch",
        "resources:\n  any_of:\n  - infra: local",
    ),
    (
        "resources:\n  ordered:\n  - autostop: 5",
        "3: `resources.ordered[0].autostop` is not served by orch",
        "resources:\n  autostop: 5\n  ordered:\n  - infra: local",
    ),
    ("run: a\ntrain: {}", "2: `run` and `train` exclude each other", "train: {}"),
    (
        "resources: {infra: aws, accelerators: v5e-8}",
        "1: v5litepod-8 is not on aws",
        "resources: {infra: gcp, accelerators: v5e-8}",
    ),
    (
        "resources: {infra: gcp, accelerators: 'H100:8'}",
        "1: p5.48xlarge is not on gcp",
        "resources: {accelerators: 'H100:8'}",
    ),
    (
        "resources: {infra: gcp, accelerators: 'L4:1', accelerator_args: {topology: 2x2}}",
        "1: `topology` has no meaning for g2-standard-4",
        "resources: {infra: gcp, accelerators: 'L4:1'}",
    ),
    (
        "resources: {instance_type: p5.48xlarge, accelerators: 'A100:8'}",
        "1: p5.48xlarge has 8 H100, not A100:8",
        "resources: {instance_type: p5.48xlarge, accelerators: 'H100:8'}",
    ),
    (
        "resources: {instance_type: trn1n.32xlarge, accelerators: 'Trainium:1'}",
        "1: trn1n.32xlarge has 16 Trainium, not Trainium:1",
        "resources: {instance_type: trn1n.32xlarge, accelerators: 'Trainium:16'}",
    ),
    (
        "resources: {infra: 'local:4', accelerators: v5e-8}",
        "1: infra: local:4 already says the shape",
        "resources: {infra: local, accelerators: v5e-8}",
    ),
    (
        "num_nodes: 2\nresources: {infra: 'local:4'}",
        "1: infra: local:4 already says how many hosts",
        "num_nodes: 2\nresources: {infra: local}",
    ),
    (
        "resources:\n  accelerators: H100:8\n  accelerator_args: {runtime_version: x}",
        "3: `accelerator_args.runtime_version` has no meaning for p5.48xlarge",
        "resources:\n  accelerators: v5e-8\n  accelerator_args: {runtime_version: x}",
    ),
    (
        "resources:\n  accelerators: v5e-8\n  accelerator_args: {placement_group: x}",
        "3: `accelerator_args.placement_group` has no meaning for v5litepod-8",
        "resources:\n  accelerators: H100:8\n  accelerator_args: {placement_group: x}",
    ),
    (
        "resources:\n  accelerators: v5e-8\n  accelerator_args: {provisioning: capacity-block, reservation: x}",
        "3: `provisioning: capacity-block` is not for v5litepod-8",
        "resources:\n  accelerators: v5e-8\n  accelerator_args: {provisioning: best-effort}",
    ),
    (
        "resources:\n  accelerators: H100:8\n  accelerator_args: {provisioning: flex-start, reservation: x}",
        "3: `provisioning: flex-start` is not for p5.48xlarge",
        "resources:\n  accelerators: H100:8",
    ),
    (
        "resources:\n  accelerators: H100:8\n  accelerator_args: {provisioning: capacity-block}",
        "3: `provisioning: capacity-block` needs a reservation",
        "resources:\n  accelerators: H100:8",
    ),
    (
        "resources:\n  accelerators: H100:8\n  infra: aws/us-east-2\n  accelerator_args: {reservation: cr-1}",
        "3: a reservation is in one zone",
        "resources: {accelerators: H100:8, infra: aws/us-east-2/us-east-2a, accelerator_args: {reservation: cr-1}}",
    ),
    (
        "resources:\n  instance_type: p5e.48xlarge",
        "1: p5e.48xlarge is not available on demand",
        "resources:\n  instance_type: p5e.48xlarge\n  use_spot: true",
    ),
    (
        "resources: {accelerators: H100:8, infra: aws}\nconfig: {aws: {subnets: [subnet-1]}}",
        "2: the region of the subnets is not said",
        "resources: {accelerators: H100:8, infra: aws/us-east-1}\nconfig: {aws: {subnets: [subnet-1]}}",
    ),
    (
        "resources:\n  accelerators: v5e-8\n  accelerator_args: {tpu_vm: false}",
        "3: `tpu_vm: false` asks for a TPU Node",
        "resources:\n  accelerators: v5e-8\n  accelerator_args: {tpu_vm: true}",
    ),
    (
        "resources:\n  accelerators: v5e-8\n  accelerator_args: {runtime_version: tpu-vm-v5-lite}",
        "3: there is no runtime version `tpu-vm-v5-lite`",
        "resources:\n  accelerators: v5e-8\n  accelerator_args: {runtime_version: v2-alpha-tpuv5-lite}",
    ),
    (
        "resources:\n  accelerators: v5e-8\n  use_spot: true\n  accelerator_args: {reservation: mine}",
        "4: `use_spot` and `reservation` exclude each other",
        "resources:\n  accelerators: v5e-8\n  accelerator_args: {reservation: mine}",
    ),
    (
        "resources:\n  accelerators: v5e-8\n  accelerator_args: {reservation: mine, provisioning: guaranteed}",
        "3: `reservation` and `provisioning: guaranteed` exclude each other",
        "resources:\n  accelerators: v5e-8\n  accelerator_args: {provisioning: guaranteed}",
    ),
    (
        "resources:\n  accelerators: v5e-8\n  accelerator_args: {provisioning: reservation-bound}",
        "3: `provisioning: reservation-bound` needs a reservation",
        "resources:\n  accelerators: v5e-8\n  accelerator_args: {provisioning: reservation-bound, reservation: mine}",
    ),
    (
        "resources:\n  accelerators: v5e-8\n  accelerator_args: {provisioning: flex-start}",
        "3: `provisioning: flex-start` needs max_run_hours",
        "resources:\n  accelerators: v5e-8\n  accelerator_args: {provisioning: flex-start, max_run_hours: 24}",
    ),
    (
        "resources:\n  accelerators: v5e-8\n  image_id: ubuntu",
        "3: `image_id` has no meaning for v5litepod-8",
        "resources:\n  accelerators: H100:8\n  image_id: {us-east-1: ami-1}",
    ),
    (
        "resources:\n  accelerators: H100:8\n  image_id: {us-east-1: docker:ubuntu, us-east-2: ami-1}",
        "3: `image_id` names a docker image among others",
        "resources:\n  accelerators: H100:8\n  image_id: {us-east-1: ami-1}",
    ),
    (
        "resources:\n  accelerators: v5e-8\n  network_tier: best",
        "3: `network_tier: best` has no meaning for v5litepod-8",
        "resources:\n  accelerators: v5e-8\n  network_tier: standard",
    ),
    (
        "resources:\n  accelerators: v5e-8\n  max_hourly_cost: 5",
        "3: v5litepod-8 costs $9.60 an hour, over max_hourly_cost",
        "resources:\n  accelerators: v5e-8\n  max_hourly_cost: 9.60",
    ),
    (
        "resources:\n  autostop: 10\nlimits:\n  idle_minutes: 20",
        "4: idle for 20 minutes and, in resources.autostop, for 10",
        "resources:\n  autostop: 10\nlimits:\n  idle_minutes: 10",
    ),
    (
        "resources: {job_recovery: {max_restarts_on_errors: 1}}\nrecovery: {max_failures: 2}",
        "2: `recovery.max_failures` and `resources.job_recovery.max_restarts_on_errors` differ",
        "resources: {job_recovery: {max_restarts_on_errors: 2}}\nrecovery: {max_failures: 2}",
    ),
    (
        "resources: {job_recovery: {recover_on_exit_codes: 1}}\nrecovery: {restart_on_exit_codes: [2]}",
        "2: `recovery.restart_on_exit_codes` and `resources.job_recovery.recover_on_exit_codes` differ",
        "resources: {job_recovery: {recover_on_exit_codes: 2}}\nrecovery: {restart_on_exit_codes: [2]}",
    ),
    ("envs: {A: 1}\nsecrets: {A: x}", "2: `A` is in envs and in secrets", "envs: {A: 1}\nsecrets: {B: x}"),
    ("envs: {ORCH_RANK: 1}", "1: `ORCH_RANK` is set by orch on every host", "envs: {MY_RANK: 1}"),
    (
        "envs: {SKYPILOT_NODE_RANK: 1}",
        "1: `SKYPILOT_NODE_RANK` is set by orch on every host",
        "envs: {SKYPILOT_DEBUG: 1}",
    ),
    (
        "resources: {infra: hosts}",
        "1: `infra: hosts` needs the hosts",
        "resources: {infra: hosts}\nhosts: {addresses: [a]}",
    ),
    (
        "run: x\nhosts: {addresses: [a]}",
        "2: `hosts` is for infra: hosts only",
        "run: x\nresources: {infra: hosts}\nhosts: {addresses: [a]}",
    ),
    (
        "resources: {infra: hosts}\nhosts:\n  addresses: [a, b, 'u@a:22']",
        "3: `u@a:22` is listed twice",
        "resources: {infra: hosts}\nhosts:\n  addresses: [a, b, 'u@a:23']",
    ),
    (
        "num_nodes: 3\nresources: {infra: hosts}\nhosts: {addresses: [a, b]}",
        "3: 2 hosts are listed and 3 are requested",
        "num_nodes: 2\nresources: {infra: hosts}\nhosts: {addresses: [a, b]}",
    ),
    (
        "resources: {infra: hosts, accelerators: v5e-16}\nhosts: {addresses: [a, b, c]}",
        "2: 3 hosts are listed and 4 are requested",
        "resources: {infra: hosts, accelerators: v5e-16}\nhosts: {addresses: [a, b, c, d]}",
    ),
    (
        "resources: {accelerators: v5e-8}\ntrain: {backend: cuda}",
        "2: `train.backend: cuda` cannot drive v5litepod-8",
        "resources: {accelerators: v5e-8}\ntrain: {backend: xla}",
    ),
    (
        "resources: {infra: 'local:2'}\ntrain: {backend: neuron}",
        "2: `train.backend: neuron` cannot drive local:2",
        "resources: {infra: 'local:2'}\ntrain: {backend: cpu}",
    ),
    (
        "train:\n  args: {model.dim: 64, model: {dim: 96}}",
        "2: `train.args` sets `model.dim` twice",
        "train:\n  args: {model.dim: 64}",
    ),
    (
        "train: {args: {model: 300}}",
        "1: `model=300`: there is no such model; did you mean model=300m?",
        "train: {args: {model: 300m}}",
    ),
    (
        "train:\n  args:\n    optim: {lrate: 1}",
        "3: the trainer has no setting `optim.lrate`; did you mean optim.lr?",
        "train:\n  args:\n    optim: {lr: 1}",
    ),
    ("train: {args: {steps: 0}}", "1: `steps=0`: must be at least 1", "train: {args: {steps: 1}}"),
    (
        "train: {args: {remat: maybe}}",
        "1: `remat=maybe`: not one of auto, none, selective, full, true, false",
        "train: {args: {remat: true}}",
    ),
    (
        "train: {args: {model.vocab: many}}",
        "1: `model.vocab=many`: not a whole number",
        "train: {args: {model.vocab: auto}}",
    ),
    (
        "train: {args: {dtype: bf61}}",
        "1: `dtype=bf61`: not one of auto, fp32, bf16; did you mean dtype=bf16?",
        "train: {args: {dtype: bf16}}",
    ),
    (
        "train: {args: {model.heads: 6}}",
        "1: model.dim=128 is not a multiple of model.heads=6",
        "train: {args: {model.heads: 2}}",
    ),
    ("run: a\ntrain: {smoke: true}", "2: `smoke` is for the bundled trainer", "train: {smoke: true}"),
    (
        "resources: {accelerators: v5e-8}\ntrain: {backend: xla, args: {engine: jax}}",
        "2: `backend: xla` and `engine=jax` exclude each other",
        "resources: {accelerators: v5e-8}\ntrain: {backend: jax, args: {engine: jax}}",
    ),
    (
        "resources: {accelerators: v5e-8}\ntrain: {args: {device: cuda}}",
        "2: `device=cuda` cannot drive v5litepod-8",
        "resources: {accelerators: v5e-8}\ntrain: {args: {device: cpu}}",
    ),
    (
        "resources: {accelerators: Trainium:16, accelerator_args: {framework: jax}}\ntrain: {args: {engine: torch}}",
        "2: `engine=torch` and `framework: jax` cannot drive trn1.32xlarge",
        "resources: {accelerators: Trainium:16, accelerator_args: {framework: torch}}\ntrain: {args: {engine: torch}}",
    ),
    (
        "resources: {any_of: [{accelerators: v5e-8}, {accelerators: 'H100:8'}]}\ntrain: {}",
        "1: v5litepod-8 and p5.48xlarge cannot be candidates of one training",
        "resources: {any_of: [{accelerators: v5e-8}, {accelerators: v6e-8}]}\ntrain: {}",
    ),
    (
        "checkpoint: {bucket: my-bucket}",
        "1: `my-bucket` is not a bucket address",
        "checkpoint: {bucket: 's3://my-bucket'}",
    ),
    (
        "checkpoint: {bucket: 'file://x/y'}",
        "1: `file://x/y` is not a bucket address",
        "checkpoint: {bucket: 'file:///x/y'}",
    ),
    ("checkpoint: {bucket: 'gs://'}", "1: `gs://` names no bucket", "checkpoint: {bucket: 'gs://aaa'}"),
    (
        "resources: {accelerators: v5e-8, accelerator_args: {runtime_version: v2-alpha-tpuv6e}}",
        "1: the runtime version `v2-alpha-tpuv6e` cannot run on v5litepod-8",
        "resources: {accelerators: v6e-8, accelerator_args: {runtime_version: v2-alpha-tpuv6e}}",
    ),
    (
        "resources: {accelerators: v4-8, accelerator_args: {runtime_version: v2-alpha-tpuv5-lite}}",
        "1: the runtime version `v2-alpha-tpuv5-lite` cannot run on v4-8",
        "resources: {accelerators: v5e-8, accelerator_args: {runtime_version: v2-alpha-tpuv5}}",
    ),
    (
        "resources: {infra: gcp, accelerators: 'L4:1', disk_size: 5}",
        "1: a boot disk of 5 GB is too small for g2-standard-4",
        "resources: {infra: gcp, accelerators: 'L4:1', disk_size: 60000}",
    ),
    (
        "resources: {infra: aws, accelerators: 'H100:8', disk_size: 74}",
        "1: a boot disk of 74 GB is too small for p5.48xlarge",
        "resources: {infra: aws, accelerators: 'H100:8', disk_size: 60000}",
    ),
    (
        "resources: {infra: aws, instance_type: t3.large, disk_size: 5}",
        "1: a boot disk of 5 GB is too small for t3.large",
        "resources: {infra: aws/us-east-1, instance_type: t3.large, disk_size: 5, image_id: ami-0123456789abcdef0}",
    ),
    ("resources: {disk_size: 0GB}", "1: `resources.disk_size` cannot be `0GB`", "resources: {disk_size: 1GB}"),
    ("resources: {autostop: 0m}", "1: `resources.autostop` cannot be `0m`", "resources: {autostop: 1m}"),
    (
        "file_mounts:\n  /d: ./a\n  /d/: ./b",
        "3: `/d/` is the target of two mounts",
        "file_mounts:\n  /d: ./a\n  /e/: ./b",
    ),
    (
        "file_mounts:\n  ~/d/x: ./a\n  d//x: ./b",
        "3: `d//x` is the target of two mounts",
        "file_mounts:\n  ~/d/x: ./a\n  /d//x: ./b",
    ),
    ("file_mounts: {~/../a: ./a}", "1: `~/../a` cannot be the target of a mount", "file_mounts: {~/..a: ./a}"),
    ("file_mounts: {/a: 's3://my+b'}", "1: `my+b` cannot be a bucket's name", "file_mounts: {/a: 's3://my-b/C'}"),
    ("file_mounts: {/a: 'gs://a..b'}", "1: `a..b` cannot be a bucket's name", "file_mounts: {/a: 'gs://a.b_c'}"),
    (
        "recovery: {restart_on_exit_codes: [3, 4], fail_on_exit_codes: [4]}",
        "1: exit status 4 is in restart_on_exit_codes and in fail_on_exit_codes",
        "recovery: {restart_on_exit_codes: [3], fail_on_exit_codes: [4]}",
    ),
    (
        "resources: {labels: {Orch-Installation: x}}",
        "1: `Orch-Installation` cannot be a label",
        "resources: {labels: {Orch: x}}",
    ),
    (
        "resources: {infra: gcp, accelerators: v5e-8, labels: {Team: a}}",
        "1: `Team: a` cannot be a label on gcp",
        "resources: {infra: gcp, accelerators: v5e-8, labels: {team: a}}",
    ),
    (
        "resources: {infra: aws, accelerators: 'H100:8', labels: {'aws:a': b}}",
        "1: `aws:a` cannot be a tag on aws",
        "resources: {infra: aws, accelerators: 'H100:8', labels: {Team: A b}}",
    ),
    (
        f"resources: {{infra: gcp, accelerators: v5e-8, labels: {{{', '.join(f'a{n}: b' for n in range(48))}}}}}",
        "1: 48 labels are too many",
        f"resources: {{infra: gcp, accelerators: v5e-8, labels: {{{', '.join(f'a{n}: b' for n in range(47))}}}}}",
    ),
    (
        "resources: {infra: aws, cpus: 4, image_id: ami-0123456789abcdef0}",
        "1: the region of ami-0123456789abcdef0 is not said",
        "resources: {infra: aws, cpus: 4, image_id: {eu-west-1: ami-0123456789abcdef0}}",
    ),
    (
        "file_mounts: {/d: {source: gs://bbb, read_only: true}}",
        "1: `read_only` has no meaning for this mount",
        "file_mounts: {/d: {source: s3://bbb, read_only: true}}",
    ),
    (
        "envs: {SKYPILOT_CLUSTER_INFO: a}",
        "1: `SKYPILOT_CLUSTER_INFO` is set by orch on every host",
        "envs: {SKYPILOT_OWN: a}",
    ),
    ("envs: {A: b}\nworkdir: ./$B", "2: `$B` is not one of the envs", "envs: {A: b}\nworkdir: ./$A"),
    ("secrets: {A: b}\nworkdir: ./$A", "2: `A` is a secret", "envs: {A: b}\nworkdir: ./$A"),
    (
        "resources: {autostop: {wait_for: none}}",
        "1: `wait_for: none` is not served",
        "resources: {autostop: {wait_for: jobs}}",
    ),
    (
        "resources: {gpus: v5e-8, accelerators: v5e-8}",
        "1: `gpus` and `accelerators` exclude each other",
        "resources: {gpus: v5e-8}",
    ),
    (
        "file_mounts: {/d: {name: bbb}}\nresources: {infra: local}",
        "1: the bucket `bbb` needs a store",
        "file_mounts: {/d: {name: bbb, store: gcs}}\nresources: {infra: local}",
    ),
    (
        "envs: {STORE: azure}\nfile_mounts: {/d: {name: bbb, store: $STORE}}",
        "2: `store` cannot be `azure`",
        "envs: {STORE: GCS}\nfile_mounts: {/d: {name: bbb, store: $STORE}}",
    ),
    ("limits: {max_hours: 87601}", "1: `limits.max_hours` cannot be 87601", "limits: {max_hours: 87600}"),
    ("limits: {idle_minutes: 525601}", "1: `limits.idle_minutes` cannot be 525601", "limits: {idle_minutes: 525600}"),
    ("resources: {disk_size: 65TB}", "1: `resources.disk_size` cannot be `65TB`", "resources: {disk_size: 64TB}"),
    (
        "resources: {infra: hosts}\nhosts: {addresses: [h], user: -oProxyCommand=x}",
        "2: `hosts.user` cannot be `-oProxyCommand=x`",
        "resources: {infra: hosts}\nhosts: {addresses: [h], user: o}",
    ),
    (
        "resources: {infra: hosts}\nhosts: {addresses: [-oA@h]}",
        "2: `-oA@h` is not the address of a host",
        "resources: {infra: hosts}\nhosts: {addresses: [oA@h]}",
    ),
]


@pytest.mark.parametrize(("wrong", "said", "right"), RULES, ids=[said[3:43] for _, said, _ in RULES])
def test_impossible_combination_is_refused_and_the_right_one_is_not(wrong: str, said: str, right: str) -> None:
    with pytest.raises(TaskError) as caught:
        parse_task(wrong + "\n", file="t.yaml", env={})
    assert [f"{problem.line}: {problem.what}" for problem in caught.value.problems] == [said]
    assert caught.value.next_step or caught.value.why
    assert parse_task(right + "\n", file="t.yaml", env={}).only


UNKNOWN = [
    ("gpc/us-west4", "did you mean `gcp`?"),
    ("kubernetes", "is not a place orch can run on"),
    ("gcp/us-west4-a", "is not a region of gcp"),
    ("gcp/us-west4/us-east5-a", "is not in the region"),
    ("aws/us-east-1/us-east-1-a", "is not a zone of aws"),
    ("local/us", "is not a place"),
    ("gcp/a/b/c", "is not a place"),
    ("gcp//x", "is not a place"),
    ("local:", "says no shape"),
    ("local:0", "is not possible"),
    ("local:v5e-12", "there is no TPU slice"),
    ("azure", "is not a place orch can run on"),
]


@pytest.mark.parametrize(("infra", "said"), UNKNOWN)
def test_a_place_that_cannot_be_is_explained(infra: str, said: str) -> None:
    with pytest.raises(TaskError) as caught:
        parse_task(f"name: a\nresources:\n  infra: '{infra}'\n", file="t.yaml", env={})
    (problem,) = caught.value.problems
    assert said in problem.what
    assert problem.line == 3
    assert problem.next_step


def test_unknown_accelerators_name_the_nearest_with_their_line() -> None:
    with pytest.raises(TaskError) as caught:
        parse_task("resources:\n  accelerators:\n  - v5e-16\n  - v5e-17\n", file="t.yaml", env={})
    (problem,) = caught.value.problems
    assert (problem.line, problem.what, problem.next_step) == (
        2,
        "there is no TPU slice `v5e-17`",
        "use v5litepod-16 or v5litepod-32",
    )


def test_spot_from_the_file_on_a_local_flag_says_which_flag_to_add() -> None:
    text = "resources: {infra: gcp, accelerators: v5e-8, use_spot: true}\n"
    with pytest.raises(TaskError) as caught:
        parse_task(text, file="t.yaml", env={}, flags=Overrides(infra="local"))
    assert "--no-use-spot" in caught.value.next_step
    found = parse_task(text, file="t.yaml", env={}, flags=Overrides(infra="local", use_spot=False)).only
    assert str(found.choices[0].infra) == "local:v5litepod-8"


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("b", False),
        ("my", False),
        ("abc", True),
        ("a..b", False),
        ("-abc", False),
        ("My_old.bucket", True),
        ("a" * 223, False),
    ],
)
def test_a_task_file_and_storage_accept_the_same_names_of_buckets(name: str, right: bool) -> None:
    for parse in (check_bucket, Address.parse):
        if right:
            parse(f"gs://{name}/runs")
            continue
        with pytest.raises((UserError, InvalidValueError), match="cannot be a bucket's name"):
            parse(f"gs://{name}/runs")


@pytest.mark.parametrize(
    "address",
    ["s3://{}@bucket/runs", "gs://ada:{}@bucket", "s3://bucket/runs?X-Amz-Signature={}", "gs://bucket?access_token={}",
     "https://bucket.s3.amazonaws.com/runs?X-Amz-Signature={}", "https://ada:{}@host/data"],
)  # fmt: skip
@pytest.mark.parametrize("place", ["checkpoint: {{bucket: '{}'}}", "file_mounts: {{/data: '{}'}}"])
def test_an_address_with_a_secret_is_refused_and_not_shown(place: str, address: str) -> None:
    secret = "canary-7c1f0e"
    text = f"run: a\nresources: {{infra: local}}\n{place.format(address.format(secret))}\n"
    with pytest.raises(TaskError) as refused:
        parse_task(text, file="t.yaml", env={})
    assert secret not in str(refused.value) and "unknown key" not in str(refused.value)


def test_a_folder_of_this_computer_may_have_a_question_mark_in_its_name() -> None:
    assert check_bucket("file:///tmp/what?") == "file:///tmp/what?"
