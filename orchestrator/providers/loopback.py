"""What is so of hosts that stand on this computer, whichever provider says that it made them."""

from __future__ import annotations

import sys

from orchestrator.slices import Candidate, HostFacts


def loopback_facts(candidate: Candidate) -> HostFacts:
    """They share one network interface, one interpreter and the cores of one machine, and have no accelerator."""
    interface = "lo" if sys.platform == "linux" else "lo0"
    env = (
        ("GLOO_SOCKET_IFNAME", interface),
        ("ORCH_PYTHON", sys.executable),
        ("ORCH_LOCAL_RANKS_PER_MACHINE", str(candidate.hosts)),
    )
    return HostFacts(env=env, python=sys.executable, backend="cpu")
