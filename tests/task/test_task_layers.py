"""Flag over environment over task file over configuration over built-in, and where a value came from."""

from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orchestrator.task.config import Source, parse_config
from orchestrator.task.errors import ConfigError, TaskError
from orchestrator.task.layers import Overrides, merge_layers
from orchestrator.task.parse import TaskFile, parse_task
from orchestrator.task.yaml_reader import read_documents


def read(text: str, flags: Overrides | None = None, config: str = "", env: dict[str, str] | None = None) -> TaskFile:
    shell = env or {}
    return parse_task(text, file="t.yaml", env=shell, flags=flags, config=parse_config(config, "c.toml", shell))


@pytest.mark.parametrize(("flag", "variable", "file", "config"), list(product([True, False], repeat=4)))
def test_precedence_of_every_combination(flag: bool, variable: bool, file: bool, config: bool) -> None:
    found = read(
        "run: x\nlimits:\n  max_hours: 3\n" if file else "run: x\n",
        Overrides(max_hours=1.0) if flag else None,
        "[limits]\nmax_hours = 4\n" if config else "",
        {"ORCH_LIMITS_MAX_HOURS": "2"} if variable else None,
    )
    layers = [
        (flag, "flag --max-hours", 1.0),
        (variable, "environment ORCH_LIMITS_MAX_HOURS", 2.0),
        (file, "task file t.yaml:3", 3),
        (config, "configuration c.toml:2", 4.0),
    ]
    expected = [(where, value) for present, where, value in layers if present]
    chain = found.explain("limits.max_hours")
    assert [(str(valued.origin), valued.value) for valued in chain] == expected
    assert found.only.limits.max_hours == (expected[0][1] if expected else None)


@pytest.mark.parametrize(
    ("config", "env", "place"),
    [
        ('[checkpoint]\nbucket = "mine"\n', {}, "c.toml:2"),
        ("", {"ORCH_CHECKPOINT_BUCKET": "mine"}, "ORCH_CHECKPOINT_BUCKET"),
    ],
)
def test_a_mistake_in_the_configuration_is_not_blamed_on_the_task_file(
    config: str, env: dict[str, str], place: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read("run: x\n", config=config, env=env)
    assert [problem.place for problem in caught.value.problems] == [place]
    with pytest.raises(TaskError) as both:
        read("rum: x\n", config=config, env=env)
    assert {problem.file for problem in both.value.problems} == {"t.yaml", place.partition(":")[0]}


def test_built_in_values_come_last() -> None:
    found = read("run: x\n", config="[recovery]\nmax_preemptions = 7\n")
    assert [(v.origin.source, v.value) for v in found.explain("recovery.max_preemptions")] == [
        (Source.CONFIG, 7),
        (Source.BUILT_IN, 100),
    ]
    assert (found.only.recovery.max_preemptions, read("run: x\n").only.recovery.max_preemptions) == (7, 100)


def test_any_value_of_the_file_can_be_explained() -> None:
    found = read("run: x\nenvs:\n  A: b\n", Overrides(env=(("C", "d"),)))
    assert [str(v.origin) for v in found.explain("envs.A")] == ["task file t.yaml:3"]
    assert [(str(v.origin), v.value) for v in found.explain("envs.C")] == [("flag --env C", "d")]
    assert found.explain("setup") == ()


def test_a_flag_for_the_place_displaces_every_older_form_and_every_candidates() -> None:
    text = """
resources:
  cloud: gcp
  region: us-west4
  accelerators: v5e-16
  ordered:
    - {infra: gcp/us-east5, disk_size: 1}
    - {zone: us-west4-a, disk_size: 2}
"""
    found = read(text, Overrides(infra="gcp/us-central1"))
    assert [str(c.infra) for c in found.only.choices] == ["gcp/us-central1", "gcp/us-central1"]
    assert [c.disk_size for c in found.only.choices] == [1, 2]


def test_a_flag_for_the_accelerator_displaces_the_instance_type() -> None:
    found = read("resources: {instance_type: p5.48xlarge}\n", Overrides(accelerators="v5e-8"))
    assert [c.machine.name for c in found.only.choices] == ["v5litepod-8"]
    back = read("resources: {accelerators: [v5e-8, v5e-16]}\n", Overrides(instance_type="p5.48xlarge"))
    assert [c.machine.name for c in back.only.choices] == ["p5.48xlarge"]


def test_a_local_flag_keeps_the_shape_of_the_task_and_a_number_replaces_it() -> None:
    text = "num_nodes: 2\nresources: {infra: gcp/us-west4, accelerators: v5e-16}\nrun: x\n"
    shaped = read(text, Overrides(infra="local")).only
    assert (str(shaped.choices[0].infra), shaped.count_hosts(shaped.choices[0])) == ("local:v5litepod-16", 8)
    plain = read(text, Overrides(infra="local:3")).only
    assert (str(plain.choices[0].infra), plain.count_hosts(plain.choices[0])) == ("local:3", 3)


def test_a_command_displaces_the_program_of_the_file() -> None:
    assert read("train: {}\n", Overrides(run="hostname")).only.train is None
    assert read("run: a\n", Overrides(run="b")).only.run == "b"


def test_settings_of_the_trainer_are_laid_over_one_by_one() -> None:
    text = "train: {args: {steps: 1, model: {dim: 64, layers: 3}}}\n"
    found = read(text, Overrides(train_args=(("model.dim", "96"), ("batch", "4")))).only
    assert found.train is not None
    assert dict(found.train.args) == {"steps": "1", "model.layers": "3", "model.dim": "96", "batch": "4"}
    bare = read("{}", Overrides(infra="local:4", train_args=(("steps", "5"),))).only
    assert bare.train is not None
    assert bare.train.args == (("steps", "5"),)


def test_configuration_fills_in_only_what_is_silent() -> None:
    config = '[resources]\ninfra = "gcp/us-west4"\nuse_spot = true\n[checkpoint]\nbucket = "gs://bbb"\n'
    found = read("resources: {accelerators: v5e-8}\n", config=config).only
    assert (str(found.choices[0].infra), found.choices[0].use_spot, found.checkpoint.bucket) == (
        "gcp/us-west4",
        True,
        "gs://bbb",
    )
    text = "resources: {cloud: gcp, region: us-east5, accelerators: v5e-8, use_spot: false}\n"
    own = read(text, config=config)
    assert (str(own.only.choices[0].infra), own.only.choices[0].use_spot) == ("gcp/us-east5", False)
    assert [str(v.value) for v in own.explain("resources.infra")] == ["gcp/us-east5/*", "gcp/us-west4"]


def test_a_wrong_value_of_the_configuration_is_blamed_on_its_line() -> None:
    with pytest.raises(ConfigError) as caught:
        read("run: x\n", config='[checkpoint]\n\nbucket = "nope"\n')
    assert caught.value.what == "c.toml:3: `nope` is not a bucket address"


def test_flags_do_not_change_the_document_they_are_laid_over() -> None:
    text = "envs: {A: 1}\nresources: {any_of: [{infra: local}]}\n"
    (document,) = read_documents(text, "t.yaml")
    layered = merge_layers(document, "t.yaml", Overrides(infra="local:2", env=(("A", "2"),)), None)
    assert layered.data == {"envs": {"A": "2"}, "resources": {"any_of": [{}], "infra": "local:2"}}
    assert document.data == {"envs": {"A": 1}, "resources": {"any_of": [{"infra": "local"}]}}


fields = st.sampled_from(
    ["infra", "accelerators", "num_nodes", "use_spot", "bucket", "max_hours", "run", "backend", "name"]
)
junk = st.one_of(st.none(), st.text(max_size=8), st.integers(-2, 5), st.booleans(), st.floats(allow_nan=True))


@example({"bucket": "{"}, "run: x\n")
@given(
    st.dictionaries(fields, junk), st.sampled_from(["run: x\n", "{}", "- a\n", "resources: 3\n", "train: [1]\n", "a\n"])
)
@settings(max_examples=150, deadline=None)
def test_no_flags_over_no_file_give_anything_but_a_task_or_a_task_error(values: dict[str, object], text: str) -> None:
    flags = Overrides(**values)  # type: ignore[arg-type]  # wrong types on purpose
    try:
        assert read(text, flags).tasks
    except TaskError as error:
        assert error.problems
