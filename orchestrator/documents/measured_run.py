"""What one run reached on its machines, from which its time on others is estimated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

from orchestrator.catalog.accelerators import resolve
from orchestrator.documents.accuracy import measure_speed
from orchestrator.documents.curves import CurveReader
from orchestrator.documents.run_view import RunView, read_run
from orchestrator.errors import NotFoundError, UserError
from orchestrator.formatting import format_utc
from orchestrator.storage.bucket import Bucket
from orchestrator.store.read import Reader

_GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """What a run reached.

    Attributes:
        machines: On which it ran, in words.
        tokens: That it used.
        flops_per_token: From its speed and its share of the peak.
        utilisation: That share, from 0 to 1.
        memory_gib: Of all its chips, the most in use.
    """

    machines: str
    tokens: float
    flops_per_token: float
    utilisation: float
    memory_gib: float


def measure_run(
    store: Reader, run_id: str, now: float, open_bucket: Callable[[str, str], Bucket], curves: CurveReader | None = None
) -> MeasuredRun:
    """Return what a run reached, by the numbers that its program logged.

    Args:
        store: Open.
        run_id: The run.
        now: Epoch seconds.
        open_bucket: Returns the bucket of a URI, as it is reached in a project.
        curves: Keeps what was read of its files before.

    Raises:
        NotFoundError: No such run is on record.
        UserError: Its program logged too little, or its machines have no known peak.
    """
    view = read_run(store, run_id, now, open_bucket, curves or CurveReader())
    if view.bucket_problem:
        raise NotFoundError(f"the metrics of '{run_id}' cannot be read", view.bucket_problem, f"orch runs {run_id}")
    candidate = view.spending.newest_machines
    if candidate is None:
        raise UserError(f"'{run_id}' has no machines on record", "", "orch runs   (lists the runs on record)")
    machine = resolve(candidate.accelerator)
    chips = candidate.hosts * candidate.chips_per_host
    peak = chips * machine.peak_bf16_tflops_per_chip * 1e12
    speed, utilisation = measure_speed(view.points), _median_share(view)
    if not speed or not utilisation or not peak:
        why = "it needs tokens_per_s and mfu in its metrics, and chips whose peak is known"
        raise UserError(f"'{run_id}' says too little of its speed", why, "orch offers --flops N --memory GIB")
    memory = max((one.memory or 0 for one in view.points), default=0) * chips * machine.devices_per_chip
    return MeasuredRun(
        machines=f"{chips} {machine.chip or machine.name}",
        tokens=float(max(one.tokens or 0 for one in view.points)),
        flops_per_token=utilisation * peak / speed,
        utilisation=utilisation,
        memory_gib=memory / _GIB,
    )


def measured_as_json(run: MeasuredRun, now: float) -> dict[str, Any]:
    """Return what a run reached as in data/measured-run.schema.json."""
    return {
        "version": 1,
        "kind": "measured-run",
        "now": format_utc(now),
        "machines": run.machines,
        "tokens": run.tokens,
        "flops_per_token": run.flops_per_token,
        "utilisation": run.utilisation,
        "memory_gib": run.memory_gib,
    }


def _median_share(view: RunView) -> float:
    shares = [one.mfu for one in view.points if one.mfu is not None and 0 < one.mfu < 1]
    return median(shares[1:] or shares) if shares else 0.0
