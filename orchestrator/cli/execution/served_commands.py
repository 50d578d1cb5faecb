"""What each command does when a service is named (ORCH_SERVER). Closed: a command that is not here is refused.

No command uses the store of this computer then: a person who named a service would take it for the team's.
"""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.errors import UserError
from orchestrator.service_address import find_server

SERVED = frozenset(  # through the service
    {
        "launch", "train", "resume", "plan", "cancel", "stop", "start", "down",
        "status", "queue", "runs", "cost", "events", "logs", "budget", "token",
        "pull", "ssh", "cp", "exec", "top", "forward", "ssh-config", "notebook", "profile",
    }
)  # fmt: skip
LOCAL = frozenset(  # need no store
    {
        "import", "init", "check", "rehearse", "simulate", "accelerators", "catalog", "offers", "acceptance", "storage",
        "config", "login", "schema", "completion",
    }
)  # fmt: skip
ON_SERVICE = "run it on the computer of the service, where ORCH_SERVER is not set"
# Not through a service: why, and what to do instead. docs/team.md has the same table.
REFUSED: dict[str, tuple[str, str]] = {
    "watch": ("the engine of the service drives every job", "follow it: orch logs -f CLUSTER"),
    "blocks": ("it buys with the credentials of the cloud's account, which the service's computer has", ON_SERVICE),
    "reap": ("it ends machines by the credentials of the account, whoever made them", ON_SERVICE),
    "recover": ("it is for a lost store, by the credentials of the account", ON_SERVICE),
    "store": ("it backs up and moves the database itself", ON_SERVICE),
    "notify": ("channels and their secrets are in files of the service's computer", ON_SERVICE),
    "serve": ("it is the service", ON_SERVICE),
    "local": (
        "its hosts are processes of one computer, and this one's are in its own store",
        "ORCH_SERVER= orch local preempt CLUSTER RANK",
    ),
}
_UNKNOWN = ("it uses the store of this computer", ON_SERVICE)


def refuse_without_store(command: str, environ: Mapping[str, str]) -> None:
    """Raise UserError for a command that would use the store of this computer, although a service is named."""
    url = find_server(environ)
    if not url or command in SERVED or command in LOCAL:
        return
    why, step = REFUSED.get(command, _UNKNOWN)
    raise UserError(
        f"`orch {command}` does not work through a service",
        f"{why} (ORCH_SERVER names {url})",
        f"{step}\nor, for the store of this computer: unset ORCH_SERVER",
    )


def refuse_option(command: str, option: str, why: str, environ: Mapping[str, str], step: str = "") -> None:
    """Raise UserError for an option that would use the store of this computer, although a service is named."""
    if url := find_server(environ):
        step = step or f"leave {option} out, or {url}"
        raise UserError(f"`orch {command} {option}` does not work through a service", why, step)
