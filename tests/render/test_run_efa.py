"""EFA interfaces are counted before a program of several hosts starts; a folder of the test replaces /sys."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from render_support import HOST, program, run_script

from orchestrator.render.packages import Backend
from orchestrator.render.scripts import RunInputs, render_run

TWO = {**HOST, "ORCH_NUM_HOSTS": "2", "ORCH_COORDINATOR": "10.0.0.1:29507", "ORCH_RANKS_PER_HOST": "1"}


def run(tmp_path: Path, backend: Backend, devices: list[str], **env: str) -> subprocess.CompletedProcess[str]:
    for at, device in enumerate(devices):
        place = tmp_path / "sys/bus/pci/devices" / f"0000:00:{at:02x}.0"
        place.mkdir(parents=True, exist_ok=True)
        (place / "device").write_text(f"{device}\n")
    # Each wait for a late device brings one.
    late = tmp_path / "sys/bus/pci/devices" / "late$n"
    program(
        tmp_path / "bin" / "sleep",
        '#!/bin/sh\n[ "$1" = 5 ] || exec /bin/sleep "$1"\necho waited >>"$HOME/waits"\n'
        f'n=$(wc -l <"$HOME/waits")\n[ -z "$LATE" ] || {{ mkdir -p {late}; echo 0xefa2 >{late}/device; }}\n',
    )
    text = render_run(RunInputs(backend=backend, user_run="echo started"))
    more = {**TWO, "ORCH_SYS_DIR": str(tmp_path / "sys"), "LATE": "", **env}
    return run_script(text, tmp_path / "home", more, path=str(tmp_path / "bin"))


P4D = ["0x1237", "0x20b0", *["0xec20"] * 2, *["0xefa1"] * 4]


@pytest.mark.parametrize("backend", ["cuda", "neuron"])
def test_all_interfaces_are_there(tmp_path: Path, backend: Backend) -> None:
    done = run(tmp_path, backend, P4D, ORCH_EFA_COUNT="4")
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "home" / "waits").exists()
    hint, *rest = done.stdout.splitlines() if backend == "cuda" else ["", *done.stdout.splitlines()]
    assert rest == ["started"]
    assert backend == "neuron" or ("4 EFA interfaces" in hint and "NET/OFI Selected provider is efa" in hint)


def test_only_the_head_prints_the_form_of_the_proof(tmp_path: Path) -> None:
    assert run(tmp_path, "cuda", P4D, ORCH_EFA_COUNT="4", ORCH_RANK="1").stdout == "started\n"


@pytest.mark.parametrize("backend", ["cuda", "neuron"])
def test_a_missing_interface_is_an_error_after_three_checks(tmp_path: Path, backend: Backend) -> None:
    done = run(tmp_path, backend, P4D[:-1], ORCH_EFA_COUNT="4")
    assert (done.returncode, done.stdout) == (1, "")
    assert "this host shows 3 EFA interfaces of 4" in done.stderr
    assert "ORCH_EFA_CHECK=0" in done.stderr
    assert (tmp_path / "home" / "waits").read_text() == "waited\n" * 2


def test_an_interface_may_come_late(tmp_path: Path) -> None:
    done = run(tmp_path, "cuda", P4D[:-2], ORCH_EFA_COUNT="4", LATE="yes")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "started"), done.stderr
    assert (tmp_path / "home" / "waits").read_text() == "waited\n" * 2


@pytest.mark.parametrize(
    "more",
    [
        {"ORCH_EFA_COUNT": "4", "ORCH_EFA_CHECK": "0"},
        {"ORCH_EFA_COUNT": "4", "ORCH_NUM_HOSTS": "1"},
        {"ORCH_EFA_COUNT": "0"},
        {"ORCH_EFA_COUNT": ""},
        {},
    ],
)
def test_nothing_is_counted_where_nothing_is_expected(tmp_path: Path, more: dict[str, str]) -> None:
    done = run(tmp_path, "cuda", [], **more)
    assert (done.returncode, done.stdout, done.stderr) == (0, "started\n", "")
