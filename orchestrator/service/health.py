"""The routes for machines that watch the service: whether it lives, whether it works, and its numbers."""

from __future__ import annotations

from orchestrator.service.measures import Measure, read_measures
from orchestrator.service.route import Answer, Call


def show_health(_call: Call) -> Answer:
    """Answer that the process lives."""
    return Answer(text="ok\n")


def show_readiness(call: Call) -> Answer:
    """Answer whether the store can be read. Raises OrchError when it cannot."""
    with call.open_reader() as store:
        store.head()
    return Answer(text="ready\n")


def show_metrics(call: Call) -> Answer:
    """Answer with numbers in the text format of Prometheus."""
    with call.open_reader() as store:
        measures = read_measures(store)
    return Answer(text="\n".join(line for one in measures for line in _format_measure(one)) + "\n")


def _format_measure(one: Measure) -> list[str]:
    shown = [
        f"{one.name}{_format_label(one.label, value)} {_format_number(number)}"
        for value, number in sorted(one.values.items())
    ]
    return [f"# HELP {one.name} {one.meaning}", f"# TYPE {one.name} {'counter' if one.is_counter else 'gauge'}", *shown]


def _format_label(name: str, value: str) -> str:
    return f'{{{name}="{value}"}}' if name else ""


def _format_number(number: float) -> str:
    """Return all digits: a counter must not stand still at 1.23457e+06."""
    return str(int(number)) if number == int(number) else repr(number)
