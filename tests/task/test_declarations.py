"""A field is declared once: the reader, the messages, the schema, the documentation and the configuration know it."""

import jsonschema
import pytest
from pydantic import ValidationError

from orchestrator.task.export import make_config_keys, make_fields_table, make_task_schema
from orchestrator.task.model import Limits, Recovery, TaskSection
from orchestrator.task.schema import find_issues
from orchestrator.task.section import Count, Lazy, NotNegative, Refused, Section, Whole, own
from orchestrator.task.yaml_reader import Value


class WiderLimits(Limits):
    """The section `limits` with one field more and one refused key more."""

    refused = {"max_watts": Refused("orch measures no power", "use max_cost")}  # noqa: RUF012 - a ClassVar of Section

    max_joules: Whole | None = own(None, "energy of the whole run", config="limits.max_joules")


class WiderTask(TaskSection):
    """A task whose limits have that field."""

    limits: Lazy[WiderLimits] = own(WiderLimits.model_construct(), "when to stop spending")


def messages(data: Value) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        WiderTask.model_validate(data)
    return [f"{issue.what} ({issue.why})" for issue in find_issues(caught.value, data, WiderTask)]


def test_the_reader_takes_a_new_field_and_names_it_in_every_message() -> None:
    assert WiderTask.model_validate({"limits": {"max_joules": 5}}).limits.max_joules == 5
    assert messages({"limits": {"max_joules": 0}}) == [
        "`limits.max_joules` cannot be 0 (it must be a whole number, 1 or more)"
    ]
    assert messages({"limits": {"max_joules": "5"}}) == [
        "`limits.max_joules` must be a whole number, 1 or more; here it is the text `5` ()"
    ]
    (unknown,) = messages({"limits": {"max_joule": 5}})
    assert "did you mean `max_joules`?" in unknown
    (unknown,) = messages({"limits": {"xyz": 5}})
    assert "max_cost, max_joules" in unknown
    assert messages({"limits": {"max_watts": 5}}) == [
        "`limits.max_watts` is not served by orch (orch measures no power)"
    ]


def test_the_schema_the_table_and_the_configuration_have_a_new_field() -> None:
    validator = jsonschema.Draft202012Validator(make_task_schema(WiderTask))
    assert validator.is_valid({"limits": {"max_joules": 5}})
    assert not validator.is_valid({"limits": {"max_joules": 0}})
    assert not validator.is_valid({"limits": {"max_watts": 5}})
    rows = make_fields_table(WiderTask).splitlines()
    assert "| `limits.max_joules` (ours) | a whole number, 1 or more | energy of the whole run |" in rows
    assert "| `limits.max_watts` | not served | orch measures no power: use max_cost |" in rows
    (key,) = [key for key in make_config_keys(WiderTask) if key["name"] == "max_joules"]
    assert (key["kind"], key["task_path"]) == ("int", "limits.max_joules")


def test_a_field_in_the_middle_of_recovery_cannot_shift_values() -> None:
    class WiderRecovery(Section):
        """Some fields of Recovery with `max_hangs` between them."""

        max_failures: Count = own(0, "")
        max_hangs: Count = own(0, "")
        hang_minutes: NotNegative = own(20.0, "")
        capacity_wait_hours: NotNegative = own(24.0, "")

    made = WiderRecovery(max_hangs=5, hang_minutes=7)
    assert (made.max_failures, made.max_hangs, made.hang_minutes, made.capacity_wait_hours) == (0, 5, 7, 24)
    for model in (Recovery, WiderRecovery):
        with pytest.raises(TypeError):
            model(5, 7)  # type: ignore[call-arg]  # a value without its name


def test_values_are_frozen_and_hashable() -> None:
    recovery = Recovery(max_failures=2)
    with pytest.raises(ValidationError):
        recovery.max_failures = 3  # type: ignore[misc]  # frozen
    assert len({recovery, Recovery(max_failures=2), Recovery()}) == 2
