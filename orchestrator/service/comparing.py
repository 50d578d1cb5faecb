"""The comparison of runs, as a document and as a page."""

from __future__ import annotations

from orchestrator.documents.comparison import Comparison, compare_runs, comparison_as_json
from orchestrator.service.drawing.run_charts import Axis, draw_losses
from orchestrator.service.route import Answer, Call


def compare(call: Call) -> Answer:
    """Answer with the runs that the query names, side by side."""
    return Answer(document=comparison_as_json(_read_comparison(call), call.site.now()))


def show_comparison(call: Call) -> Answer:
    """Show them: losses over one another, numbers, and settings with those that differ first."""
    found = _read_comparison(call)
    axis: Axis = call.query["x"]
    if axis == "dollars" and not any(one.view.run.dollars for one in found.runs):
        axis = "time"
    values = {
        "comparison": found,
        "axis": axis,
        "loss": draw_losses(found.runs, axis),
        "left_out": [one for one in found.runs if axis == "dollars" and not one.view.spending.known],
    }
    return Answer(template="compare.html", values=values)


def _read_comparison(call: Call) -> Comparison:
    with call.open_reader() as store:
        return compare_runs(store, call.query["run"], call.site.now(), call.site.open_bucket, call.site.curves)
