"""Facts about hosts on this computer, whichever provider simulates them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from orchestrator.slices import Candidate, HostFacts


def loopback_facts(candidate: Candidate, passed_on: Iterable[str] = ()) -> HostFacts:
    """Return that they share one network interface, interpreter and CPU, and have no accelerator.

    passed_on: names of variables that programs on the hosts need as we have them.
    """
    interface = "lo" if sys.platform == "linux" else "lo0"
    env = (
        ("GLOO_SOCKET_IFNAME", interface),
        ("ORCH_PYTHON", sys.executable),
        ("ORCH_LOCAL_RANKS_PER_MACHINE", str(candidate.hosts)),
        *((name, os.environ[name]) for name in passed_on if os.environ.get(name)),
    )
    return HostFacts(env=env, python=sys.executable, backend="cpu", has_accelerator=False, shares_files=True)
