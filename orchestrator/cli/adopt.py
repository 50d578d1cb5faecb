"""`orch adopt` and `orch release`: TPU VMs that orch did not make, under management and out of it again."""

from __future__ import annotations

import json
import shlex
import sys
from typing import TYPE_CHECKING

import click

from orchestrator.cli.act import Manner, Perform, carry_out
from orchestrator.cli.clusters import CLUSTER
from orchestrator.cli.command import OrchCommand
from orchestrator.cli.options import acting
from orchestrator.cli.terminal import can_ask, put, say
from orchestrator.errors import OrchError, UserError

if TYPE_CHECKING:
    from orchestrator.plan.observed import Intent


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch adopt my-tpu --zone us-west4-a", "a TPU VM that gcloud made: then exec, ssh, launch -c my-tpu, down"),
        ("orch adopt my-tpu --zone us-west4-a -c mine --dry-run", "what would be sent; nothing is changed"),
        ("orch release my-tpu", "the way back: it stays as it is, and orch forgets it"),
    ],
)
@click.argument("name", metavar="TPU")
@click.option("--zone", required=True, metavar="ZONE", help="Where it is, such as us-west4-a.")
@click.option("--project", default="", metavar="PROJECT", help="Default: that of your gcloud configuration.")
@click.option("-c", "--cluster", type=CLUSTER, default="", help="What to call it here; default: its own name.")
@click.option("--user", default="", metavar="USER", help="Log in as this user; default: orch, which is made there.")
@acting()
@click.pass_context
def adopt(ctx: click.Context, /, name: str, zone: str, project: str, cluster: str, user: str, manner: Manner) -> None:
    """Take a TPU VM that exists already under management.

    Our labels and one line of ssh-keys in its metadata are added; all else stays as it is. A node of a queued resource
    is adopted with it. Needs roles/tpu.admin; a --dry-run looks at it too. Again, it completes what was cut off.
    """
    from orchestrator.engine.adopt import adopt as prepare

    ready = prepare(name, zone, project=project, cluster=cluster, user=user)
    status = carry_out(ready, manner)
    if isinstance(manner, Perform) and status == 0:
        say(*_about_host_keys(ready.cluster))
    ctx.exit(status)


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch release mine", "its labels and its key go, its machines stay and are billed"),
        ("orch release mine --dry-run", "what would be sent"),
    ],
)
@click.argument("cluster", type=CLUSTER)
@click.option("--dry-run", is_flag=True, help="Print what would be sent; do nothing.")
def release(cluster: str, dry_run: bool) -> None:
    """Give an adopted TPU VM back as it is. Nothing is ended: it runs on, and is billed, without orch."""
    from orchestrator.cli.narrator import TerminalNarrator
    from orchestrator.engine.adopt import release as do
    from orchestrator.engine.adopt import release_request
    from orchestrator.values import Text

    if dry_run:
        request = release_request(cluster)
        put(f"{request.method} {request.target}", json.dumps(request.body, default=Text.preview, sort_keys=True))
        put(shlex.join(word.preview() for word in request.command))
        return
    with TerminalNarrator(sys.stderr) as narrator:
        name = do(cluster, narrator)
    say(f"'{name}' is released; it runs on, and is billed, without orch")


def ask_before_deleting(clusters: tuple[str, ...], manner: Manner) -> None:
    """For `orch down`: of machines that orch did not make, the user has to say once more that they shall go.

    Raises UserError where nobody can be asked, OrchError when it was not agreed to.
    """
    from orchestrator.engine.adopt import adopted

    found = [(name, intent) for name in dict.fromkeys(clusters) if (intent := adopted(name)) is not None]
    if not found or not isinstance(manner, Perform) or manner.consent:
        return
    words = [_deleted(name, intent) for name, intent in found]
    if not can_ask():
        raise UserError(
            words[0], "there is no terminal to ask on", f"add --yes   or keep it: orch release {found[0][0]}"
        )
    say(*words)
    if not click.confirm("delete?", default=False, err=True):
        raise OrchError("not agreed to", "nothing was ended", f"orch release {found[0][0]}   keeps it, without orch")


def _deleted(name: str, intent: Intent) -> str:
    machine = intent.candidate
    what = f"TPU VM '{machine.adopted}'"
    if queued := machine.detail("queued_resource"):
        what += f" and the queued resource '{queued}'"
    return (
        f"'{name}' was adopted: this deletes {what} in {machine.zone}, which orch did not make, with all on its disks"
    )


def _about_host_keys(cluster: str) -> list[str]:
    from orchestrator.cli.clusters import find, reader

    with reader() as store:
        hosts = find(store, cluster).hosts
    if not hosts or all(host.host_key for host in hosts):
        return []
    return [
        "note: its hosts do not tell their SSH keys (guest attributes are off): the first key that each showed",
        "  is kept, and must stay the same from now on",
    ]
