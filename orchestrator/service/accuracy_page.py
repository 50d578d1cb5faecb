"""The page that compares what plans estimated with what was measured: `orch offers --accuracy` in a browser."""

from __future__ import annotations

from orchestrator.documents.accuracy import count_inside, judge_runs
from orchestrator.engine.training.kept_speeds import keep_speeds
from orchestrator.service.route import Answer, Call

_MOST = 30  # runs of a page: the curves of each are read from its bucket


def show_accuracy(call: Call) -> Answer:
    """Show the newest runs that have ended, of the projects that who asks may see."""
    query = call.query
    with call.open_reader() as store:
        runs = judge_runs(
            store, call.site.now(), call.site.open_bucket, project=query["project"], owner=query["owner"], most=_MOST,
            curves=call.site.curves,
        )  # fmt: skip
    keep_speeds(one.speed for one in runs if one.speed is not None)
    inside, every = count_inside(runs)
    rows = [(run, {one.quantity: one for one in run.compared}) for run in runs if run.compared or run.problem]
    values = {"rows": rows, "inside": inside, "every": every, "most": _MOST if len(runs) == _MOST else None}
    return Answer(template="accuracy.html", values=values)
