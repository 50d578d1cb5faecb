"""Facts about hosts on this computer, whichever provider simulates them."""

from __future__ import annotations

import sys

from orchestrator.slices import Candidate, HostFacts


def loopback_facts(candidate: Candidate) -> HostFacts:
    """Return that they share one network interface, interpreter and CPU, and have no accelerator."""
    interface = "lo" if sys.platform == "linux" else "lo0"
    env = (
        ("GLOO_SOCKET_IFNAME", interface),
        ("ORCH_PYTHON", sys.executable),
        ("ORCH_LOCAL_RANKS_PER_MACHINE", str(candidate.hosts)),
    )
    return HostFacts(env=env, python=sys.executable, backend="cpu", has_accelerator=False, shares_files=True)
