"""Facts about hosts on this computer, whichever provider simulates them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

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
        end_command=_render_request(end_verb),
        stop_command=_render_request(stop_verb),
        backend="cpu",
        has_accelerator=False,
        shares_files=True,
    )


def _render_request(verb: str) -> str:
    """Return the command by which a simulated host requests something of its cloud; "" for nothing."""
    if not verb:
        return ""
    from orchestrator.render.templates import render_template  # only simulated clouds need Jinja here

    return render_template("limits/simulated.sh.j2", verb=verb)
