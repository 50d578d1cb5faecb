"""What is said about a wrong task file: the exact line, what is wrong, what was meant, what is allowed."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.task.errors import Problem, TaskError, clean_message
from orchestrator.task.export import list_fields
from orchestrator.task.layers import Overrides
from orchestrator.task.model import TaskSection
from orchestrator.task.parse import load_task_file, parse_task
from orchestrator.task.section import Json


def problems(text: str, flags: Overrides | None = None, env: dict[str, str] | None = None) -> list[Problem]:
    with pytest.raises(TaskError) as caught:
        parse_task(text, file="t.yaml", env=env or {}, flags=flags)
    return list(caught.value.problems)


def only(text: str, flags: Overrides | None = None) -> Problem:
    (problem,) = problems(text, flags)
    return problem


def test_an_unknown_key_gets_its_line_a_suggestion_and_what_is_allowed() -> None:
    problem = only("name: a\nresources:\n  infra: gcp\n  acelerators: v5e-16\n")
    assert str(problem) == "t.yaml:4:3: unknown key `acelerators` in `resources`, did you mean `accelerators`?"
    assert (problem.why, problem.next_step) == ("", "write `accelerators`, or remove the key")
    problem = only("resources:\n  infra: gcp\n  xyz: 1\n")
    assert problem.why.startswith("allowed here: ")
    assert "infra, cloud, region, zone, accelerators, instance_type" in problem.why


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("num_node: 2\n", "num_nodes"),
        ("workDir: .\n", "workdir"),
        ("file-mounts: {}\n", "file_mounts"),
        ("checkpoint: {buckets: s3://aaa}\n", "bucket"),
        ("resources: {autostop: {idle_minute: 3}}\n", "idle_minutes"),
        ("resources: {any_of: [{accelerator: cpu}]}\n", "accelerators"),
        ("file_mounts:\n  /a: {src: s3://bbb, mod: COPY}\n", "mode"),
        ("hosts: {adresses: []}\n", "addresses"),
        ("recovery: {max_restarts_on_errors: 2}\n", "max_failures"),
        ("recovery: {recover_on_exit_codes: [3]}\n", "restart_on_exit_codes"),
    ],
)
def test_did_you_mean(text: str, near: str) -> None:
    assert any(f"did you mean `{near}`?" in problem.what for problem in problems(text))


@pytest.mark.parametrize(
    "written", ["!Pa55word", "*Pa55word", "!!python/Pa55word x", "{a: !Pa55word x}", "0o77:Pa55word", "[*Pa55word]"]
)
def test_no_text_below_secrets_is_shown(written: str) -> None:
    with pytest.raises(TaskError) as caught:
        parse_task(f"run: a\nsecrets:\n  TOKEN: {written}\n  OTHER: 1:2\n", file="t.yaml", env={})
    assert "Pa55word" not in "\n".join(caught.value.lines())
    assert all(problem.next_step for problem in caught.value.problems)


@pytest.mark.parametrize(
    "text",
    [
        "checkpoint: {bucket: 's3://key:Pa55word@b'}",
        "file_mounts: {/a: 's3://key:Pa55word@b/c'}",
        "file_mounts: {/a: 'https://key:Pa55word@b/c'}",
        "file_mounts: {/a: 's3://key:Pa55word/+x@b/c'}",
        "file_mounts: {/a: 'https://key:Pa55word/+x@b/c'}",
        "workdir: {url: 'https://key:Pa55word/+x@b/c'}",
        "workdir: {url: 'https://key:Pa55word@b/c'}",
        "workdir: {url: 'https://Pa55word@b/c'}",
        "workdir: {url: 'ssh://key:Pa55word@b/c'}",
    ],
)
def test_an_address_with_a_password_is_refused_and_not_shown(text: str) -> None:
    problem = only(f"run: a\n{text}\n")
    assert "Pa55word" not in f"{problem} {problem.why} {problem.next_step}"
    assert problem.line == 2 and problem.next_step


@pytest.mark.parametrize("url", ["git@github.com:a/b", "ssh://git@github.com/a/b", "https://github.com/a/b"])
def test_a_git_address_without_a_password_is_taken(url: str) -> None:
    assert parse_task(f"run: a\nworkdir: {{url: '{url}'}}\n", file="t.yaml", env={}).only


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (f"limits: {{max_hours: 0x{'f' * 500}}}", "is too large for a number"),
        (f"num_nodes: 1{'0' * 500}", "is too large for a number"),
        ("resources: {disk_size: \uff1400}", "`resources.disk_size` cannot be `\uff1400`"),
        ("", "t.yaml: is empty"),
        ("- a", "a task must be a map"),
        ("run: 'a", "found unexpected end of stream"),
        ("run: a\n  b: c", "mapping values are not allowed"),
        ("run: a\nenvs: {A: b", "is not valid YAML"),
        ("run: %a", "is not valid YAML"),
        ("a: &x [*x]", "has no complete anchor before it"),
        ("run: " + "[" * 50, "is nested more than 40 levels deep"),
    ],
)
def test_what_cannot_be_read_says_why_and_what_to_do(text: str, what: str) -> None:
    problem = only(text)
    assert what in str(problem) and problem.next_step


def test_two_tasks_of_one_name_are_refused() -> None:
    problem = only("name: p\n---\nname: a\nrun: x\n---\nname: b\nrun: x\n---\nname: a\nrun: y\n")
    assert (problem.line, problem.what, problem.why) == (9, "two tasks are called `a`", "the first is in line 3")


NODES = "a whole number, 1 to 4,096, or a range such as 2-8, from 1 and the smaller first"
WRONG_TYPES = [
    ("num_nodes: four\n", 1, "`num_nodes` cannot be `four`"),
    ("num_nodes: true\n", 1, f"`num_nodes` must be {NODES}; here it is true"),
    ("num_nodes: 0\n", 1, "`num_nodes` cannot be 0"),
    ("num_nodes: 2.0\n", 1, f"`num_nodes` must be {NODES}; here it is the number 2.0"),
    ("run: [a]\n", 1, "`run` must be a script; here it is a list"),
    ("resources: v5e-16\n", 1, "`resources` must be a map; here it is the text `v5e-16`"),
    ("resources:\n  use_spot: 'yes'\n", 2, "`resources.use_spot` must be true or false; here it is the text `yes`"),
    (
        "resources:\n  any_of:\n  - infra: gcp\n  - 3\n",
        4,
        "`resources.any_of[1]` must be a map; here it is the number 3",
    ),
    ("envs: [A]\n", 1, "`envs` must be a map, each value text, a number, true or false, or nothing; here it is a list"),
    (
        "train: {args: [a]}\n",
        1,
        "`train.args` must be a map of settings of the trainer, such as model: 1b; here it is a list",
    ),
    ("envs:\n  A:\n    B: 1\n", 2, "`envs.A` must be text, a number, true or false, or nothing; here it is a map"),
    ("limits:\n\n  max_hours: .inf\n", 3, "`limits.max_hours` cannot be inf"),
    ("limits: {max_cost: .nan}\n", 1, "`limits.max_cost` cannot be nan"),
    ("name: 'a b'\n", 1, "`name` cannot be `a b`"),
    ("workdir: ''\n", 1, "`workdir` is empty"),
    ("resources: {network_tier: bets}\n", 1, "`resources.network_tier` cannot be `bets`, did you mean `best`?"),
    ("- a\n- b\n", 1, "a task must be a map; here it is a list"),
    ("just text\n", 1, "a task must be a map; here it is the text `just text`"),
    ("envs: {'1A': x}\n", 1, "`1A` cannot be a key of `envs`"),
    ("recovery: {restart_on_exit_codes: [300]}\n", 1, "`recovery.restart_on_exit_codes[0]` cannot be 300"),
]


@pytest.mark.parametrize(("text", "line", "what"), WRONG_TYPES)
def test_a_wrong_value_says_what_it_must_be_and_what_it_is(text: str, line: int, what: str) -> None:
    problem = only(text)
    assert (problem.line, problem.what) == (line, what)


FIELDS = list(list_fields(TaskSection.json_schema()))
REFUSED = [(path, field) for path, field in FIELDS if "not" in field]


@pytest.mark.parametrize(("path", "field"), REFUSED, ids=[path for path, _ in REFUSED])
def test_a_field_that_is_not_served_is_refused_by_name_with_the_reason(path: str, field: Json) -> None:
    parts = path.replace("[]", "").replace("*", "/data").split(".")
    text = "name: a\n" + "".join(f"{'  ' * depth}{part}:\n" for depth, part in enumerate(parts))[:-1] + " x\n"
    problem = only(text)
    assert problem.what.endswith("is not served by orch")
    assert f"{parts[-1]}`" in problem.what
    assert (problem.why, problem.line) == (field["description"], len(parts) + 1)
    assert problem.why


def test_secrets_as_a_list_are_refused_with_the_reason() -> None:
    problem = only("secrets: [A, B]\n")
    assert problem.what == "`secrets` as a list is not served"
    assert "write `NAME: null`" in problem.next_step


def test_all_problems_are_found_and_the_first_ones_are_shown() -> None:
    text = "".join(f"bad{i}: 1\n" for i in range(11))
    with pytest.raises(TaskError) as caught:
        parse_task(text, file="t.yaml", env={})
    lines = caught.value.lines()
    assert lines[0] == "error[task-file]: 11 problems"
    assert [line.split()[0] for line in lines if line.startswith("  t.yaml")] == [f"t.yaml:{i}:1:" for i in range(1, 9)]
    assert lines[-1] == "  and 3 more: orch import t.yaml"
    assert caught.value.exit_status == 2


def test_each_of_several_problems_keeps_its_own_reason_and_next_step() -> None:
    with pytest.raises(TaskError) as caught:
        parse_task("resources: {local_disk: nvme}\nservice: {}\nworkdir: ''\n", file="t.yaml", env={})
    assert caught.value.lines() == [
        "error[task-file]: 3 problems",
        "  t.yaml:1:13: `resources.local_disk` is not served by orch",
        "    local disks are used where the machine has them; remove it",
        "  t.yaml:2:1: `service` is not served by orch",
        "    orch trains; it does not serve replicas; remove it",
        "  t.yaml:3:1: `workdir` is empty",
        "    it must be a folder, or a map; remove it, or write a value",
    ]


def test_one_problem_shows_its_reason_and_what_to_do() -> None:
    with pytest.raises(TaskError) as caught:
        parse_task("volumes: {/a: b}\n", file="t.yaml", env={})
    assert caught.value.lines() == [
        "error[task-file]: t.yaml:1:1: `volumes` is not served by orch",
        "  why:  orch talks to machines over SSH and serves no Kubernetes",
        "  next: keep data in a bucket: file_mounts, checkpoint.bucket",
    ]


def test_a_value_from_a_flag_is_blamed_on_the_flag() -> None:
    assert str(only("num_nodes: 2\n", Overrides(num_nodes=0))) == "--num-nodes: `num_nodes` cannot be 0"
    problem = only("name: a\n", Overrides(infra="gpc"))
    assert problem.place == "--infra"
    assert "did you mean `gcp`?" in problem.what


def test_options_of_a_choice_are_named_where_nothing_is_chosen() -> None:
    named = Overrides(infra="gcp", accelerators="v6e-8", by_argument="accelerators")
    for flags in (replace(named, budget=10.0), replace(named, only="spot")):
        assert str(only("run: a\n", flags)).endswith(": this has nothing to choose")
        assert only("run: a\n", flags).place == ("--budget" if flags.budget else "--only")
    assert only("run: a\n", Overrides(accelerators="auto", by_argument="accelerators")).place == "auto"


def test_problems_of_all_tasks_of_a_pipeline_are_found() -> None:
    text = "name: p\n---\nrum: a\n---\nrun: b\nnum_nodes: 0\n"
    assert [problem.line for problem in problems(text)] == [3, 6]


def test_an_empty_file_is_said_to_be_empty() -> None:
    for text in ("", "\n# nothing\n", "---\n---\n", "null\n"):
        assert only(text).what == "is empty"


def test_missing_and_unreadable_files_are_distinguished(tmp_path) -> None:
    from orchestrator.errors import NotFoundError, UserError

    with pytest.raises(NotFoundError):
        load_task_file(str(tmp_path / "no.yaml"), env={})
    with pytest.raises(UserError) as caught:
        load_task_file(str(tmp_path), env={})
    assert "is a directory" in caught.value.what
    binary = tmp_path / "b.yaml"
    binary.write_bytes(b"name: \xff\xfe")
    with pytest.raises(TaskError) as caught_text:
        load_task_file(str(binary), env={})
    assert "UTF-8" in caught_text.value.what


words = st.sampled_from(sorted({path.split(".")[-1].replace("[]", "") for path, _ in FIELDS}))
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(
        ["v5e-16", "H100:8", "local:4", "gcp", "hosts", "s3://aaa/b", "10h", "COPY", "a@b:1", "${A}", "xla"]
    )
)
documents = st.dictionaries(
    words,
    st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=4)),
    max_size=6,
)


@given(documents)
@settings(max_examples=200, deadline=None)
def test_no_document_gives_anything_but_tasks_or_a_task_error(data: dict[str, object]) -> None:
    import yaml

    text = yaml.safe_dump(data)
    try:
        parsed = parse_task(text, file="t.yaml", env={"A": "x"})
    except TaskError as error:
        assert error.problems
        assert all(problem.what and problem.file == "t.yaml" for problem in error.problems)
    else:
        assert len(parsed.tasks) == 1


def test_a_number_that_yaml_misreads_hides_no_later_mistake() -> None:
    found = problems("run: x\nlimits: {max_hours: 12:30}\nresources: {use_spot: maybe}\n")
    assert [(problem.line, problem.what.split(";")[0]) for problem in found] == [
        (2, "YAML reads 12:30 as the number 750"),
        (3, "`resources.use_spot` must be true or false"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "resources: {network_tier: ''}",
        "resources: {accelerator_args: {provisioning: ''}}",
        "config: {aws: {access: ''}}",
        "resources: {use_spot: maybe}",
        "resources: {disk_size: -1}",
        "resources: {image_id: {}}",
        "config: {gcp: {access: outside}}",
    ],
)
def test_a_wrong_value_has_a_next_step(text: str) -> None:
    assert only(f"run: x\n{text}\n").next_step


@pytest.mark.parametrize(
    "value", ["hunter2", "87654321", "8765.4321", "[hunter2]", "{A: [hunter2]}", "{A: {b: 87654321}}"]
)
def test_secrets_of_the_wrong_type_are_not_shown(value: str) -> None:
    said = repr(only(f"run: x\nsecrets: {value}\n"))
    assert "hunter2" not in said and "8765" not in said


def test_the_text_between_two_short_values_is_whole() -> None:
    text = f"`limits.max_hours` must be a number, {'above 0 and at most 87,600, ' * 3}here it is the text `1e308`"
    assert clean_message(text) == text
    assert clean_message(f"`a` is `{'x' * 200}` and not `b`") == f"`a` is `{'x' * 57}...` and not `b`"
