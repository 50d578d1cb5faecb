"""Render a plan in one of three formats: text for people, JSON for programs, a shell script to read and paste from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from orchestrator.errors import OrchError
from orchestrator.hosts import HostAddress
from orchestrator.plan.dry_run import Plan

PreviewFormat: TypeAlias = Literal["text", "json", "sh"]


def render_plan(
    plan: Plan,
    form: PreviewFormat = "text",
    *,
    verbose: bool = False,
    width: int = 100,
    command: str | None = "",
    hosts: Sequence[HostAddress] = (),
    advice: Sequence[Mapping[str, Any]] = (),
    refusal: OrchError | None = None,
) -> str:
    """Return the complete preview, ending in a newline. Only the module of this format is loaded.

    Args:
        plan: What would be done.
        form: The format.
        verbose: Text only: add requests, environments and scripts.
        width: Text only: columns.
        command: The command line that carries the plan out; None to name none (text only).
        hosts: Addresses that are known already, for the ssh lines of the script.
        advice: What the training needs on each kind of machine, as trainer/shape/advice.py gives it.
        refusal: Why the command would refuse this plan, if it would.
    """
    if form == "json":
        from orchestrator.plan import preview_json

        return preview_json.render_json(plan, command=command or "", advice=advice, refusal=refusal)
    if form == "sh":
        from orchestrator.plan import preview_sh

        return preview_sh.render_sh(plan, command=command or "", hosts=hosts)
    from orchestrator.plan import preview_text

    return preview_text.render_text(plan, verbose=verbose, width=width, command=command, advice=advice, refusal=refusal)


def render_head(plan: Plan, *, width: int = 100, advice: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return the first lines of the text preview: machines, price, restarts, limits and advice."""
    from orchestrator.plan import preview_text

    return preview_text.render_head(plan, width=width, advice=advice)
