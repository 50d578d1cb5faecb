"""`orch notify`: the channels over which people hear of their runs, and a test of them."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.tables import draw_table
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.cli.lazy_group import LazyCommand, LazyGroup, Section
from orchestrator.client.local import open_own_reader
from orchestrator.errors import OrchError, UserError
from orchestrator.exits import Exit
from orchestrator.formatting import format_age, format_utc
from orchestrator.notifications.settings import NAMES, list_channels, read_channel, read_kinds
from orchestrator.store.channel_records import ChannelRecord
from orchestrator.task.config import Config, load_config

_HERE = "orchestrator.cli.commands.settings.notify"
_NONE = "no channel is set up; for example: orch config set notify.slack file:PATH   (docs/notifications.md)"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tried:
    """What became of a test message: the receiver's answer, or the error."""

    channel: str
    answer: str = ""
    error: OrchError | None = None


@click.group(
    "notify",
    cls=LazyGroup,
    invoke_without_command=True,
    sections=[Section("Commands", (LazyCommand("test", f"{_HERE}:test_command", "Send a test message."),))],
    examples=[
        ("orch notify", "the channels, and when each delivered last"),
        ("orch notify test", "a test message over every channel"),
        ("orch config set notify.slack file:~/.config/orch/slack-url", "switch a channel on; the file has its address"),
    ],
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def notify(ctx: click.Context, output: str) -> None:
    """List the channels over which the engine reports how runs end, lost machines, limits and long waits.

    The engine of --detach and of `orch serve` sends. It reads the configuration when it starts.
    """
    if ctx.invoked_subcommand is not None:
        return
    config = load_config(os.environ)
    names, kinds = list_channels(config), sorted(read_kinds(config))
    with open_own_reader() as store:
        records = {record.name: record for record in store.notification_channels()}
        head = store.head().seq
    targets = {name: _describe_target(config, name) for name in names}
    if output == "json":
        channels = [_as_json(name, *targets[name], records.get(name), head) for name in names]
        document = {"version": 1, "kind": "notify", "kinds": [kind.value for kind in kinds], "channels": channels}
        write_stdout(json.dumps(document, indent=2))
        return
    if not names:
        write_stderr(_NONE)
        return
    now = time.time()
    rows: list[tuple[str, ...]] = [("CHANNEL", "TO", "LAST DELIVERED", "PROBLEM")]
    for name in names:
        target, problem = targets[name]
        record = records.get(name)
        delivered = format_age(record.delivered, now) if record is not None and record.delivered is not None else "-"
        rows.append((name, target or "-", delivered, problem or (record.problem if record is not None else "") or "-"))
    write_stdout(*draw_table(rows, sys.stdout))


@click.command(
    "test",
    cls=OrchCommand,
    examples=[
        ("orch notify test", "over every channel"),
        ("orch notify test email -o json", "over one, for a program"),
    ],
)
@click.argument("channel", required=False, type=click.Choice(NAMES))
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def test_command(ctx: click.Context, channel: str | None, output: str) -> None:
    """Send a test message now, once, from this computer, and say what the receiver answered."""
    config = load_config(os.environ)
    names = list_channels(config)
    if channel is not None and channel not in names:
        raise UserError(f"the channel '{channel}' is not set up", "", "orch config list   shows the keys of [notify]")
    if not names:
        raise UserError("no channel is set up", "", "docs/notifications.md   says how")
    with open_own_reader() as store:
        installation = store.installation() or "none"
    tried = [_try(config, name, installation) for name in names if channel in (None, name)]
    if output == "json":
        results = [_tried_as_json(one) for one in tried]
        write_stdout(json.dumps({"version": 1, "kind": "notify-test", "channels": results}, indent=2))
    else:
        for one in tried:
            if one.error is None:
                write_stdout(f"{one.channel}: delivered: {one.answer}")
            else:
                sys.stdout.flush()
                write_stderr(f"{one.channel}: not delivered", *one.error.lines())
    ctx.exit(Exit.FAILURE if any(one.error is not None for one in tried) else 0)


def _describe_target(config: Config, name: str) -> tuple[str, str]:
    """Return the receiver of a channel, and why it cannot be used from here."""
    try:
        return read_channel(config, name, os.environ).target, ""
    except OrchError as error:
        return "", str(error)


def _try(config: Config, name: str, installation: str) -> _Tried:
    from orchestrator.notifications.messages import make_test_message
    from orchestrator.notifications.send import send_message

    now = time.time()
    try:
        message = make_test_message(name, installation, now)
        answer = send_message(read_channel(config, name, os.environ), message, installation, now)
    except OrchError as error:
        return _Tried(channel=name, error=error)
    return _Tried(channel=name, answer=answer)


def _as_json(name: str, target: str, problem: str, record: ChannelRecord | None, head: int) -> dict[str, object]:
    delivered = record.delivered if record is not None else None
    return {
        "name": name,
        "to": target or None,
        "delivered_at": format_utc(delivered) if delivered is not None else None,
        "seq": record.seq if record is not None else None,
        "newest_seq": head,
        "problem": problem or (record.problem if record is not None else "") or None,
    }


def _tried_as_json(one: _Tried) -> dict[str, object]:
    error = one.error
    return {
        "name": one.channel,
        "delivered": error is None,
        "answer": one.answer or None,
        "what": error.what if error is not None else None,
        "why": (error.why or None) if error is not None else None,
        "next": (error.next_step or None) if error is not None else None,
    }
