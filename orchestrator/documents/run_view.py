"""One run as people look at it: loss beside cost beside topology, with its attempts and checkpoints."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.documents.clusters import ClusterSummary, PaidPerHour, sum_prices, summarize_cluster
from orchestrator.documents.curves import CurveReader, Point, reduce_points
from orchestrator.documents.runs import RunSummary, run_as_item, summarize_runs
from orchestrator.documents.spending import Spending, list_billed_times, list_kept_times
from orchestrator.errors import NotFoundError, OrchError
from orchestrator.formatting import format_utc
from orchestrator.offers.predictions import read_bounds
from orchestrator.plan.observed import EndedAttempt, Intent
from orchestrator.storage.bucket import Bucket
from orchestrator.store.job_spans import list_job_spans
from orchestrator.store.lookup import RUNNING, SUGGESTED, suggest_name
from orchestrator.store.read import Reader
from orchestrator.store.records import JobRecord

_STEP_FOLDER = re.compile(r"step-(\d{1,12})-.*")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One run with all that is known of it.

    Attributes:
        run: With `kept` times in its spending.
        points: All of them, by time.
        attempts: The attempts that have ended, over all jobs, in order.
        saved_steps: Steps whose checkpoint the bucket has or is receiving.
        slice: The newest slice that it had on its cluster; None when it never had one.
        holder: Its cluster, which may cost after the run has ended; None once that is closed.
        planned: Low and high of what its plan estimated for its machines, by quantity (offers/predictions.py).
        bucket_problem: Why the bucket could not be read; "" where it could.
    """

    run: RunSummary
    points: tuple[Point, ...]
    attempts: tuple[EndedAttempt, ...]
    saved_steps: tuple[int, ...]
    slice: Intent | None
    holder: ClusterSummary | None = None
    planned: Mapping[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    bucket_problem: str = ""

    @property
    def spending(self) -> Spending:
        """The cost over time."""
        return self.run.spending

    @property
    def paid_per_hour(self) -> PaidPerHour:
        """What the machines of its cluster cost now, whether it runs or has ended."""
        return sum_prices([] if self.holder is None else [self.holder])

    @property
    def at_work(self) -> bool:
        """Whether its newest job has not ended."""
        return self.run.last.state != "ended"

    @property
    def ends_at(self) -> float | None:
        """When the program expects to end, in epoch seconds; None when it reports none, or when that has passed."""
        last = self.points[-1] if self.points else None
        if last is None or last.eta_s is None or not self.at_work:
            return None
        end = last.time + last.eta_s
        return end if end > self.run.now else None

    @property
    def dollars_at_end(self) -> float | None:
        """The cost at `ends_at`, when nothing changes; None when it is not known."""
        rate, end = self.spending.dollars_per_hour, self.ends_at
        if not self.spending.known or rate is None or end is None:
            return None
        return self.spending.dollars_until(self.run.now) + max(end - self.run.now, 0) / 3600 * rate

    @property
    def machine_seconds(self) -> float:
        """For how long it has had machines: what its plan estimates as its time."""
        return sum(one.end - one.begin for one in self.spending.billed)

    @property
    def dollars_per_million_tokens(self) -> float | None:
        """What a million tokens cost so far; None when it is not known."""
        tokens = max((point.tokens or 0 for point in self.points), default=0)
        dollars = self.run.dollars
        return dollars / tokens * 1e6 if tokens and dollars is not None else None


def read_run(
    store: Reader, run_id: str, now: float, open_bucket: Callable[[str, str], Bucket], curves: CurveReader
) -> RunView:
    """Read one run.

    Args:
        store: Open.
        run_id: The run.
        now: Epoch seconds.
        open_bucket: Returns the bucket of a URI, as it is reached in a project.
        curves: Keeps what was read of the run's files before.

    Raises:
        NotFoundError: No such run is on record; the nearest is suggested.
    """
    found = summarize_runs(store, now, [run_id])
    if not found:
        near = suggest_name(run_id, store.newest_runs(limit=SUGGESTED))
        raise NotFoundError(f"no run '{run_id}' on record", near, "orch runs   (lists the runs on record)")
    run = found[0]
    points, steps, problem = _read_bucket(run, open_bucket, curves)
    return RunView(
        run=replace(run, spending=replace(run.spending, kept=list_kept_times(points))),
        points=points,
        attempts=_list_attempts(store, run),
        saved_steps=steps,
        slice=_find_slice(store, run),
        holder=summarize_cluster(store, run.cluster) if run.cluster.deleted is None else None,
        planned=_read_planned(store, run),
        bucket_problem=problem,
    )


def _find_slice(store: Reader, run: RunSummary) -> Intent | None:
    """Return the newest slice of its cluster that was there during its jobs: others may have rented more since."""
    intents = store.intents(run.cluster)
    if run.last.state in RUNNING and intents:
        return intents[-1]
    jobs = [job for job in store.jobs(run.cluster) if job.kind != "exec"]
    spans = [(begin, end) for job, begin, end in list_job_spans(jobs, run.now) if job.run_id == run.run_id]
    had = [one for one in intents if list_billed_times([one], spans, run.now)]
    return had[-1] if had else None


def _read_planned(store: Reader, run: RunSummary) -> dict[str, tuple[float, float]]:
    found, machines = store.find_prediction(run.run_id), run.spending.newest_machines
    return {} if found is None or machines is None else read_bounds(json.loads(found.estimate), machines.accelerator)


def _list_attempts(store: Reader, run: RunSummary) -> tuple[EndedAttempt, ...]:
    clusters = store.clusters_by_uid({job.cluster_uid for job in run.jobs})
    return tuple(
        ended
        for job in run.jobs
        if job.cluster_uid in clusters
        for ended in store.ended_attempts(clusters[job.cluster_uid], job.id)
    )


def _read_bucket(
    run: RunSummary, open_bucket: Callable[[str, str], Bucket], curves: CurveReader
) -> tuple[tuple[Point, ...], tuple[int, ...], str]:
    if not run.last.bucket:
        return (), (), ""
    try:
        bucket = open_bucket(run.last.bucket, run.project)
        return curves.read_points(bucket, run.run_id), _list_saved_steps(bucket, run.run_id), ""
    except OrchError as error:
        return (), (), f"{error.what}: {error.why}" if error.why else error.what


def _list_saved_steps(bucket: Bucket, run_id: str) -> tuple[int, ...]:
    try:
        folders = bucket.list_dir(f"{run_id}/checkpoints").folders
    except NotFoundError:
        return ()
    matches = (_STEP_FOLDER.fullmatch(folder.rstrip("/").rpartition("/")[2]) for folder in folders)
    return tuple(sorted({int(match[1]) for match in matches if match is not None}))


def run_as_json(view: RunView) -> dict[str, object]:
    """Return one run as in data/run.schema.json: its item of `orch runs -o json`, and what is known beyond it."""
    return {
        "version": 1,
        "kind": "run",
        "now": format_utc(view.run.now),
        "run": run_as_item(view.run),
        "attempts": [
            {
                "attempt": one.attempt,
                "cause": one.cause.value,
                "why": one.why,
                "at": format_utc(one.at),
                "step": one.step,
                "rank": one.rank,
                "exit_code": one.exit_code,
            }
            for one in view.attempts
        ],
        "saved_steps": list(view.saved_steps),
        "dollars_without_progress": _round(view.spending.dollars_without_progress_until(view.run.now))
        if view.spending.known
        else None,
        "dollars_per_hour": None if view.paid_per_hour.unknown else view.paid_per_hour.dollars,
        "dollars_per_million_tokens": _round(view.dollars_per_million_tokens),
        "dollars_at_end": _round(view.dollars_at_end),
        "ends_at": format_utc(view.ends_at) if view.ends_at is not None else None,
        "bucket_problem": view.bucket_problem or None,
        "outcome": _outcome_json(view.run.last),
    }


def _outcome_json(job: JobRecord) -> dict[str, object] | None:
    if job.state != "ended":
        return None
    return {"code": job.code or None, "what": job.what, "why": job.why or None, **job.next_step.as_json()}


def curves_as_json(view: RunView, most: int) -> dict[str, object]:
    """Return the curves of a run as in data/curves.schema.json, at most about `most` points."""
    points = reduce_points(view.points, most)
    return {"version": 1, "kind": "curves", "run_id": view.run.run_id, "points": _points_json(points, view.spending)}


def _points_json(points: Sequence[Point], spending: Spending) -> list[dict[str, object]]:
    return [
        {
            "step": point.step,
            "time": format_utc(point.time),
            "attempt": point.attempt,
            "loss": point.loss,
            "tokens": point.tokens,
            "tokens_per_s": point.tokens_per_s,
            "mfu": point.mfu,
            "dollars": _round(spending.dollars_until(point.time)) if spending.known else None,
        }
        for point in points
    ]


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
