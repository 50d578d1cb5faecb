"""A limit that ends a program which a service launched: the member's command and a pipeline end as it does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from support.orch_process import Orch, until
from support.service_site import Served, log_in, serve

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TASK = """\
name: {name}
resources: {{infra: 'local:1'}}
limits: {{max_hours: 0.002}}
run: |
  trap 'echo saved; exit 0' TERM
  for i in $(seq 900); do sleep 0.2; done
"""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A service, and a computer of ada that is logged in to it."""

    site: Served
    ada: Orch


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("served")
    service = Orch(folder / "service")
    service.folder.mkdir()
    with serve(service, "--allow", "infra:local", page_only=False) as site:
        yield Pair(site=site, ada=log_in(site, folder / "ada", site.port))


def test_a_limit_ends_the_command_of_a_member(pair: Pair) -> None:
    (pair.ada.folder / "t.yaml").write_text(TASK.format(name="mine"))
    done = pair.ada("launch", "t.yaml", "--yes")
    assert done.returncode == 124, done.stderr
    assert "error[limit]: 'mine': limit of 0.002 hours reached" in done.stderr
    assert "succeeded" not in done.stderr
    (run,) = json.loads(pair.ada.ok("runs", "-o", "json"))["runs"]
    assert (run["status"], run["state"]) == (124, "ended")
    pair.ada("down", "mine", "--yes")


def test_a_pipeline_of_the_service_does_not_go_on_after_a_limit(pair: Pair) -> None:
    orch, mark = pair.site.orch, pair.site.orch.folder / "stage-two"
    second = f"name: b\nresources: {{infra: 'local:1'}}\nrun: touch {mark}\n"
    (orch.folder / "pipe.yaml").write_text(f"name: pipe\n---\n{TASK.format(name='a')}---\n{second}")
    orch.ok("launch", "pipe.yaml", "--detach", "--yes")
    until("it is over", lambda: "pipe" not in orch.ok("queue"))
    assert "limit of 0.002 hours reached" in orch.ok("queue", "--all") + orch.ok("events")
    assert not mark.exists()
