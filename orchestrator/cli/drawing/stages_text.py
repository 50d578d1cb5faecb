"""The stage of a pipeline in the text of read commands, from a document and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def format_stage(stage: Mapping[str, Any] | None) -> str:
    """Return `pipe 2/3 train` for a table; `-` for none."""
    if stage is None:
        return "-"
    return f"{stage['pipeline']} {stage['stage']}/{stage['stages']} {stage['stage_name'] or ''}".rstrip()


def describe_stage(stage: Mapping[str, Any]) -> str:
    """Return `stage 2 of 3 (train) of pipe`."""
    return f"{count_stage(stage)} of {stage['pipeline']}"


def count_stage(stage: Mapping[str, Any]) -> str:
    """Return `stage 2 of 3 (train)`."""
    name = f" ({stage['stage_name']})" if stage.get("stage_name") else ""
    return f"stage {stage['stage']} of {stage['stages']}{name}"
