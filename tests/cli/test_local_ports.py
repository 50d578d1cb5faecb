"""Clusters on this computer that run jobs at the same time have different rendezvous ports."""

from __future__ import annotations

from pathlib import Path

from support.orch_process import Orch

TASK = """\
name: {name}
resources: {{infra: 'local:2'}}
run: |
  [ "$ORCH_RANK" = 0 ] || exit 0
  exec "$ORCH_PYTHON" {program} {name} "$MASTER_PORT"
"""
# Many frameworks listen on all addresses of the head, and not on the host's own.
PROGRAM = """\
import pathlib, socket, sys, time

folder, (name, port) = pathlib.Path(__file__).parent, sys.argv[1:]
listener = socket.create_server(("", int(port)))
(folder / f"{name}.up").touch()
until = time.monotonic() + 40
while not all((folder / f"{one}.up").exists() for one in ("one", "two")):
    assert time.monotonic() < until, "the other cluster's job does not run"
    time.sleep(0.05)
"""


def test_two_clusters_of_one_computer_listen_at_the_same_time(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    orch = Orch(tmp_path)
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text(TASK.format(name=name, program=tmp_path / "program.py"))
    running = [orch.start("launch", f"{name}.yaml", "-c", name, "--yes") for name in ("one", "two")]
    try:
        ended = [one.communicate(timeout=120) for one in running]
        assert [one.returncode for one in running] == [0, 0], ended
    finally:
        for one in running:
            one.kill()
        orch("down", "one", "two", "--yes")
