"""The details under the steps of a verbose preview: the body of a request is JSON that can be pasted."""

from __future__ import annotations

import json
from collections.abc import Mapping

from orchestrator.plan import preview_text
from orchestrator.plan.actions import EndSlice
from orchestrator.plan.causes import EndCause
from orchestrator.plan.desired import Down
from orchestrator.plan.dry_run import Plan
from orchestrator.plan.steps import Done
from orchestrator.slices import Request

WIDTH = 92  # columns of a body


def show_body(body: Mapping[str, object]) -> list[str]:
    """Return the lines of a request's body in the verbose preview, without the indent under its step."""
    request = Request(service="s", method="POST", target="t", body=body)
    end = EndSlice(name="d-1", cause=EndCause.REQUESTED, why="w", request=request)
    plan = Plan(desired=Down("d"), steps=(end,), ending=Done("d"), now=0.0)
    shown = preview_text.render_text(plan, verbose=True).splitlines()
    first = next(number for number, line in enumerate(shown) if line.strip() == "{")
    indent = shown[first].index("{")
    last = shown.index(" " * indent + "}")
    return [line[indent:] for line in shown[first : last + 1]]


def test_a_body_of_many_levels_is_the_same_json_when_it_is_read_again() -> None:
    address = {"network": "n" * 40, "access": [{"type": "ONE_TO_ONE_NAT", "tier": "PREMIUM"}], "name": "x" * 40}
    body = {"networkInterfaces": [address, address], "labels": {"a": "b"}, "disks": [{"boot": True, "size": 100}]}
    lines = show_body(body)
    assert len(lines) > 10
    assert json.loads("\n".join(lines)) == body


def test_a_value_with_a_long_name_keeps_to_the_width() -> None:
    name, value = "name" * 10, ["item" * 5, "item" * 5]
    fits = len(json.dumps(value)) <= WIDTH < len(json.dumps({name: value}))
    assert fits, "the value alone fits on a line, and does not beside its name"
    lines = show_body({name: value, "other": "x" * 40})
    assert max(map(len, lines)) <= WIDTH
    assert len(lines) == 7, lines
