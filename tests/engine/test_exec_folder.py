"""Where a command of `orch exec` runs: in the workdir of the last launch that sent one, however many came between."""

from __future__ import annotations

from pathlib import Path

from support.driving import Listener, fulfil, local_task

from orchestrator.engine.preparation import commands
from orchestrator.plan.actions import SyncTree
from orchestrator.plan.dry_run import make_plan
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.task.model import Task

_WHERE = '[ "$PWD" = "$ORCH_WORKDIR" ] && ls'


def _shown(hosts: tuple[int, ...] | None) -> dict[int, bytes]:
    listener = Listener()
    fulfil(commands.prepare_exec("c", _WHERE, hosts=hosts, workdir=None), listener)
    return listener.outputs


def _launch(hosts: int, folder: Path | None) -> None:
    task = local_task(hosts, run="true", workdir=None if folder is None else str(folder))
    fulfil(commands.prepare_launch(task, cluster="c", after=TeardownPolicy.KEEP))


def test_each_command_runs_in_the_workdir(home: Path, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text("")
    _launch(2, code)
    assert [_shown(hosts) for hosts in (None, (1,), None)] == [
        {0: b"train.py\n", 1: b"train.py\n"},
        {1: b"train.py\n"},
        {0: b"train.py\n", 1: b"train.py\n"},
    ]


def test_a_host_without_workdir_runs_it_in_its_home_folder(home: Path) -> None:
    _launch(1, None)
    listener = Listener()
    fulfil(commands.prepare_exec("c", '[ "$PWD" = "$HOME" ] && echo home', hosts=None, workdir=None), listener)
    assert listener.outputs == {0: b"home\n"}


def test_a_command_on_some_hosts_makes_no_preview_send_what_all_hosts_have(home: Path, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text("")
    _launch(2, code)
    task = local_task(2, run="true", workdir=str(code))
    before = _sent(task)
    _shown((1,))
    assert _sent(task) == before == []


def _sent(task: Task) -> list[str]:
    ready = commands.prepare_launch(task, cluster="c", after=TeardownPolicy.KEEP)
    planned = make_plan(ready.desired, ready.recorded, ready.facts).actions
    return [action.label for action in planned if isinstance(action, SyncTree)]
