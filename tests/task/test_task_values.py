"""What each served field of the dialect means, as golden values of the Task."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.catalog.machines import LocalHosts
from orchestrator.task.errors import TaskError
from orchestrator.task.layers import Overrides
from orchestrator.task.model import AutoStop, FileMount, GitSource, MountMode, Order, Recovery, Task, Train, UserHost
from orchestrator.task.parse import Execution, TaskFile, parse_task

SHELL = {"FROM_SHELL": "here", "TOKEN": "s3cret"}


def read(text: str, flags: Overrides | None = None) -> TaskFile:
    return parse_task(text, file="t.yaml", env=SHELL, flags=flags)


def task(text: str, flags: Overrides | None = None) -> Task:
    return read(text, flags).only


def said(text: str, flags: Overrides | None = None) -> str:
    with pytest.raises(TaskError) as caught:
        read(text, flags)
    return " / ".join(f"{problem.line}: {problem.what}" for problem in caught.value.problems)


def test_nothing_but_a_program_runs_on_one_host_of_this_computer() -> None:
    found = task("run: echo hi\n")
    (choice,) = found.choices
    assert (str(choice.infra), choice.machine.name, found.count_hosts(choice)) == ("local", "local:1", 1)
    assert (found.run, found.num_nodes, found.recovery) == ("echo hi", 1, Recovery(max_preemptions=100, max_failures=0))


# envs: values become text as Python's str() makes them, which is what the dialect does.
ENVS = [
    ("1", "1"),
    ("-3", "-3"),
    ("1.5", "1.5"),
    ("1.0", "1.0"),
    ("0.0001", "0.0001"),
    ("1e-4", "1e-4"),
    ("1_000", "1000"),
    ("0x10", "16"),
    ("true", "True"),
    ("False", "False"),
    ("'yes'", "yes"),
    ("'3.10'", "3.10"),
    ("''", ""),
    ("2026-11-20", "2026-11-20"),
    ("a b", "a b"),
]


@pytest.mark.parametrize(("written", "text"), ENVS)
def test_envs_become_text(written: str, text: str) -> None:
    assert task(f"envs:\n  A: {written}\n").envs == (("A", text),)


@pytest.mark.parametrize("written", ["3.10", "1.50", "yes", "no", "on", "OFF"])
def test_envs_that_would_silently_change_are_refused(written: str) -> None:
    assert said(f"envs:\n  A: x\n  B: {written}\n") == "3: `envs.B` is not text"


def test_null_envs_and_secrets_come_from_the_shell_or_a_flag() -> None:
    found = task("envs: {FROM_SHELL: null, A: null}\nsecrets: {TOKEN: null}\n", Overrides(env=(("A", "b"),)))
    assert found.envs == (("FROM_SHELL", "here"), ("A", "b"))
    assert [(secret.name, secret.value) for secret in found.secrets] == [("TOKEN", "s3cret")]
    assert (
        said("envs:\n  NOPE: null\nsecrets:\n  NOR: null\n")
        == "2: `envs.NOPE` has no value / 4: `secrets.NOR` has no value"
    )


def test_a_flag_without_a_value_takes_the_shells() -> None:
    assert task("run: a\n", Overrides(env=(("FROM_SHELL", None),))).envs == (("FROM_SHELL", "here"),)


def test_a_secret_shows_nowhere() -> None:
    found = read("secrets: {TOKEN: null, OTHER: plain}\n", Overrides(secrets=(("THIRD", "v4lue"),)))
    assert [secret.value for secret in found.only.secrets] == ["s3cret", "plain", "v4lue"]
    for shown in (repr(found), str(found.only), found.only.to_json(), repr(found.explain("secrets.OTHER"))):
        assert not any(word in shown for word in ("s3cret", "plain", "v4lue"))


@pytest.mark.parametrize(
    ("accelerators", "names", "order"),
    [
        ("v5e-16", ["v5litepod-16"], Order.GIVEN),
        ("H100:8", ["p5.48xlarge"], Order.GIVEN),
        ("{H100: 8}", ["p5.48xlarge"], Order.CHEAPEST),
        ("{A100:8}", ["p4d.24xlarge"], Order.CHEAPEST),
        ("[H100:8, A100:8]", ["p5.48xlarge", "p4d.24xlarge"], Order.GIVEN),
        ("{H100: 8, A100: 8}", ["p4d.24xlarge", "p5.48xlarge"], Order.CHEAPEST),
        ("{H100:8, A100:8, v5e-8}", ["v5litepod-8", "p4d.24xlarge", "p5.48xlarge"], Order.CHEAPEST),
    ],
)
def test_accelerators_in_every_form(accelerators: str, names: list[str], order: Order) -> None:
    found = task(f"resources: {{accelerators: {accelerators}}}\n")
    assert ([choice.machine.name for choice in found.choices], found.order) == (names, order)


def test_candidates_take_what_stands_beside_them_as_defaults() -> None:
    found = task(
        """
resources:
  accelerators: v5e-16
  use_spot: true
  disk_size: 200
  ordered:
    - infra: gcp/us-west4
    - {infra: gcp/us-east5/us-east5-a, use_spot: false}
    - {infra: aws/us-east-1, instance_type: p4d.24xlarge, disk_size: 1TB}
    - {infra: gcp/us-west4}
"""
    )
    rows = [(str(c.infra), c.machine.name, c.use_spot, c.disk_size) for c in found.choices]
    assert rows == [
        ("gcp/us-west4", "v5litepod-16", True, 200),
        ("gcp/us-east5/us-east5-a", "v5litepod-16", False, 200),
        ("aws/us-east-1", "p4d.24xlarge", True, 1024),
    ]
    assert found.order is Order.GIVEN


def test_any_of_is_tried_cheapest_first_and_unknown_prices_last() -> None:
    entries = "[{accelerators: tpu7x-8}, {accelerators: H100:8}, {accelerators: v5e-8}, {accelerators: A100:8}]"
    found = task(f"resources: {{any_of: {entries}}}\n")
    assert [c.machine.name for c in found.choices] == ["v5litepod-8", "p4d.24xlarge", "p5.48xlarge", "tpu7x-8"]


def test_a_cap_leaves_out_what_costs_more() -> None:
    found = task("resources: {accelerators: [H100:8, A100:8], max_hourly_cost: 30}\n")
    assert [choice.machine.name for choice in found.choices] == ["p4d.24xlarge"]


PLACES = [
    ("{infra: gcp, accelerators: v5e-8}", "gcp"),
    ("{infra: gcp/us-west4, accelerators: v5e-8}", "gcp/us-west4"),
    ("{infra: gcp/*/us-west4-a, accelerators: v5e-8}", "gcp/us-west4/us-west4-a"),
    ("{infra: '*', accelerators: v5e-8}", "gcp"),
    ("{infra: '*/us-east-1', accelerators: H100:8}", "aws/us-east-1"),
    ("{accelerators: v5e-8}", "gcp"),
    ("{instance_type: trn1.32xlarge}", "aws"),
    ("{cloud: gcp, region: us-west4, accelerators: v5e-8}", "gcp/us-west4"),
    ("{cloud: aws, zone: us-east-1a, accelerators: H100:8}", "aws/us-east-1/us-east-1a"),
    ("{infra: local}", "local"),
    ("{infra: 'local:4'}", "local:4"),
    ("{infra: 'local:tpu-v5e-16'}", "local:v5litepod-16"),
    ("{infra: local, accelerators: v5e-16}", "local:v5litepod-16"),
    ("{infra: LOCAL, accelerators: cpu}", "local"),
]


@pytest.mark.parametrize(("resources", "infra"), PLACES)
def test_places(resources: str, infra: str) -> None:
    assert str(task(f"resources: {resources}\n").choices[0].infra) == infra


def test_a_slice_counts_as_one_node() -> None:
    found = task("num_nodes: 2\nresources: {accelerators: v5e-16}\n")
    assert (found.num_nodes, found.count_hosts(found.choices[0])) == (2, 8)


def test_a_local_stand_in_has_the_hosts_and_chips_of_the_real_slice() -> None:
    found = task("resources: {infra: 'local:v5litepod-16'}\n")
    machine = found.choices[0].machine
    assert isinstance(machine, LocalHosts)
    assert (found.count_hosts(found.choices[0]), machine.chips_per_host) == (4, 4)


@pytest.mark.parametrize(
    ("written", "autostop"),
    [
        ("true", AutoStop(idle_minutes=5)),
        ("false", None),
        ("30", AutoStop(idle_minutes=30)),
        ("'45'", AutoStop(idle_minutes=45)),
        ("10h", AutoStop(idle_minutes=600)),
        ("2d", AutoStop(idle_minutes=2880)),
        ("{idle_minutes: 7, down: true, wait_for: jobs}", AutoStop(idle_minutes=7, down=True, wait_for="jobs")),
        ("{down: true}", AutoStop(idle_minutes=5, down=True)),
    ],
)
def test_autostop_in_every_form(written: str, autostop: AutoStop | None) -> None:
    assert task(f"resources: {{autostop: {written}}}\n").autostop == autostop


@pytest.mark.parametrize(
    ("written", "recovery"),
    [
        ("failover", Recovery(max_preemptions=100, max_failures=0, restart_on_exit_codes=(), strategy="FAILOVER")),
        ("{strategy: eager_next_region}", Recovery(max_preemptions=100, max_failures=0)),
        (
            "{max_restarts_on_errors: 3, recover_on_exit_codes: 29}",
            Recovery(max_preemptions=100, max_failures=3, restart_on_exit_codes=(29,)),
        ),
        (
            "{recover_on_exit_codes: [29, 30, 29]}",
            Recovery(max_preemptions=100, max_failures=0, restart_on_exit_codes=(29, 30)),
        ),
    ],
)
def test_job_recovery_in_every_form(written: str, recovery: Recovery) -> None:
    assert task(f"resources: {{job_recovery: {written}}}\n").recovery == recovery


def test_our_recovery_fills_and_wins_where_the_dialect_is_silent() -> None:
    text = "resources: {job_recovery: FAILOVER}\n"
    text += "recovery: {max_preemptions: 0, max_failures: 2, restart_on_exit_codes: [3]}\n"
    assert task(text).recovery == Recovery(
        max_preemptions=0, max_failures=2, restart_on_exit_codes=(3,), strategy="FAILOVER"
    )


MOUNTS = [
    ("/d: ./data", FileMount("/d", "./data", MountMode.COPY)),
    ("/d: s3://bbb/x/", FileMount("/d", "s3://bbb/x", MountMode.COPY)),
    ("/d/${A}: gs://bbb/$A-${A}b", FileMount("/d/v", "gs://bbb/v-vb", MountMode.COPY)),
    ("/d: {source: s3://bbb, read_only: true}", FileMount("/d", "s3://bbb", MountMode.MOUNT, read_only=True)),
    ("/d: {source: s3://bbb}", FileMount("/d", "s3://bbb", MountMode.MOUNT)),
    ("/d: {source: s3://bbb, mode: copy}", FileMount("/d", "s3://bbb", MountMode.COPY)),
    ("/d: {source: gs://bbb, mode: MOUNT, persistent: true}", FileMount("/d", "gs://bbb", MountMode.MOUNT)),
    ("/d: {name: 'b-${A}', store: gcs}", FileMount("/d", "gs://b-v", MountMode.MOUNT)),
    ("/d: {source: ./x, mode: COPY}", FileMount("/d", "./x", MountMode.COPY)),
]


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("file_mounts: {/d: {source: gs://bbb, persistent: false}}", "`persistent: false` of /d has no effect"),
        ("file_mounts: {/d: {source: s3://bbb}}", "s3://bbb at /d: files are written from beginning to end"),
        ("inputs: {s3://bbb: 3}", "`inputs` has no effect"),
        ("resources: {accelerators: v5e-8, priority_class: high}", "`priority_class` has no effect"),
    ],
)
def test_what_means_less_than_in_the_dialect_is_a_note_of_the_plan(text: str, note: str) -> None:
    assert any(note in one for one in parse_task(f"run: x\n{text}\n", file="t.yaml", env=SHELL).notes)


def test_the_older_name_of_job_recovery_is_taken() -> None:
    assert task("resources: {spot_recovery: FAILOVER}\n").recovery.strategy == "FAILOVER"


@pytest.mark.parametrize(("written", "mount"), MOUNTS)
def test_file_mounts_in_every_form(written: str, mount: FileMount) -> None:
    assert task(f"envs: {{A: v}}\nfile_mounts:\n  {written}\n").file_mounts == (mount,)


@pytest.mark.parametrize(
    ("written", "resources", "source"),
    [
        ("{name: bbb}", "accelerators: v5e-8", "gs://bbb"),
        ("{name: bbb, mode: COPY}", "accelerators: 'H100:8'", "s3://bbb"),
        ("{name: $A, store: '${STORE}'}", "infra: local", "gs://vvv"),
        ("{name: bbb, store: GCS}", "accelerators: 'H100:8'", "gs://bbb"),
    ],
)
def test_a_bucket_by_name_is_in_its_store_or_in_the_cloud_of_the_machines(
    written: str, resources: str, source: str
) -> None:
    text = f"envs: {{A: vvv, STORE: gcs}}\nresources: {{{resources}}}\nfile_mounts:\n  /d: {written}\n"
    assert [mount.source for mount in task(text).file_mounts] == [source]


def test_several_accelerators_beside_or_in_candidates_give_all_combinations() -> None:
    def names(resources: str) -> list[tuple[str, bool]]:
        return [(one.machine.name, one.use_spot) for one in task(f"resources: {resources}\n").choices]

    spot = "[{use_spot: true}, {use_spot: false}]"
    every = [(f"v5litepod-{size}", market) for market in (True, False) for size in (8, 16)]
    assert names(f"{{accelerators: [v5e-8, v5e-16], ordered: {spot}}}") == every
    assert sorted(names(f"{{accelerators: {{v5e-8: 1, v5e-16: 1}}, any_of: {spot}}}")) == sorted(every)
    assert names("{ordered: [{accelerators: [v5e-16, v5e-8]}, {accelerators: v6e-8}]}") == [
        ("v5litepod-16", False),
        ("v5litepod-8", False),
        ("v6e-8", False),
    ]


def test_fields_without_effect_are_accepted_with_a_note() -> None:
    found = read("resources: {accelerators: v5e-8, disk_tier: best, ports: [8888, 8000-8010], priority: 500}\n")
    assert [note.partition(":")[0] for note in found.notes if "no effect" in note] == [
        f"`{name}` has no effect" for name in ("disk_tier", "ports", "priority")
    ]
    assert read("resources: {gpus: v5e-8}\n").only == read("resources: {accelerators: v5e-8}\n").only
    for flags in (Overrides(accelerators="v5e-8"), Overrides(infra="local:2")):
        assert read("resources: {gpus: v5e-16}\n", flags).only == read("run: ''\n", flags).only


BAD_MOUNTS = [
    ("/d: $B/x", "`$B` is not one of the envs"),
    ("/d: s3://bbb/${AA}", "`${AA}` is not one of the envs, did you mean `${A}`?"),
    ("/d: s3://bbb/${TOKEN}", "`TOKEN` is a secret"),
    ("/d: https://x.org/a", "`https://x.org/a` cannot be mounted"),
    ("/d: r2://b", "`r2://b` cannot be mounted"),
    ("/d: {source: ./x}", "`./x` cannot be mounted with mode MOUNT"),
    ("/d: {source: '$A'}", "`v` cannot be mounted with mode MOUNT"),
    ("/d: {mode: COPY}", "a mount needs a source"),
    ("/d: {name: bbb, source: ./x}", "a mount with `name` and `source` would make a bucket"),
    ("/d: {source: [a, b], mode: COPY}", "`file_mounts./d.source` as a list is not served"),
    ("/: ./x", "`/` cannot be the target of a mount"),
]


@pytest.mark.parametrize(("written", "what"), BAD_MOUNTS)
def test_mounts_that_cannot_be(written: str, what: str) -> None:
    assert said(f"envs: {{A: v}}\nsecrets: {{TOKEN: x}}\nfile_mounts:\n  {written}\n") == f"4: {what}"


def test_images_labels_network_and_disk() -> None:
    images = "{us-east-1: ami-1, us-west-2: ami-2}"
    rest = "labels: {a: b}, network_tier: best, disk_size: 100GB"
    (choice,) = task(f"resources: {{instance_type: p5.48xlarge, image_id: {images}, {rest}}}\n").choices
    assert choice.image_id == (("us-east-1", "ami-1"), ("us-west-2", "ami-2"))
    assert (choice.labels, choice.network_tier, choice.disk_size) == ((("a", "b"),), "best", 100)


def test_workdir_is_a_folder_or_a_repository() -> None:
    assert task("workdir: ./src\n").workdir == "./src"
    git = task("workdir: {url: 'https://example.org/a.git', ref: main}\n").workdir
    assert git == GitSource(url="https://example.org/a.git", ref="main")


def test_train_renders_the_trainers_words_and_the_users_come_last() -> None:
    found = task(
        "train: {backend: cpu, args: {steps: 5, model: {dim: 64}, compile: true, optim.lr: 3e-3}}\n"
        "checkpoint: {every: 9}\n"
    )
    assert found.train == Train(
        backend="cpu", args=(("steps", "5"), ("model.dim", "64"), ("compile", "true"), ("optim.lr", "3e-3"))
    )
    assert found.train.format_args(found.checkpoint) == (
        "checkpoint.keep=3", "checkpoint.every=9", "steps=5", "model.dim=64", "compile=true", "optim.lr=3e-3",
    )  # fmt: skip
    mine = task("train: {args: {device: cuda, checkpoint.every: 1}}\ncheckpoint: {every: 9}\n")
    assert mine.train is not None
    assert mine.train.format_args(mine.checkpoint) == ("checkpoint.keep=3", "device=cuda", "checkpoint.every=1")


HOSTS = [
    ("a", UserHost(host="a", user="u", port=23, key="~/k")),
    ("r@b:2200", UserHost(host="b", user="r", port=2200, key="~/k")),
    ("'r@[fe80::1]:2200'", UserHost(host="fe80::1", user="r", port=2200, key="~/k")),
    (
        "{host: c, port: 9, jump: j@k, internal_ip: 10.0.0.1}",
        UserHost(host="c", user="u", port=9, key="~/k", jump="j@k", internal_ip="10.0.0.1"),
    ),
    ("{host: 'x@d:77', key: ~/own}", UserHost(host="d", user="x", port=77, key="~/own")),
]


@pytest.mark.parametrize(("written", "host"), HOSTS)
def test_hosts_in_every_form(written: str, host: UserHost) -> None:
    found = task(f"resources: {{infra: hosts}}\nhosts: {{user: u, port: 23, key: ~/k, addresses: [{written}]}}\n")
    assert (found.hosts, found.num_nodes, found.count_hosts(found.choices[0])) == ((host,), 1, 1)


@pytest.mark.parametrize(
    "written", ["'a b'", "'@x'", "'a:99999'", "'a:b'", "'-oProxyCommand=x'", "{user: x}", "{host: a, jump: 'b c'}"]
)
def test_hosts_that_cannot_be(written: str) -> None:
    assert said(f"resources: {{infra: hosts}}\nhosts:\n  addresses:\n  - a\n  - {written}\n").startswith("5: ")


def test_own_hosts_of_a_tpu_slice_are_counted_by_slice() -> None:
    addresses = ", ".join(f"h{i}" for i in range(8))
    found = task(f"resources: {{infra: hosts, accelerators: v5e-16}}\nhosts: {{addresses: [{addresses}]}}\n")
    assert (found.num_nodes, found.count_hosts(found.choices[0])) == (2, 8)


def test_a_pipeline_has_a_header_and_tasks_in_order() -> None:
    found = read(
        "name: p\nexecution: parallel\nprimary_tasks: [b]\ntermination_delay: 2m\n"
        "---\nname: a\nrun: x\n---\nname: b\nrun: y\n"
    )
    assert (found.name, found.execution, found.primary_tasks) == ("p", Execution.PARALLEL, ("b",))
    assert ([t.name for t in found.tasks], found.termination_delay) == (["a", "b"], 120)


def test_a_first_document_with_more_than_a_name_is_a_task() -> None:
    found = read("name: a\nrun: x\n---\nname: b\nrun: y\n")
    assert ([t.name for t in found.tasks], found.name) == (["a", "b"], "")
    assert read("name: only\n").only.name == "only"


def test_flags_hold_for_every_task_of_a_pipeline_but_the_name() -> None:
    found = read("name: p\n---\nname: a\n---\nname: b\n", Overrides(name="q", infra="local:2"))
    assert (found.name, [t.name for t in found.tasks]) == ("q", ["a", "b"])
    assert [str(t.choices[0].infra) for t in found.tasks] == ["local:2", "local:2"]


def test_what_was_understood_differently_is_noted() -> None:
    found = read("resources: {infra: gcp/us-west2, accelerators: tpu-v5e-16}\n")
    assert found.notes[0] == "`tpu-v5e-16` is v5litepod-16: 4 hosts with 4 chips each"
    assert found.notes[1].startswith("us-west2 is not among the places known for v5e")
    assert read("resources: {infra: gcp/us-west4, accelerators: v5litepod-16}\n").notes == ()


env_names = st.from_regex(r"[A-Z][A-Z0-9]{0,6}", fullmatch=True).filter(lambda name: not name.startswith("ORCH"))
texts = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=30)


@given(st.dictionaries(env_names, texts, max_size=4), texts.filter(lambda text: text.strip() != ""))
@settings(max_examples=100, deadline=None)
def test_any_text_in_envs_and_scripts_survives(envs: dict[str, str], run: str) -> None:
    import yaml

    found = task(yaml.safe_dump({"envs": envs, "run": run}))
    assert (dict(found.envs), found.run) == (envs, run)
    assert Task.from_json(found.to_json()) == found
