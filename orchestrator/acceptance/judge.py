"""Compare what a step left with what must hold after it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.acceptance.process import Output
from orchestrator.acceptance.steps import SENT_TEXT, Expectation

Slices = Mapping[str, str]  # the slice that serves each cluster


def find_problem(expects: Expectation, output: Output, *, folder: Path, cloud: str, before: Slices, now: Slices) -> str:
    """Return the first thing that does not hold, or "".

    Args:
        expects: What must hold.
        output: Of the command.
        folder: Of the run.
        cloud: Whose listing counts.
        before: Slices on record before the step.
        now: Slices on record after it.
    """
    if output.problem:
        return output.problem
    if expects.statuses and output.status not in expects.statuses:
        return f"exit status {output.status}, not {' or '.join(map(str, expects.statuses))}"
    if expects.pattern and not re.search(expects.pattern, output.text):
        return f"the output does not match {expects.pattern}"
    if expects.received and not _is_unchanged(folder / expects.received):
        return f"{expects.received} is not what was sent"
    if expects.listed and (problem := _find_listed_problem(expects, output.out, cloud)):
        return problem
    if (name := expects.same_slice) and before.get(name) != now.get(name):
        return f"{name} is served by {now.get(name)}, not by {before.get(name)}"
    return ""


def _is_unchanged(file: Path) -> bool:
    try:
        return file.read_text(encoding="utf-8") == SENT_TEXT
    except OSError:
        return False


def _find_listed_problem(expects: Expectation, out: str, cloud: str) -> str:
    places = list_places(out, cloud)
    if not places:
        return f"the output has no listing of {cloud}"
    if problem := next((str(place["problem"]) for place in places if place["problem"]), ""):
        return problem
    for cluster, count in expects.listed:
        found = [one["name"] for place in places for one in place["slices"] if one["cluster"] == cluster]
        if len(found) != count:
            return f"{cluster} has {len(found)} slices in the cloud, not {count}: {', '.join(found) or 'none'}"
    return ""


def list_places(out: str, cloud: str) -> list[dict[str, Any]]:
    """Return the places of a cloud in the output of `orch reap -o json`; none where it is no such document."""
    try:
        return [place for place in json.loads(out)["places"] if place["provider"] == cloud and place["asked"]]
    except (ValueError, KeyError, TypeError):
        return []


def list_accounts(out: str, cloud: str) -> set[str]:
    """Return the names of accounts and projects in the output of `orch reap -o json`."""
    places = list_places(out, cloud)
    return {*(str(one["place"]) for one in places), *(name_account(one["account"]) for one in places)} - {""}


def name_account(account: str | None) -> str:
    """Return the vendor's name in an account such as gcp:my-project@loopback; "" for none."""
    return (account or "").partition(":")[2].partition("@")[0]
