"""Tasks for TPU Nodes: refused with the date, and rewritten with nothing changed that need not be."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.providers.google.tpu_nodes import TpuNodeError
from orchestrator.task.errors import TaskRewrite
from orchestrator.task.parse import parse_task

OLD = """\
# an old task
name: mnist   # keep me

resources:
  infra: gcp/us-central1/us-central1-b
  instance_type: n1-highmem-8   # drives the node
  accelerators: tpu-v2-8
  # settings of the TPU
  accelerator_args:
    runtime_version: 2.12.0  # TensorFlow
    tpu_vm: False
    tpu_name: mytpu

run: |
  # not a comment of YAML: tpu_vm: False
  python mnist.py --tpu=$TPU_NAME
"""

NEW = """\
# an old task
name: mnist   # keep me

resources:
  infra: gcp/us-central1/us-central1-b
  accelerators: tpu-v2-8
  # settings of the TPU
  accelerator_args:
    runtime_version: tpu-ubuntu2204-base  # TensorFlow

run: |
  # not a comment of YAML: tpu_vm: False
  python mnist.py --tpu=$TPU_NAME
"""


def refused(text: str) -> TpuNodeError:
    with pytest.raises(TpuNodeError) as caught:
        parse_task(text, file="old.yaml", env={})
    return caught.value


def rewriting(text: str) -> TaskRewrite:
    found = refused(text).rewriting
    assert found is not None
    return found


def test_it_is_refused_with_the_date_and_the_way_on() -> None:
    lines = refused(OLD).lines()
    assert lines[0] == "error[tpu-node]: old.yaml:11: `tpu_vm: false` asks for a TPU Node"
    assert "25 April 2025" in lines[1]
    assert lines[2] == "  next: orch launch old.yaml --write   saves it for TPU VMs"
    assert len(lines) == 3  # tpu_name and the runtime version are reported by the rewriting


def test_only_what_must_change_is_changed() -> None:
    made = rewriting(OLD)
    assert made.after == NEW
    assert [line for line in made.diff().splitlines() if line.startswith(("-  ", "+  "))] == [
        "-  instance_type: n1-highmem-8   # drives the node",
        "-    runtime_version: 2.12.0  # TensorFlow",
        "-    tpu_vm: False",
        "-    tpu_name: mytpu",
        "+    runtime_version: tpu-ubuntu2204-base  # TensorFlow",
    ]


def test_what_no_rewriting_can_know_is_remarked() -> None:
    remarks = rewriting(OLD).remarks
    assert any(remark.startswith("line 13: ") for remark in remarks)
    assert any("holds no TensorFlow" in remark for remark in remarks)


def test_the_rewritten_task_is_one_for_a_tpu_vm() -> None:
    choice = parse_task(NEW, file="new.yaml", env={}).only.choices[0]
    assert (choice.machine.name, choice.accelerator_args.runtime_version) == ("v2-8", "tpu-ubuntu2204-base")


FORMS = {
    "{accelerators: v3-8, accelerator_args: {tpu_vm: false}}": "{accelerators: v3-8}",
    "{accelerator_args: {tpu_vm: no}, accelerators: v3-8}": "{accelerators: v3-8}",
    "{accelerators: v3-8, accelerator_args: {runtime_version: '2.11.0', tpu_vm: false, tpu_name: x}}": (
        "{accelerators: v3-8, accelerator_args: {runtime_version: tpu-ubuntu2204-base}}"
    ),
    "{accelerators: v3-8, accelerator_args: {tpu_name: x, tpu_vm: off, gcp_queued_resource: true}, use_spot: true}": (
        "{accelerators: v3-8, accelerator_args: {gcp_queued_resource: true}, use_spot: true}"
    ),
    "{accelerators: v5p-8, accelerator_args: {runtime_version: 2.12.0, tpu_vm: false}}": (
        "{accelerators: v5p-8, accelerator_args: {runtime_version: v2-alpha-tpuv5}}"
    ),
    "{accelerators: [v2-8, v3-8], accelerator_args: {runtime_version: 2.12.0, tpu_vm: false}}": (
        "{accelerators: [v2-8, v3-8]}"
    ),
    "{accelerators: v3-8, accelerator_args: {runtime_version: tpu-vm-tf-2.12.0, tpu_vm: false}}": (
        "{accelerators: v3-8, accelerator_args: {runtime_version: tpu-vm-tf-2.12.0}}"
    ),
    "\n  any_of:\n  - accelerator_args:\n      tpu_vm: false\n    accelerators: v2-8\n  - {accelerators: v3-8}": (
        "\n  any_of:\n  - accelerators: v2-8\n  - {accelerators: v3-8}"
    ),
    "\n  accelerators: v3-8\n  ordered:\n  - accelerator_args: {tpu_vm: false, runtime_version: 2.9.1}": (
        "\n  accelerators: v3-8\n  ordered:\n  - accelerator_args: {runtime_version: tpu-ubuntu2204-base}"
    ),
}


@pytest.mark.parametrize(("old", "new"), FORMS.items())
def test_every_way_to_write_it_is_rewritten(old: str, new: str) -> None:
    made = rewriting(f"resources: {old}\nrun: x\n").after
    assert made == f"resources: {new}\nrun: x\n"
    assert parse_task(made, file="new.yaml", env={}).only.run == "x"


def test_several_tasks_are_rewritten_together() -> None:
    made = rewriting(
        f"{OLD}---\nresources: {{accelerators: v3-8, accelerator_args: {{tpu_vm: false}}}}\nrun: y\n"
    ).after
    assert made == f"{NEW}---\nresources: {{accelerators: v3-8}}\nrun: y\n"


@pytest.mark.parametrize(
    "text",
    [
        "x: &args {tpu_vm: false}\nresources: {accelerators: v3-8, accelerator_args: *args}\nrun: x\n",
        "resources:\n  any_of:\n  - accelerator_args:\n      tpu_vm: false\nrun: x\n",
    ],
)
def test_what_is_not_certain_is_left_to_a_person(text: str) -> None:
    error = refused(text)
    assert error.rewriting is None
    assert error.next_step == "remove tpu_vm and tpu_name"


@pytest.mark.parametrize("args", ["{tpu_vm: true}", "{}", "{runtime_version: tpu-ubuntu2204-base}"])
def test_a_task_for_tpu_vms_is_not_touched(args: str) -> None:
    assert parse_task(f"resources: {{accelerators: v3-8, accelerator_args: {args}}}\nrun: x", file="t", env={}).only


_COMMENT = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=12)


@settings(max_examples=40, deadline=None)
@given(
    st.permutations(["tpu_vm: False", "tpu_name: x", "gcp_queued_resource: true", "runtime_version: 2.12.0"]),
    st.lists(_COMMENT, min_size=6, max_size=6),
)
def test_comments_and_order_stay_wherever_they_are(keys: list[str], comments: list[str]) -> None:
    lines = [f"    {key}  # {comment}" for key, comment in zip(keys, comments, strict=False)]
    head = [f"# {comments[4]}", "resources:", "  accelerators: v2-8", "  accelerator_args:"]
    made = rewriting("\n".join([*head, *lines, f"  use_spot: true # {comments[5]}", "run: x"])).after
    kept = [line.replace("2.12.0", "tpu-ubuntu2204-base") for line in lines if "tpu_" not in line.partition("#")[0]]
    assert made == "\n".join([*head, *kept, f"  use_spot: true # {comments[5]}", "run: x"])
