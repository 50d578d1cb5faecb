"""`orch exec CLUSTER --devices`: the trainer's own look at every host, as one table or as JSON."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from orchestrator.cli.act import Manner, Perform, carry_out
from orchestrator.cli.human import columns
from orchestrator.cli.terminal import Style, look_at, put
from orchestrator.errors import SetupError, UserError

if TYPE_CHECKING:
    from orchestrator.engine.devices import Found
    from orchestrator.hosts import HostAddress
    from orchestrator.values import Text


def show_devices(cluster: str, ranks: tuple[int, ...] | None, manner: Manner, env: tuple[tuple[str, Text], ...]) -> int:
    """The exit status: of the command on the hosts. Raises SetupError when a host's answer cannot be read."""
    from orchestrator.cli.narrator import TerminalNarrator
    from orchestrator.cli.outcomes import tell
    from orchestrator.engine.devices import COMMAND, read, table
    from orchestrator.engine.drive import drive
    from orchestrator.engine.prepare import exec_

    ready = exec_(cluster, COMMAND, hosts=ranks, workdir=None, env=env, devices=True)
    if not isinstance(manner, Perform):
        return carry_out(ready, manner)
    if not manner.follow:
        raise UserError("--devices waits for its answer", next_step="leave out --detach")
    ready.check()
    outputs: dict[int, bytes] = {}

    class Collecting(TerminalNarrator):
        """Keeps what the hosts say instead of printing it. Calls of one host come in order."""

        def output(self, host: HostAddress, block: bytes) -> None:
            outputs[host.rank] = outputs.get(host.rank, b"") + block

    with Collecting(sys.stderr) as narrator:
        ending = drive(ready, narrator, follow=True)
    if ending.status:
        tell(ending)
        return ending.status
    answers = {rank: read(output) for rank, output in sorted(outputs.items())}
    strange = [rank for rank, devices in answers.items() if devices is None]
    if strange:
        last = outputs[strange[0]].decode("utf-8", "replace").strip().splitlines()[-1:]
        raise SetupError(f"what host {strange[0]} answered is no list of devices", *last)
    known = {rank: devices for rank, devices in answers.items() if devices is not None}
    if manner.as_json:
        hosts = [{"rank": rank, "devices": list(devices)} for rank, devices in known.items()]
        put(json.dumps({"version": 1, "kind": "devices", "cluster": cluster, "hosts": hosts}, indent=2))
    else:
        put(*_lines(table(known)))
    return 0


def _lines(rows: tuple[Found, ...]) -> list[str]:
    from orchestrator.plan.ranks import rank_ranges

    terminal = look_at(sys.stdout)
    lines = [("HOSTS", "DEVICES", "KIND", "NAME", "MEMORY", "FREE", "TOPOLOGY")]
    lines += [
        (rank_ranges(row.ranks), str(row.count), row.kind, row.name, _size(row.memory), _size(row.free), row.topology)
        for row in rows
    ]
    head, *rest = columns(lines, terminal.width)
    return [terminal.paint(head, Style.BOLD), *rest]


def _size(mebibytes: int | None) -> str:
    return "?" if mebibytes is None else f"{mebibytes / 1024:.1f} GiB"
