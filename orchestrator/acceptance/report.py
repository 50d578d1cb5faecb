"""The report of a run as a JSON document that can be attached to a public issue."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from orchestrator import __version__
from orchestrator.acceptance.answers import Refusal, write_corpus
from orchestrator.acceptance.masking import mask_document
from orchestrator.acceptance.run import Result, Run, list_refusals

LAST_LINES = 25


def make_report(run: Run, *, end_command: str, names: Mapping[str, str], now: float) -> dict[str, Any]:
    """Return the report, masked.

    Args:
        run: Ended.
        end_command: What ends what is left.
        names: Names that only this run knows, each with its replacement.
        now: Seconds since 1970.
    """
    # masked before TOML quotes them: a rule must see the text as it was
    refusals = [Refusal(**mask_document(asdict(one), names)) for one in list_refusals(run)]
    request = run.request
    document: dict[str, Any] = {
        "version": 1,
        "kind": "acceptance",
        "passed": run.passed,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
        "versions": {"orch": __version__, "python": platform.python_version(), "system": platform.platform()},
        "cloud": request.cloud,
        "place": request.place,
        "accelerators": list(request.accelerators),
        "bucket": bool(request.bucket),
        "max_cost": request.max_cost,
        "max_minutes": request.max_minutes,
        "seconds": round(time.monotonic() - run.started, 1),
        "dollars": round(run.spent, 4),
        "steps": [_describe(result) for result in run.results],
        "ending": [_describe(result) for result in run.ending],
        "left": [*run.left, *([end_command] if run.left else [])],
        "refusals": [asdict(one) for one in refusals],
    }
    return {**mask_document(document, names), "corpus": write_corpus(refusals)}


def _describe(result: Result) -> dict[str, Any]:
    output = result.output
    return {
        "name": result.step.name,
        "argv": ["orch", *result.step.argv],
        "expected": result.step.expects.meaning,
        "outcome": str(result.outcome),
        "why": result.why or None,
        "status": output.status if output is not None else None,
        "seconds": round(output.seconds, 1) if output is not None else None,
        "dollars": round(result.dollars, 4),
        "stdout": output.out.splitlines()[-LAST_LINES:] if output is not None else [],
        "stderr": output.err.splitlines()[-LAST_LINES:] if output is not None else [],
    }
