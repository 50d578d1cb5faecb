"""Every problem of a task file comes together: of its text, its fields, its names, its rules and its local paths."""

from pathlib import Path

import pytest

from orchestrator.task.errors import LONGEST_VALUE, Problem, TaskError
from orchestrator.task.parse import find_source_problem, parse_task


def problems(text: str) -> list[Problem]:
    with pytest.raises(TaskError) as caught:
        parse_task(text, file="t.yaml", env={}, find_source_problem=find_source_problem)
    return list(caught.value.problems)


def places(text: str) -> dict[str, str]:
    return {problem.place.removeprefix("t.yaml:"): problem.what for problem in problems(text)}


EVERYTHING = """\
name: first
execution: sideways
---
name: a
resources:
  infra: gcp
  accelerators: v5e-16
  labels: {orch-x: "1"}
  disk_siz: 100
  use_spot: maybe
envs:
  NONE: null
  LOST: 3.10
  LOST: 3
file_mounts:
  /cached: {source: gs://bbb/x, mode: MOUNT_CACHED}
  /typo: ~/$UNKNOWN
  /missing: ~/$NONE
workdir: /nonexistent/folder
train:
  args: {modle.dim: 3}
run: !shell conda activate x
---
name: a
resources: {accelerators: H100:8, local_disk: nvme}
envs: {ORCH_RANK: a}
num_nodes: 0
"""


def test_problems_of_every_kind_come_together_each_with_line_and_column() -> None:
    assert places(EVERYTHING) == {
        "2:1": "`execution` cannot be `sideways`",
        "8:3": "`orch-x` cannot be a label",
        "9:3": "unknown key `disk_siz` in `resources`, did you mean `disk_size`?",
        "10:3": "`resources.use_spot` must be true or false; here it is the text `maybe`",
        "12:3": "`envs.NONE` has no value",
        "13:3": "`envs.LOST` is not text",
        "14:3": "`LOST` is written twice",
        "16:3": "`mode: MOUNT_CACHED` is not served",
        "17:3": "`$UNKNOWN` is not one of the envs",
        "19:1": "`/nonexistent/folder` does not exist",
        "20:1": "`run` and `train` exclude each other",
        "21:10": "the trainer has no setting `modle.dim`; did you mean model.dim?",
        "22:6": "the tag `!shell` is not allowed",
        "24:1": "two tasks are called `a`",
        "25:35": "`resources.local_disk` is not served by orch",
        "26:8": "`ORCH_RANK` is set by orch on every host",
        "27:1": "`num_nodes` cannot be 0",
    }


@pytest.mark.parametrize(
    "text",
    [
        "resources: {infra: [gcp], labels: {A: b}}",  # another cloud could have this label
        "resources: {accelerators: v5e-17}\nlimits: {max_hours: 1}",
        "resources: {acelerators: v5e-16, use_spot: true}",
        "resources: {infra: hosts}\nhosts: {adresses: [a]}",
        "resources: {infra: hosts}\nhosts: {addresses: [a, b]}\nnum_nodes: two",
        "resources: {any_of: [{infra: gcp, accelerators: 3}, {accelerators: v5e-8}]}\nfile_mounts: {/d: {name: bbb}}",
        "envs: {A: []}\nfile_mounts: {/d: s3://$A}",
        "config: {gcp: {tags: 3}}\nresources: {accelerators: v5e-8}",
        "train: {args: [a]}\nrecovery: {max_failures: 1}",
    ],
)
def test_a_mistake_is_not_reported_again_as_what_follows_from_it(text: str) -> None:
    assert len(problems(text)) == 1


def test_other_candidates_are_checked_beside_a_wrong_one() -> None:
    text = "resources:\n  any_of:\n  - accelerators: v5e-17\n  - {accelerators: v5e-8, labels: {orch-a: b}}\n"
    label, size = sorted(places(text).values())
    assert label == "`orch-a` cannot be a label" and "17" in size


LONG = "x" * 140_000


@pytest.mark.parametrize(
    "text",
    [
        f"name: '{LONG}'",
        f"{LONG}: 1",
        f"resources: {{accelerators: {LONG}}}",
        f"resources: {{infra: {LONG}}}",
        f"resources: {{labels: {{'{LONG}': a}}, accelerators: v5e-8}}",
        f"checkpoint: {{bucket: {LONG}}}",
        f"file_mounts: {{'/{LONG}/..': a}}",
        f"file_mounts: {{/a: 'ftp://{LONG}'}}",
        f"workdir: ./{LONG}",
        f"envs: {{'1{LONG}': a}}",
        f"train: {{args: {{steps: {LONG}}}}}",
        f"train: {{args: {{{LONG}: 1}}}}",
        f"hosts: {{addresses: ['a@{LONG}@b']}}\nresources: {{infra: hosts}}",
        f"run: !{LONG} a",
        f"num_nodes: 1{'0' * 290}",
    ],
)
def test_a_long_value_is_shortened(text: str) -> None:
    for problem in problems(text):
        assert max(map(len, (str(problem), problem.why, problem.next_step))) < 10 * LONGEST_VALUE


@pytest.mark.parametrize(
    "text",
    [
        'name: "a\\x1b[31mb\\x07"',
        '"a\\x1b[2J": 1',
        'resources: {accelerators: "a\\x1b]0;t\\x07"}',
        'resources: {infra: "gcp/\\u202eus"}',
        'checkpoint: {bucket: "s3:/\\x1b[31m"}',
        'workdir: "/no/\\x9b31m"',
        'envs: {"a\\x1b[1m": x}',
        'file_mounts: {"/a\\x1b[1m": "ftp://\\x1b[1m"}',
    ],
)
def test_control_characters_of_a_file_are_written_out(text: str) -> None:
    for problem in problems(text):
        shown = f"{problem}{problem.why}{problem.next_step}"
        assert shown.isprintable(), shown


@pytest.mark.parametrize(
    ("path", "step"),
    [
        ("~/.netrc", "ls ~   to find it"),
        ("~/my files/a", "ls ~/'my files'   to find it"),
        ("~user/x/y", "ls ~user/x   to find it"),
        ("a b/c", "ls 'a b'   to find it"),
        ("~;id/x", "ls '~;id'   to find it"),
    ],
)
def test_the_command_that_finds_a_path_leaves_the_tilde_to_the_shell(
    path: str, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    problem = find_source_problem(path)
    assert problem is not None and problem.next_step == step
