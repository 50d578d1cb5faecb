"""EFA interfaces are counted before a program of several hosts starts; a folder of the test replaces /sys."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from render_support import HOST, program, run_script

from orchestrator.render.packages import Backend
from orchestrator.render.scripts import RunInputs, render_run

TWO = {**HOST, "ORCH_NUM_HOSTS": "2", "ORCH_COORDINATOR": "10.0.0.1:29507", "ORCH_RANKS_PER_HOST": "1"}


# One interface as `fi_info -p efa` prints it (EC2 User Guide, "Get started with EFA and NCCL", read November 2026).
FI_INFO = """provider: efa
    fabric: efa
    domain: rdmap{at}s27-rdm
    version: 122.0
    type: FI_EP_RDM
    protocol: FI_PROTO_EFA
"""
# The section of `nvidia-smi -q` (NVIDIA/NVSentinel issue 883, 2026-02-19; NVML API reference, "Fabric definitions").
FABRIC = "GPU 00000000:53:00.0\n    MIG Mode\n    Fabric\n        State : {}\n        Status : N/A\n"


def install_efa(tmp_path: Path, interfaces: int = 4, plugin: str = "ofi-nccl/lib/x86_64-linux-gnu") -> None:
    """Stand-ins for what AWS's installer brings. The plugin is a library that can really be loaded."""
    shown = "".join(FI_INFO.format(at=at) for at in range(interfaces))
    program(tmp_path / "amazon/efa/bin/fi_info", f"#!/bin/sh\ncat <<'END'\n{shown}END\n")
    if plugin:
        place = tmp_path / "amazon" / plugin / "libnccl-net.so"
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(_library("libm.so.6"), place)


def _library(name: str) -> str:
    """The file of a library of this system."""
    maps = subprocess.run(
        [sys.executable, "-c", f"import ctypes; ctypes.CDLL({name!r}); print(open('/proc/self/maps').read())"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    return next(line.split()[-1] for line in maps.splitlines() if "libm" in line)


def run(
    tmp_path: Path, backend: Backend, devices: list[str], *, fabric: bool | str = True, **env: str
) -> subprocess.CompletedProcess[str]:
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
    if fabric:
        install_efa(tmp_path)
    text = render_run(RunInputs(backend=backend, user_run="echo started"))
    more = {
        **TWO,
        "ORCH_SYS_DIR": str(tmp_path / "sys"),
        "ORCH_AMAZON_DIR": str(tmp_path / "amazon"),
        "LATE": "",
        **env,
    }
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
    done = run(tmp_path, "cuda", [], fabric=True, **more)
    assert (done.returncode, done.stdout, done.stderr) == (0, "started\n", "")


def test_an_image_without_the_efa_tools_is_reported_and_its_plugin_is_needed(tmp_path: Path) -> None:
    done = run(tmp_path, "cuda", P4D, fabric=False, ORCH_EFA_COUNT="4")
    assert done.returncode == 1
    assert "there is no fi_info on this host" in done.stderr
    assert "NCCL would use TCP: its plugin for EFA does not load" in done.stderr
    neuron = run(tmp_path, "neuron", P4D, fabric=False, ORCH_EFA_COUNT="4")
    assert (neuron.returncode, neuron.stdout) == (0, "started\n"), "Neuron's runtime has its own"


def test_interfaces_that_libfabric_does_not_find_end_the_run(tmp_path: Path) -> None:
    install_efa(tmp_path, interfaces=3)
    done = run(tmp_path, "cuda", P4D, fabric=False, ORCH_EFA_COUNT="4")
    assert done.returncode == 1 and "libfabric finds 3 EFA interfaces of 4" in done.stderr


def test_the_plugin_of_the_installer_is_put_on_the_path_and_named(tmp_path: Path) -> None:
    done = run(tmp_path, "cuda", P4D, ORCH_EFA_COUNT="4")
    assert done.returncode == 0, done.stderr
    assert "plugin " + str(tmp_path / "amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net.so") in done.stdout
    install_efa(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net.so").rename(
        tmp_path / "elsewhere/libnccl-net-mine.so"
    )
    own = {"LD_LIBRARY_PATH": str(tmp_path / "elsewhere"), "NCCL_NET_PLUGIN": "mine", "ORCH_EFA_COUNT": "4"}
    done = run(tmp_path, "cuda", P4D, fabric=False, **own)
    assert "plugin libnccl-net-mine.so" in done.stdout, done.stderr


def test_a_plugin_that_is_no_library_ends_the_run(tmp_path: Path) -> None:
    install_efa(tmp_path, plugin="")
    broken = tmp_path / "amazon/ofi-nccl/lib/libnccl-net.so"
    broken.parent.mkdir(parents=True)
    broken.write_text("no library")
    done = run(tmp_path, "cuda", P4D, fabric=False, ORCH_EFA_COUNT="4")
    assert done.returncode == 1 and "NCCL would use TCP" in done.stderr


@pytest.mark.parametrize(
    ("states", "status", "words"),
    [
        (["Completed"], 0, ""),
        (["Not Started", "In Progress", "Completed"], 0, ""),
        (["In Progress"], 1, "the fabric manager is not ready: In Progress"),
        (["N/A"], 0, ""),
    ],
)
def test_the_fabric_manager_is_waited_for(tmp_path: Path, states: list[str], status: int, words: str) -> None:
    for at, state in enumerate(states):
        (tmp_path / f"state{at}").write_text(FABRIC.format(state))
    last = len(states) - 1
    program(
        tmp_path / "bin/nvidia-smi",
        f'#!/bin/sh\nn=$(cat "{tmp_path}/asked" 2>/dev/null || echo 0)\necho $((n + 1)) >"{tmp_path}/asked"\n'
        f'[ "$n" -le {last} ] || n={last}\ncat "{tmp_path}/state$n"\n',
    )
    seconds = "0" if status else "60"
    done = run(tmp_path, "cuda", [], ORCH_FABRIC_SECONDS=seconds)
    assert done.returncode == status and words in done.stderr, done.stderr
    assert status or done.stdout == "started\n"
