"""What `orch import` changes of a task file of the dialect: only what must change, with a remark for each change."""

import pytest

from orchestrator.task.dialect_import import Imported, import_task, list_remarks
from orchestrator.task.errors import OutdatedTaskError

HEAD = "# kept\nrun: |  # kept too\n  echo hi\n"


def imported(text: str) -> Imported:
    return import_task(text, file="sky.yaml", env={"HOME": "/h"}, find_source_problem=lambda _: None)


def changed(text: str) -> list[str]:
    lines = imported(HEAD + text).rewrite.diff().splitlines()[2:]
    return [line for line in lines if line[:1] in ("-", "+")]


def test_a_file_that_orch_runs_is_not_changed() -> None:
    found = imported(HEAD + "envs: {TOKEN: null}\nresources: {accelerators: H100:8}\n")
    assert (found.rewrite.diff(), found.problems, found.missing) == ("", (), ("TOKEN",))
    assert "TOKEN has no value: give it with --env TOKEN=VALUE" in list(list_remarks(found))
    secret = imported(HEAD + "secrets: {KEY: null}\nresources: {accelerators: H100:8}\n")
    assert "KEY has no value: give it with --secret KEY" in list(list_remarks(secret))


@pytest.mark.parametrize(
    ("text", "difference"),
    [
        (
            "resources:\n  cloud: azure\n  region: eastus  # far\n  accelerators: A100:8\n",
            ["-  cloud: azure", "-  region: eastus  # far"],
        ),
        ("resources: {infra: k8s/mine, accelerators: H100:8}\n", [
            "-resources: {infra: k8s/mine, accelerators: H100:8}", "+resources: {accelerators: H100:8}"]),
        ("resources: {infra: gcp, accelerators: v5e-8}\n", []),
        ("resources:\n  accelerators: H100:8\n  local_disk: nvme\n  priority_class: high\n", [
            "-  local_disk: nvme"]),
        ("envs:\n  V: 3.10 # version\n  W: yes\n  N: 3\n", [
            "-  V: 3.10 # version", "-  W: yes", '+  V: "3.10" # version', '+  W: "yes"']),
        ("secrets: [secrets:HF_TOKEN]\n", ["-secrets: [secrets:HF_TOKEN]", "+secrets: {HF_TOKEN: null}"]),
        ("secrets: [my-secret]\n", ["-secrets: [my-secret]", "+secrets: {my_secret: null}"]),
        ("resources:\n  any_of:\n    - cloud: azure\n    - cloud: gcp\n", ["-    - cloud: azure"]),
        ("event_callback: echo\n", ["-event_callback: echo"]),
        ("resources: {accelerators: v5e-8, accelerator_args: {tpu_name: x, runtime_version: v2-alpha-tpuv5-lite}}\n", [
            "-resources: {accelerators: v5e-8, accelerator_args: {tpu_name: x, runtime_version: v2-alpha-tpuv5-lite}}",
            "+resources: {accelerators: v5e-8, accelerator_args: {runtime_version: v2-alpha-tpuv5-lite}}"]),
        ("file_mounts:\n  /d:\n    source: s3://bbb/x\n    mode: MOUNT\n", []),
        ("file_mounts:\n  /d: {source: gs://bbb/x, mode: MOUNT_CACHED}\n", [
            "-  /d: {source: gs://bbb/x, mode: MOUNT_CACHED}", "+  /d: {source: gs://bbb/x, mode: MOUNT}"]),
        ("file_mounts: {/d: {source: s3://bbb, mode: COPY}}\nresources: {infra: aws}\n", []),
        ("inputs: {s3://xxx: 3}\nconfig: {kubernetes: {}}\n", ["-config: {kubernetes: {}}"]),
        ("api_server_access: true\n", ["-api_server_access: true"]),
    ],
)  # fmt: skip
def test_only_what_must_change_changes_and_the_result_runs(text: str, difference: list[str]) -> None:
    found = imported(HEAD + text)
    changes = changed(text)
    assert [line for line in changes if line not in ("+config: {}",)] == difference
    assert found.problems == () and found.file is not None
    assert bool(found.rewrite.remarks) == bool(difference)
    again = imported(found.rewrite.after)
    assert again.rewrite.diff() == "", "an imported file needs no further change"


def test_what_cannot_be_served_comes_together_with_the_lines_of_the_written_file() -> None:
    text = "api_server_access: true\nservice: {replicas: 2}\nresources:\n  cloud: azure\n  accelerators: A40\nrun: x\n"
    found = imported(text)
    assert found.file is None
    assert [(one.line, one.what) for one in found.problems] == [
        (2, "`service` is not served by orch"),
        (5, "orch rents no machine with `A40`"),
    ]


def test_a_tpu_node_keeps_its_own_rewrite() -> None:
    with pytest.raises(OutdatedTaskError):
        imported("resources: {accelerators: tpu-v2-8, accelerator_args: {tpu_vm: false}}\nrun: x\n")


def test_text_that_is_no_yaml_is_reported_and_not_changed() -> None:
    found = imported("run: 'x\n")
    assert found.rewrite.diff() == ""
    assert len(found.problems) == 1


@pytest.mark.parametrize(
    ("text", "whats", "step"),
    [
        ("storage_mounts: {/d: s3://abc}\n", ["`storage_mounts` is not served by orch"], "`file_mounts`"),
        (
            "file_mounts: {/d: {name: abc, source: gs://abc/d}}\nresources: {infra: gcp}\n",
            ["a mount with `name` and `source` would make a bucket"],
            "remove `name`: gs://abc/d is mounted as it is",
        ),
        (
            "file_mounts: {/d: {name: abc, source: ./d}}\nresources: {infra: gcp}\n",
            ["a mount with `name` and `source` would make a bucket"],
            "write source: gs://abc",
        ),
        (
            "resources: {accelerators: v5e-8, cpus: 8+, memory: 32+}\n",
            ["`cpus: 8+` cannot be checked", "`memory: 32+` cannot be checked"],
            "remove cpus",
        ),
    ],
)
def test_all_that_cannot_be_served_is_named_with_what_to_write(text: str, whats: list[str], step: str) -> None:
    problems = imported(HEAD + text).problems
    assert [problem.what for problem in problems] == whats
    assert step in problems[0].next_step and "volume_mounts" not in str(problems)


def test_the_place_of_a_removed_candidate_is_not_replaced() -> None:
    found = list_remarks(imported(HEAD + "resources:\n  any_of:\n    - cloud: azure\n    - cloud: gcp\n"))
    assert "line 6: `cloud` is removed: orch rents nothing from azure" in list(found)
