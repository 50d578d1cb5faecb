"""`cpus`, `memory` and NAME:COUNT in a task file: which machine they mean, and where a mistake is."""

from __future__ import annotations

import pytest

from orchestrator.task.errors import TaskError
from orchestrator.task.layers import Overrides
from orchestrator.task.parse import TaskFile, parse_task


def read(resources: str, flags: Overrides | None = None) -> TaskFile:
    return parse_task(f"run: x\nresources: {resources}\n", file="t.yaml", env={}, flags=flags)


@pytest.mark.parametrize(
    ("resources", "chosen"),
    [
        ("{infra: aws}", ["aws t3.medium"]),
        ("{infra: aws, accelerators: cpu}", ["aws t3.medium"]),
        ("{cpus: 4+, infra: aws}", ["aws t3.xlarge"]),
        ("{cpus: 4+}", ["gcp e2-highcpu-4"]),
        ("{cpus: 4+, memory: 16+}", ["gcp e2-standard-4"]),
        ("{infra: gcp, cpus: 4+, memory: 16+}", ["gcp e2-standard-4"]),
        ("{infra: gcp}", ["gcp e2-highcpu-2"]),
        ("{instance_type: e2-standard-4}", ["gcp e2-standard-4"]),
        ("{infra: gcp, accelerators: 'L4:4'}", ["gcp g2-standard-48"]),
        ("{infra: gcp, accelerators: 'A100:8'}", ["gcp a2-highgpu-8g"]),
        ("{accelerators: 'A100:16'}", ["gcp a2-megagpu-16g"]),
        ("{cpus: 4+, infra: '*/eu-west-1'}", ["aws/eu-west-1 t3.xlarge"]),
        ("{cpus: '4', memory: 8, infra: aws}", ["aws c7i.xlarge"]),
        ("{memory: 64gb, infra: aws}", ["aws m7i.4xlarge"]),
        ("{instance_type: m7i.xlarge}", ["aws m7i.xlarge"]),
        ("{instance_type: m7i.xlarge, cpus: 4, memory: 10+}", ["aws m7i.xlarge"]),
        ("{accelerators: 'L4:1'}", ["gcp g2-standard-4"]),
        ("{accelerators: 'L4:1', cpus: 16+}", ["gcp g2-standard-16"]),
        ("{accelerators: {L4: 1, T4: 1}}", ["aws g4dn.xlarge", "gcp g2-standard-4"]),
        ("{any_of: [{accelerators: 'L40S:1'}, {cpus: 8+}], memory: 30+}", ["gcp e2-standard-8", "aws g6e.xlarge"]),
        ("{ordered: [{cpus: 2}, {accelerators: 'A10G:4'}], infra: aws}", ["aws t3.medium", "aws g5.12xlarge"]),
        ("{cpus: 4+, infra: local}", ["local local:1"]),
    ],
)
def test_a_task_gets_the_cheapest_machine_that_fits(resources: str, chosen: list[str]) -> None:
    assert [f"{one.infra} {one.machine.name}" for one in read(resources).only.choices] == chosen


def test_the_notes_say_which_machine_and_why() -> None:
    notes = " / ".join(read("{cpus: 4+, memory: 16+, infra: aws}").notes)
    assert "`cpus: 4+, memory: 16+` is t3.xlarge: 1 host" in notes
    assert "t3.xlarge is the cheapest of the 17 types in orch's table that fit: 4 vCPUs, 16 GiB, $0.17 an hour" in notes
    assert "AWS bills extra for load above its baseline" in notes
    assert "the cheapest" not in " ".join(read("{accelerators: 'L40S:8'}").notes), "there is one only"
    (note,) = read("{cpus: 4+, infra: 'local:2'}").notes
    assert note == "`cpus: 4+` chooses among rented machines, and infra is local:2: it is not checked"


@pytest.mark.parametrize(
    ("resources", "place", "what"),
    [
        ("{cpus: 500}", "t.yaml:2:13", "no machine that fits has 500 vCPUs"),
        ("{accelerators: L4, memory: 17}", "t.yaml:2:31", "no machine that fits has 17 GiB"),
        ("{instance_type: m7i.xlarge, cpus: 8+}", "t.yaml:2:40", "no machine that fits has 8+ vCPUs"),
        ("{accelerators: v5e-16, cpus: 4}", "t.yaml:2:35", "`cpus: 4` cannot be checked"),
        ("{accelerators: 'A10G:2'}", "t.yaml:2:13", "no machine has 2 A10G"),
        ("{cpus: 4x}", "t.yaml:2:13", "`resources.cpus` cannot be `4x`"),
        ("{cpus: 0}", "t.yaml:2:13", "`resources.cpus` cannot be 0"),
        ("{memory: 16x}", "t.yaml:2:13", "`resources.memory` cannot be `16x`"),
    ],
)
def test_a_mistake_is_shown_at_its_key(resources: str, place: str, what: str) -> None:
    with pytest.raises(TaskError) as caught:
        read(resources)
    (problem,) = caught.value.problems
    assert (problem.place, problem.what) == (place, what)


def test_a_flag_that_names_the_machine_keeps_the_requirements() -> None:
    found = read("{infra: aws, cpus: 8+}", Overrides(accelerators="L4:1")).only.choices
    assert [one.machine.name for one in found] == ["g6.2xlarge"]


def test_the_recorded_task_has_the_chosen_type() -> None:
    """So that a resume takes the same type, whatever a later table has."""
    again = parse_task(read("{cpus: 4+, infra: aws}").only.to_json(), file="t.json", env={}).only
    assert [one.machine.name for one in again.choices] == ["t3.xlarge"]
    assert "cpus" not in read("{cpus: 4+, infra: aws}").only.to_json()


@pytest.mark.parametrize(
    ("accelerators", "taken", "note"),
    [
        ("{A10: 1, L4: 1}", ["g2-standard-4"], "left out: orch rents no machine with `A10:1` (other clouds have it)"),
        ("['V100:1', 'T4:1']", ["g4dn.xlarge"], "left out: orch does not serve `V100:1` (AWS ended its p3 types"),
        ("['H200:1', 'H200:8']", ["p5en.48xlarge"], "left out: no machine has 1 H200 (one has 8)"),
    ],
)
def test_one_of_several_that_no_cloud_of_orch_has_is_left_out_with_a_note(
    accelerators: str, taken: list[str], note: str
) -> None:
    found = parse_task(f"resources: {{accelerators: {accelerators}}}\nrun: a\n", file="t.yaml", env={})
    assert [choice.machine.name for choice in found.only.choices] == taken
    assert any(one.startswith(note) for one in found.notes), found.notes


@pytest.mark.parametrize("accelerators", ["{A10: 1, V100: 1}", "[H100:8, H1000:8]", "A10:1"])
def test_without_another_choice_or_with_a_wrong_name_it_is_refused(accelerators: str) -> None:
    with pytest.raises(TaskError):
        parse_task(f"resources: {{accelerators: {accelerators}}}\nrun: a\n", file="t.yaml", env={})


def test_a_name_that_orch_does_not_list_is_not_said_to_be_absent() -> None:
    with pytest.raises(TaskError, match=r"orch's tables have no .* machine type `t3\.small`"):
        parse_task("run: x\nresources: {instance_type: t3.small}\n", file="t.yaml", env={})


def test_one_chip_is_written_in_the_singular() -> None:
    notes = parse_task("run: x\nresources: {accelerators: 'L4:1'}\n", file="t.yaml", env={}).notes
    assert "`L4:1` is g2-standard-4: 1 host with 1 chip" in notes
