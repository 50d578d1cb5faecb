"""`orch adopt` and `orch release`: manage TPU VMs that orch did not create, and stop managing them."""

from __future__ import annotations

import json
import shlex
import sys
from typing import TYPE_CHECKING

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.terminal import can_ask, write_stderr, write_stdout
from orchestrator.cli.execution.act import ActMode, PerformMode, carry_out
from orchestrator.cli.parameters.clusters import CLUSTER
from orchestrator.cli.parameters.shared import action_options
from orchestrator.errors import OrchError, UserError

if TYPE_CHECKING:
    from orchestrator.plan.observed import Intent


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch adopt my-tpu --zone us-west4-a", "a TPU VM that gcloud created: then exec, ssh, launch -c my-tpu, down"),
        ("orch adopt my-tpu --zone us-west4-a -c mine --dry-run", "the requests it would send; nothing is changed"),
        ("orch release my-tpu", "the opposite: it keeps running, and orch forgets it"),
    ],
)
@click.argument("name", metavar="MACHINE")
@click.option("--zone", required=True, metavar="ZONE", help="Its zone, such as us-west4-a.")
@click.option("--project", default="", metavar="PROJECT", help="Its project; default: the configured one.")
@click.option("-c", "--cluster", type=CLUSTER, default="", help="Name of the cluster; default: that of the machine.")
@click.option("--user", default="", metavar="USER", help="Log in as this user; default: orch, which is created there.")
@action_options(skips="")
@click.pass_context
def adopt(ctx: click.Context, /, name: str, zone: str, project: str, cluster: str, user: str, mode: ActMode) -> None:
    """Manage a TPU VM that exists already.

    Adds our labels and one line of ssh-keys to its metadata; nothing else changes. A node of a queued resource is
    adopted with it. Needs roles/tpu.admin; --dry-run reads the node, too. The same command again completes an
    interrupted adoption.
    """
    from orchestrator.engine.operations.adopt import prepare_adoption as prepare

    ready = prepare(name, zone, project=project, cluster=cluster, user=user)
    status = carry_out(ready, mode)
    if isinstance(mode, PerformMode) and status == 0:
        write_stderr(*_about_host_keys(ready.cluster))
    ctx.exit(status)


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch release mine", "removes our labels and key; its machines stay and are billed"),
        ("orch release mine --dry-run", "the request it would send"),
    ],
)
@click.argument("cluster", type=CLUSTER)
@click.option("--dry-run", is_flag=True, help="Print the request; do nothing.")
def release(cluster: str, dry_run: bool) -> None:
    """Stop managing an adopted TPU VM. Nothing is ended: it keeps running, and is billed, without orch."""
    from orchestrator.cli.drawing.narrator import TerminalNarrator
    from orchestrator.engine.operations.adopt import build_release_request
    from orchestrator.engine.operations.adopt import release_cluster as do
    from orchestrator.values import Text

    if dry_run:
        request = build_release_request(cluster)
        write_stdout(
            f"{request.method} {request.target}", json.dumps(request.body, default=Text.preview, sort_keys=True)
        )
        write_stdout(shlex.join(word.preview() for word in request.command))
        return
    with TerminalNarrator(sys.stderr) as narrator:
        name = do(cluster, narrator)
    write_stderr(f"'{name}' is released; it keeps running, and is billed, without orch")


def confirm_adopted_deletion(clusters: tuple[str, ...], mode: ActMode) -> None:
    """Ask before `orch down` deletes machines that orch did not create.

    Raises:
        UserError: There is no terminal to ask on.
        OrchError: The user declined.
    """
    from orchestrator.engine.operations.adopt import find_adopted_slice

    found = [(name, intent) for name in dict.fromkeys(clusters) if (intent := find_adopted_slice(name)) is not None]
    if not found or not isinstance(mode, PerformMode) or mode.consent:
        return
    text = [_deleted(name, intent) for name, intent in found]
    if not can_ask():
        raise UserError(
            text[0], "there is no terminal to ask on", f"add --yes   or keep it: orch release {found[0][0]}"
        )
    write_stderr(*text)
    if not click.confirm("delete?", default=False, err=True):
        raise OrchError("you declined", "nothing was ended", f"orch release {found[0][0]}   keeps it, without orch")


def _deleted(name: str, intent: Intent) -> str:
    from orchestrator.engine.operations.adopt import describe_adopted

    machine = intent.candidate
    what = f"{describe_adopted(machine)} in {machine.zone}"
    return f"'{name}' was adopted: this deletes {what} with its disks, which orch did not create"


def _about_host_keys(cluster: str) -> list[str]:
    from orchestrator.cli.parameters.clusters import open_store_reader
    from orchestrator.store.lookup import find_cluster

    with open_store_reader() as store:
        hosts = find_cluster(store, cluster).hosts
    if not hosts or all(host.host_key for host in hosts):
        return []
    return [
        "note: its hosts do not publish their SSH host keys (guest attributes are off): the key that each showed first",
        "  is pinned, and must not change",
    ]
