"""`accelerators: auto`: what limits the choice of machines, and what a chosen machine was chosen for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeAlias

from pydantic import AfterValidator, Field

from orchestrator.formatting import COUNT_FORM, parse_count, parse_deadline
from orchestrator.task.errors import InvalidValueError
from orchestrator.task.section import LARGEST, OneOrMany, OrText, Positive, Section, Text, Whole, own

if TYPE_CHECKING:
    from orchestrator.task.model import TaskSection

AUTO = "auto"

Amount = Annotated[
    float,
    Field(strict=True, gt=0, le=1e30, allow_inf_nan=False),
    OrText(COUNT_FORM, "text such as 20B or 1e21", parse_count),
]


def _check_deadline(text: str) -> str:
    try:
        parse_deadline(text)
    except ValueError:
        raise InvalidValueError(f"`{{path}}: {text}` is not a time", "", "36h, 5d, or a date: 2026-12-24") from None
    return text


def _split_words(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part.strip() for word in words for part in word.split(",") if part.strip())


class Automatic(Section):
    """The section `resources.auto`.

    Attributes:
        by: A time after the launch, or a date.
    """

    budget: Positive | None = own(None, "US dollars for the whole run, at most; also the limit `limits.max_cost`")
    by: Annotated[Text, AfterValidator(_check_deadline)] = own(
        "", "when it has to be done", "text such as 36h, 5d or 2026-12-24"
    )
    max_hosts: Annotated[int, Field(strict=True, ge=1, le=4096)] = own(16, "hosts, at most")
    only: Annotated[tuple[Text, ...], OneOrMany(), AfterValidator(_split_words)] = own(
        (), "clouds, markets, chips or machines to choose from"
    )
    tokens: Amount | None = own(None, "tokens of the whole run of the bundled trainer; 20 for each parameter if absent")
    flops: Amount | None = own(None, "of an own program: FLOPs of the whole run")
    memory: Annotated[float, Field(strict=True, ge=0, le=LARGEST, allow_inf_nan=False)] = own(
        0.0, "of an own program: GiB that all chips need"
    )


class Estimated(Section):
    """What a chosen machine was chosen for; orch writes it.

    Attributes:
        step_seconds: The shortest and the longest step.
        losses_per_hour: By the own records of the time of the choice, so that each later one uses the same.
    """

    step_seconds: Annotated[tuple[Positive, ...], Field(min_length=2, max_length=2)] = own(
        (), "seconds of a step, from and to"
    )
    steps: Whole = own(1, "steps of the whole run; 1 for an own program")
    source: Text = own("", "whose figures those are", "text")
    losses_per_hour: Positive | None = own(
        None, "losses an hour of all these machines by own records; assumed if absent"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenMachines:
    """A task whose machines were chosen.

    Attributes:
        section: The task, with every candidate written out.
        notes: Lines for the plan.
    """

    section: TaskSection
    notes: tuple[str, ...] = ()


ChooseMachines: TypeAlias = Callable[["TaskSection"], ChosenMachines]
"""Chooses the machines of a task that leaves them to orch.

Raises:
    UserError: Nothing fits.
"""
