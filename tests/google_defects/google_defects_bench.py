"""orch as a process, led to a pretend Google whose truth a test can read and change."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from support.orch_process import Orch

from orch_fronts.google.cloud import SimulatedGoogle
from orchestrator.simulator.scenario import Deed

ZONE = "us-west4-a"
EMPTY_ZONE = "us-south1-a"  # has no v5e at all
SCENARIO = f"""
speed = 20

[durations]
create = 10
end = 5
stop = 5
start = 10
queue = 5
contact = 0

[[capacity]]
zone = "{EMPTY_ZONE}"
accelerator = "v5e"
amount = 0

[[capacity]]
zone = "{ZONE}"
accelerator = "*"
amount = 10000

[[reservation]]
name = "mine"
zone = "{ZONE}"
accelerator = "v5e"
amount = 16
unit = "chips"
"""


@dataclass(frozen=True)
class Bench:
    """folder: where orch runs, its state below it."""

    folder: Path
    google: SimulatedGoogle

    @property
    def orch(self) -> Orch:
        return Orch(self.folder, dict(self.google.env))

    def task(self, name: str, run: str, *, zone: str = ZONE, accelerators: str = "v5e-16", more: str = "") -> str:
        """A task file; more: lines below `resources`, indented by two."""
        infra = f"gcp/{zone.rpartition('-')[0]}/{zone}"
        lines = [f"name: {name}", "resources:", f"  accelerators: {accelerators}", f"  infra: {infra}"]
        lines += [f"  {line}" for line in more.splitlines()]
        lines += ["run: |", *(f"  {line}" for line in run.splitlines()), ""]
        (self.folder / f"{name}.yaml").write_text("\n".join(lines))
        return f"{name}.yaml"

    def launch(self, name: str, run: str, *words: str, zone: str = ZONE, more: str = "") -> str:
        self.orch.ok("launch", self.task(name, run, zone=zone, more=more), "--yes", *words)
        return name

    def left(self) -> list[str]:
        """All that Google would still charge or count against a quota, by the cloud's own books."""
        with self.google.cloud.open() as cloud:
            queued = [f"queued {shorten(each.name)}" for each in cloud.state.queued.values() if not each.gone]
            return sorted([f"node {shorten(look.name)}" for look in cloud.live()] + queued)

    def do(self, node: str, deed: Deed, rank: int | None = None) -> None:
        """Let it happen, and let what stands behind the node follow."""
        with self.google.cloud.open() as cloud:
            (name,) = (look.name for look in cloud.live() if shorten(look.name) == node)
            cloud.do(name, deed, rank=rank)
        self.google.server.api.advance()


def shorten(name: str) -> str:
    """Return the name of a slice without the digits of its cluster's uid: "spot-1"."""
    return re.sub(r"-[0-9a-f]{6}-(\d+)$", r"-\1", name)
