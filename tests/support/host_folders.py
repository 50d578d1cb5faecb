"""Where a host of a test has the folder of its rank; templates/remote/host.sh computes the same on the host."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

from orchestrator.remote.scripts import shell_source


def host_folder(home: Path, name: str = "host", *, machine_id: str = "") -> Path:
    """Return the folder of one rank below `home`.

    Args:
        home: The host's home folder.
        name: The host's alias; scripts that are run without orch have the name "host".
        machine_id: That of the host; "" for this computer's.
    """
    known = machine_id or _machine_id()
    return home / ".orch" / "hosts" / f"{name}-{hashlib.sha256(f'orch {known}'.encode()).hexdigest()[:8]}"


def _machine_id() -> str:
    try:
        found = Path("/etc/machine-id").read_text(encoding="utf-8").partition("\n")[0]
    except OSError:
        found = ""
    return found or os.uname().nodename


def is_held(claim: Path) -> bool:
    """Return whether the process of the newest claim in a folder runs here."""
    text = f'{shell_source("claim.sh")}\norch_is_held "$1"'
    environment = {"PATH": "/usr/bin:/bin", "ORCH_HOST_DIR": str(claim.parent)}
    return subprocess.run(["/bin/sh", "-c", text, "sh", str(claim)], env=environment, check=False).returncode == 0


def write_claim(folder: Path, pid: int = 0) -> None:
    """Write the claim of a process that runs; 0: of this one (templates/remote/claim.sh)."""
    pid = pid or os.getpid()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    space = "".join(sign for sign in str(Path("/proc/self/ns/pid").readlink()) if sign.isdigit())
    started = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()[19]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "1").write_text(f"{_machine_id()[:8]} {boot}/{space} {pid} {started}\n", encoding="ascii")
