"""The pages name the pipeline and the stage of clusters and runs, and what drives a pipeline."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.orch_process import Orch
from support.service_site import serve

from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.store.records import NewJob
from orchestrator.store.store import Store

SETTINGS = json.dumps({"project": "default", "owner": "ann"})


def read_text(page: str) -> str:
    """Return the words of a page, without its tags."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))


@pytest.mark.timeout(120)
def test_pages_name_the_stage(tmp_path: Path) -> None:
    orch = Orch(tmp_path)
    orch.ok("queue")
    orch.state.mkdir(parents=True, exist_ok=True)
    tasks = tuple(json.dumps({"name": name}) for name in ("prepare", "train", "<b>score</b>"))
    with Store(orch.state / "orch.db") as store:
        pipeline = store.open_pipeline("pipe", tasks, SETTINGS, uid="p-1", stage=1)
        cluster = store.open_cluster("pipe-2", "1 host")
        job = NewJob(kind="launch", run_id="two", digest="d", task="", bucket="", ranks=None,
                     after_end=TeardownPolicy.DOWN, pipeline=pipeline.uid, stage=1)  # fmt: skip
        store.open_job(cluster, job)
        other = store.open_pipeline("last", tasks, SETTINGS, uid="p-2", stage=2)
    with serve(orch) as site:
        cookie = site.sign_in()
        pages = {path: site.ask(path, signed=False, cookie=cookie).text
                 for path in ("/clusters/pipe-2", "/runs/two", "/", "/queue")}  # fmt: skip
    for path in ("/clusters/pipe-2", "/runs/two", "/"):
        assert "stage 2 of 3 (train) of pipe" in read_text(pages[path]), path
    queue = read_text(pages["/queue"])
    assert "pipe stage 2 of 3 (train) pipe-2 ○" in queue.replace("●", "○")
    assert "none (orch watch pipe)" in queue
    assert "<b>score</b>" not in pages["/queue"] and "&lt;b&gt;score&lt;/b&gt;" in pages["/queue"], other
