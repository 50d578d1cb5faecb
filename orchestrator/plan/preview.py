"""A plan in one of three forms: text for people, JSON for programs, a shell script to read and paste from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from orchestrator.hosts import HostAddress
from orchestrator.plan.imagined import Plan

Form: TypeAlias = Literal["text", "json", "sh"]


def render(
    plan: Plan,
    form: Form = "text",
    *,
    verbose: bool = False,
    width: int = 100,
    command: str = "",
    hosts: Sequence[HostAddress] = (),
    advice: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The whole preview, ending in a newline. Loads only the form that is asked for.

    command: what to type to do it for real. verbose, width: text only. hosts: addresses that are known already, for
    the ssh lines of the script. advice: on each kind of machine, as trainer/shape/advice.py gives it.
    """
    if form == "json":
        from orchestrator.plan import preview_json

        return preview_json.render(plan, command=command, advice=advice)
    if form == "sh":
        from orchestrator.plan import preview_sh

        return preview_sh.render(plan, command=command, hosts=hosts)
    from orchestrator.plan import preview_text

    return preview_text.render(plan, verbose=verbose, width=width, command=command, advice=advice)
