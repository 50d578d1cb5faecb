"""The service inside a program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import orchestrator
from orchestrator.service.in_process import open_in_process

pytestmark = pytest.mark.usefixtures("own_home")


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ORCH_STORE", raising=False)


def test_a_program_has_the_calls_of_a_client_without_a_server(tmp_path: Path) -> None:
    with open_in_process() as orch:
        assert orch.show_member()["role"] == "admin"
        assert list(orch.list_runs()) == []
        task = "name: mine\nresources: {infra: 'local:1'}\nrun: 'true'\n"
        plan = orch.make_plan("launch", task=task)
        assert "mine" in plan.text
        with pytest.raises(orchestrator.OrchError, match="no cluster 'other'"):
            orch.make_plan("down", cluster="other")
        listening = subprocess.run(
            ["/bin/sh", "-c", f"ls {tmp_path}/state/service"], capture_output=True, text=True, check=True
        )
        assert "address" not in listening.stdout, "no server is noted that `orch serve --link` would find"


def test_it_ends_with_its_block_and_can_be_opened_again(tmp_path: Path) -> None:
    with open_in_process() as first:
        assert first.list_clusters() == []
    with open_in_process() as second:
        assert second.list_clusters() == []
    with pytest.raises(orchestrator.OrchError, match="does not answer"):
        first.list_clusters()


def test_the_package_stays_light() -> None:
    code = "import sys, orchestrator; print(sorted(name for name in sys.modules if name.startswith('orchestrator')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['orchestrator']"
