"""`orch exec CLUSTER --devices`: the accelerators that the trainer finds on every host, as a table or JSON."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from orchestrator.cli.drawing.tables import draw_table
from orchestrator.cli.drawing.terminal import write_stdout
from orchestrator.cli.execution.act import ActMode, PerformMode, carry_out_order
from orchestrator.errors import SetupError, UserError

if TYPE_CHECKING:
    from orchestrator.client.orders import OrderCalls, PlannedOrder
    from orchestrator.engine.operations.devices import DeviceGroup
    from orchestrator.hosts import HostAddress


def show_devices(orders: OrderCalls, planned: PlannedOrder, mode: ActMode) -> int:
    """Print the devices of each host, and return the exit status of the command on the hosts.

    Raises:
        SetupError: The answer of a host cannot be read.
    """
    from orchestrator.cli.drawing.narrator import TerminalNarrator
    from orchestrator.cli.drawing.outcomes import print_ending
    from orchestrator.engine.operations.devices import group_devices, parse_devices

    if not isinstance(mode, PerformMode):
        return carry_out_order(orders, planned, mode)
    if not mode.follow:
        raise UserError("--devices cannot run detached", next_step="leave out --detach")
    if (refusal := planned.refusal) is not None:
        raise refusal
    outputs: dict[int, bytes] = {}

    class Collecting(TerminalNarrator):
        """A narrator that keeps the output of the hosts; calls for one host come in order."""

        def output(self, host: HostAddress, block: bytes) -> None:
            outputs[host.rank] = outputs.get(host.rank, b"") + block

    with Collecting(sys.stderr) as narrator:
        ending = orders.carry_out(planned, narrator, follow=True)
    if ending.status:
        print_ending(ending)
        return ending.status
    answers = {rank: parse_devices(output) for rank, output in sorted(outputs.items())}
    strange = [rank for rank, devices in answers.items() if devices is None]
    if strange:
        last = outputs[strange[0]].decode("utf-8", "replace").strip().splitlines()[-1:]
        raise SetupError(f"the answer of host {strange[0]} is not a list of devices", *last)
    known = {rank: devices for rank, devices in answers.items() if devices is not None}
    if mode.as_json:
        hosts = [{"rank": rank, "devices": list(devices)} for rank, devices in known.items()]
        write_stdout(
            json.dumps({"version": 1, "kind": "devices", "cluster": planned.cluster, "hosts": hosts}, indent=2)
        )
    else:
        write_stdout(*_lines(group_devices(known)))
    return 0


def _lines(rows: tuple[DeviceGroup, ...]) -> list[str]:
    from orchestrator.plan.ranks import format_ranks

    lines = [("HOSTS", "DEVICES", "KIND", "NAME", "MEMORY", "FREE", "TOPOLOGY")]
    lines += [
        (format_ranks(row.ranks), str(row.count), row.kind, row.name, _size(row.memory), _size(row.free), row.topology)
        for row in rows
    ]
    return draw_table(lines, sys.stdout)


def _size(mebibytes: int | None) -> str:
    return "?" if mebibytes is None else f"{mebibytes / 1024:.1f} GiB"
