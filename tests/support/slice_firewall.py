"""The firewall of simulated machines, enforced by the kernel: routing rules of this computer.

    with slice_firewall(network, lambda: read_sources(cloud)):
        ...

A security group, and a firewall rule of a VPC, drops a packet whose source no rule admits (Amazon VPC User Guide,
"Security group rules"; Google Cloud, "VPC firewall rules", both read November 2026). Here the answers of a host to a
member that is not admitted are dropped, so that its connection times out in the same way. Hosts listen on 127.1.0.1 and
above; the stores and the clouds' APIs, which listen on 127.0.0.1, stay open to everyone.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Callable, Iterator

from support.namespaces import TeamNetwork

FIRST, CLOSED = 100, 300  # preferences of the rules that open, and of those that close, for one member after the other
LOOK_SECONDS = 0.1


@contextlib.contextmanager
def slice_firewall(network: TeamNetwork, sources: Callable[[], set[str]]) -> Iterator[None]:
    """Let only those members reach the hosts whose address is among the sources, read all the time, as CIDR."""
    stop = threading.Event()
    opened: set[str] = set()
    addresses = [member.address for member in network.members.values()]

    def follow() -> None:
        while not stop.is_set():
            now = {address for address in addresses if f"{address}/32" in sources()}
            for address in now - opened:
                _rule("add", address, FIRST, "127.0.0.0/8", "lookup", "main")
            for address in opened - now:
                _rule("del", address, FIRST, "127.0.0.0/8", "lookup", "main")
            opened.clear()
            opened.update(now)
            stop.wait(LOOK_SECONDS)

    watcher = threading.Thread(target=follow, daemon=True)
    try:
        for address in addresses:
            _forget(address)  # of a run that was killed
            _rule("add", address, CLOSED - 1, "127.0.0.0/16", "lookup", "main")
            _rule("add", address, CLOSED, "127.0.0.0/8", "blackhole")
        watcher.start()
        yield
    finally:
        stop.set()
        watcher.join()
        for address in addresses:
            _forget(address)


def _rule(verb: str, address: str, preference: int, source: str, *action: str) -> None:
    words = ("ip", "rule", verb, "pref", str(preference), "from", source, "to", f"{address}/32", *action)
    subprocess.run(words, capture_output=True, check=True)


def _forget(address: str) -> None:
    """Delete all rules that lead to an address."""
    while (
        subprocess.run(["ip", "rule", "del", "to", f"{address}/32"], capture_output=True, check=False).returncode == 0
    ):
        pass
