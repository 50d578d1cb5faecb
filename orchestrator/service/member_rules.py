"""What the task of a member may use of the service's computer: nothing that whoever runs it has not allowed.

A member is another person than the user that the server runs as. A task on the server's own computer would run with
that user's rights, and a variable of the server's environment may be the key of a cloud.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orchestrator.engine.preparation.local_uses import THIS_COMPUTER, LocalUse, list_local_uses, show_line
from orchestrator.errors import AccessError, UserError
from orchestrator.task.config import Config
from orchestrator.task.errors import InvalidValueError
from orchestrator.task.model import Task
from orchestrator.task.parse import parse_task
from orchestrator.task.sent_tree import parse_sent_tree

MOST_CHOICES = 100
MOST_DISK_GB = 4096
LARGE_DISKS = "large-disks"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRules:
    """What whoever runs the service has allowed (`orch serve --allow`).

    Attributes:
        allowed: Names of variables, `infra:local`, hosts and addresses, as the plan of a refused task names them.
        ssh: Whether members log in to the hosts of their clusters. A task does there what they could do, as the same
            user, so this gives a member nothing that a launch does not.
    """

    allowed: frozenset[str] = frozenset()
    ssh: bool = True

    def select_variables(self, environ: Mapping[str, str]) -> AllowedVariables:
        """Return the variables that tasks of members may take."""
        return AllowedVariables(environ=environ, allowed=self.allowed)

    def check_entry(self, cluster: str) -> None:
        """Refuse a member on the hosts of a cluster that are processes of this computer.

        Raises:
            AccessError: Members may not use this computer.
        """
        if THIS_COMPUTER not in self.allowed:
            raise AccessError(
                f"the hosts of '{cluster}' are processes of the service's computer",
                "who logs in there is the user that the service runs as",
                f"ask who runs it for: orch serve --allow {THIS_COMPUTER}",
            )

    def check_task(self, task: Task, config: Config) -> None:
        """Refuse a task that would use more of this computer than the service's configuration itself does.

        Raises:
            AccessError: It would.
        """
        usual = parse_task("run: 'true'", file="task", env={}, config=config).only
        configured = {one.name for one in list_local_uses(usual)} - {THIS_COMPUTER}
        granted = self.allowed | configured
        used = [one for one in dict.fromkeys(list_local_uses(task)) if parse_sent_tree(one.name) is None]
        more = [one for one in used if one.name not in granted]
        if more:
            raise _refuse_uses(more)
        if len(task.choices) > MOST_CHOICES:
            what = f"the task has {len(task.choices):,} choices of machines"
            raise UserError(what, f"at most {MOST_CHOICES} are planned", "leave some out")
        large = [one.disk_size for one in task.choices if (one.disk_size or 0) > MOST_DISK_GB]
        if large and LARGE_DISKS not in self.allowed:
            why = f"members have at most {MOST_DISK_GB:,} GB on a host: prices and budgets leave disks out"
            raise AccessError(
                f"`disk_size: {large[0]}` is too large", why, f"a bucket, or ask for: orch serve --allow {LARGE_DISKS}"
            )
        if task.config != usual.config:
            raise AccessError(
                "`config` of the task is not that of the service",
                "accounts, networks and identities of machines are chosen by whoever runs it",
                "leave `config` out",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedVariables(Mapping[str, str]):
    """The variables of the server that a task may take. To ask for another one is an error of the task."""

    environ: Mapping[str, str]
    allowed: frozenset[str]

    def __getitem__(self, name: str) -> str:
        """Return the value of a variable.

        Raises:
            InvalidValueError: The service does not allow it.
            KeyError: The server does not have it.
        """
        if name not in self.allowed:
            step = f"write its value, or ask who runs the service for: orch serve --allow {name}"
            raise InvalidValueError(f"`{name}` has no value", "a task takes no variable of the server", step)
        return self.environ[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.allowed & self.environ.keys())

    def __len__(self) -> int:
        return len(self.allowed & self.environ.keys())


def _refuse_uses(uses: list[LocalUse]) -> AccessError:
    names = ", ".join(f"`{show_line(one.name)[:100]}`" for one in uses[:5])
    more = f" and {len(uses) - 5} more" if len(uses) > 5 else ""
    return AccessError(
        f"this task would use what is on the computer of the service: {names}{more}",
        "it is not the member's own: a task there runs as whoever runs the service",
        "leave it out, or ask for: orch serve " + " ".join(f"--allow {show_line(one.name)[:100]}" for one in uses[:5]),
    )
