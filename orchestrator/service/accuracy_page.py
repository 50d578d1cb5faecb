"""The estimates of plans beside what was measured, as `orch offers --accuracy` shows it: its document and its page."""

from __future__ import annotations

from orchestrator.documents.accuracy import JudgedRun, accuracy_as_json, count_inside, judge_runs
from orchestrator.engine.training.kept_speeds import keep_speeds
from orchestrator.service.route import Answer, Call

_MOST = 30  # runs of a page: the curves of each are read from its bucket


def list_accuracy(call: Call) -> Answer:
    """Answer with the newest runs that have ended, of the projects that who asks may see."""
    return Answer(document=accuracy_as_json(_judge(call), call.site.now()))


def _judge(call: Call, *, project: str = "", owner: str = "") -> tuple[JudgedRun, ...]:
    with call.open_reader() as store:
        runs = judge_runs(
            store, call.site.now(), call.site.open_bucket, project=project, owner=owner, most=_MOST,
            curves=call.site.curves,
        )  # fmt: skip
    keep_speeds(one.speed for one in runs if one.speed is not None)
    return runs


def show_accuracy(call: Call) -> Answer:
    """Show the newest runs that have ended, of the projects that who asks may see."""
    runs = _judge(call, project=call.query["project"], owner=call.query["owner"])
    inside, every = count_inside(runs)
    rows = [(run, {one.quantity: one for one in run.compared}) for run in runs if run.compared or run.problem]
    values = {"rows": rows, "inside": inside, "every": every, "most": _MOST if len(runs) == _MOST else None}
    return Answer(template="accuracy.html", values=values)
