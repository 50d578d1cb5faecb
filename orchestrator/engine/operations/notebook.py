"""A notebook server on a host of a cluster: found where one runs, else started as a command that outlives us.

Its token is made here, reaches the host as a secret of the command, and is read back from the server's own runtime
file, which only the host's user can read. A server writes no token to its log that it was given (jupyter_server 2.21.1,
auth/identity.py and serverapp.py, read November 2026).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.engine.narrator import Narrator
from orchestrator.engine.state.names import host_job_name
from orchestrator.engine.state.pins import open_pins
from orchestrator.errors import DeadlineError, HostError, SetupError
from orchestrator.hosts import HostAddress, HostJob, JobPhase
from orchestrator.remote.fleet import Fleet
from orchestrator.remote.jobs import read_job_status
from orchestrator.remote.scripts import shell_command

FIRST_PORT = 8888  # on the host; the server takes the next free one
_MISSING = 127
_SECONDS = 90.0  # until a server that was started answers; a first start compiles its modules
_PAUSE = 0.5
_FOUND = re.compile(rb"^orch-notebook (\S{1,100}) (\{.*\})$", re.MULTILINE)
_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,128}")
COMMAND = f"""PATH="$PATH:$HOME/.local/bin:$HOME/.orch/venv/bin"
if jupyter lab --version >/dev/null 2>&1; then kind=lab
elif jupyter notebook --version >/dev/null 2>&1; then kind=notebook
else echo 'jupyter is not installed' >&2; exit {_MISSING}; fi
export JUPYTER_RUNTIME_DIR="$ORCH_HOST_DIR/notebook"
JUPYTER_TOKEN=$(od -An -tx1 -N32 /dev/urandom | tr -d ' \\n') && export JUPYTER_TOKEN || exit 1
(umask 077; mkdir -p "$JUPYTER_RUNTIME_DIR"; cd "$JUPYTER_RUNTIME_DIR" && rm -f ./*server-* && echo "$ORCH_JOB" >job)
[ "$(id -u)" != 0 ] || set -- --allow-root
exec jupyter $kind --no-browser --ip=127.0.0.1 --port={FIRST_PORT} --ServerApp.port_retries=50 "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notebook:
    """A server that runs.

    Attributes:
        port: On the host.
        job: Number of the command that runs it; None for one that no record has.
        process: Its process on the host; None where its file does not say it.
        started: Whether it was started now.
    """

    port: int
    token: str
    job: int | None
    process: int | None = None
    started: bool = False


def open_notebook(cluster: str, uid: str, host: HostAddress, start: Callable[[], int], narrator: Narrator) -> Notebook:
    """Return the notebook server on a host, started first where none runs.

    Args:
        cluster: The cluster's name.
        uid: The cluster's uid.
        host: That admits this computer.
        start: Starts COMMAND there, and returns the number of its job.
        narrator: Gets what is done.

    Raises:
        SetupError: Jupyter is not installed there, or its server ended.
        OrchError: The host cannot be reached.
    """
    with open_pins(narrator.note) as pins, Fleet((host,), pins=pins) as fleet:
        found = _find(fleet)
        if found is not None:
            return found
        job = start()
        return _await_server(fleet, cluster, host.rank, host_job_name(uid, f"{job}-a1"), job)


def _find(fleet: Fleet) -> Notebook | None:
    result = fleet.run(shell_command("notebook-look.sh"), timeout=fleet.deadline).hosts[0]
    if not result.outcome.ok:
        why = result.outcome.detail or result.outcome.verdict
        raise HostError(f"cannot connect to {fleet.hosts[0].label}", why, "orch status --refresh")
    matched = _FOUND.search(result.output)
    return parse_server(matched[1].decode("utf-8", "replace"), matched[2]) if matched is not None else None


def parse_server(job: str, text: bytes) -> Notebook | None:
    """Return the server of a runtime file, or None for a file that is none, such as one that is being written."""
    try:
        found: dict[str, Any] = json.loads(text)
        port, token = int(found["port"]), str(found["token"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    if not 0 < port < 65536 or not _TOKEN.fullmatch(token):
        return None
    number, process = re.fullmatch(r"(?:.*-)?(\d{1,9})-a\d+", job), found.get("pid")
    known = process if isinstance(process, int) and 1 < process < 2**31 else None
    return Notebook(port=port, token=token, job=int(number[1]) if number else None, process=known)


def _await_server(fleet: Fleet, cluster: str, rank: int, folder: str, job: int) -> Notebook:
    limit = time.monotonic() + _SECONDS
    while time.monotonic() < limit:
        found = _find(fleet)
        if found is not None:
            return replace(found, started=True)
        states = read_job_status(fleet, folder).jobs
        if states and states[0].phase in (JobPhase.FINISHED, JobPhase.LOST):
            raise _explain_end(cluster, rank, states[0], job)
        time.sleep(_PAUSE)
    what = f"the notebook on '{cluster}' did not answer within {_SECONDS:.0f} s"
    raise DeadlineError(what, "", f"orch logs {cluster} {job}")


def _explain_end(cluster: str, rank: int, state: HostJob, job: int) -> SetupError:
    if state.exit_code == _MISSING:
        install = f"orch exec {cluster} --host {rank} -- python3 -m pip install jupyterlab"
        return SetupError(f"jupyter is not installed on host {rank} of '{cluster}'", "", install)
    what = f"the notebook on '{cluster}' ended with exit {state.exit_code}"
    return SetupError(what, state.last_line, f"orch logs {cluster} {job}")
