"""`orch forward`: what is refused before anything connects."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.execution.port_forward import find_free_port
from orchestrator.store.store import Store

Orch = Callable[..., Any]


@pytest.mark.parametrize("port", ["0", "65536", "a", "80:", ":80", "1:2:3", "-1", "\uff18\uff10"])
def test_a_port_that_is_none_is_refused(orch: Orch, filled: Path, port: str) -> None:
    said = orch("forward", "mine", "--", port)
    assert said.status == 2 and "is not PORT or PORT:HOSTPORT" in said.err


def test_a_stopped_cluster_is_refused_with_the_command_that_starts_it(orch: Orch, filled: Path) -> None:
    with Store(filled / "state" / "orch.db") as store:
        mine = store.cluster("mine")
        assert mine is not None
        store.note_state(mine, "stopped")
    for words in (("forward", "mine", str(find_free_port(20000))), ("ssh", "mine")):
        said = orch(*words)
        assert said.status == 6 and "'mine' is stopped" in said.err and "next: orch start mine" in said.err


def test_a_host_that_does_not_answer_ends_the_first_try(orch: Orch, filled: Path) -> None:
    said = orch("forward", "mine", str(find_free_port(20000)), "--host", "1")
    assert said.status == 8 and "cannot connect to worker1 of 'mine'" in said.err and "refused" in said.err
    assert orch("forward", "mine", "20000", "--host", "7").status == 2
    assert orch("forward", "none", "20000").status == 3


def test_a_free_port_is_the_next_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert find_free_port(port) != port
