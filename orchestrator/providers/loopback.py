"""Facts about hosts on this computer, whichever provider simulates them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from orchestrator.render.templates import render_template
from orchestrator.slices import Candidate, HostFacts


def loopback_facts(
    candidate: Candidate, passed_on: Iterable[str] = (), *, end_verb: str = "", stop_verb: str = ""
) -> HostFacts:
    """Return that they share one network interface, interpreter and CPU, and have no accelerator.

    Args:
        candidate: The machines.
        passed_on: Names of variables that programs on the hosts need as we have them.
        end_verb: What hosts of a simulated cloud request at a limit: off, stop or delete; "" for nothing.
        stop_verb: The same for idle machines that are to be stopped; "" where they can only be ended.
    """
    interface = "lo" if sys.platform == "linux" else "lo0"
    env = (
        ("GLOO_SOCKET_IFNAME", interface),
        ("ORCH_PYTHON", sys.executable),
        ("ORCH_LOCAL_RANKS_PER_MACHINE", str(candidate.hosts)),
        *((name, os.environ[name]) for name in passed_on if os.environ.get(name)),
    )
    return HostFacts(
        env=env,
        python=sys.executable,
        end_command=render_template("limits/simulated.sh.j2", verb=end_verb) if end_verb else "",
        stop_command=render_template("limits/simulated.sh.j2", verb=stop_verb) if stop_verb else "",
        backend="cpu",
        has_accelerator=False,
        shares_files=True,
    )
