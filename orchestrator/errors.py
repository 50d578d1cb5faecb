"""Every error a person can meet: what failed, why, and what to type next, with a stable exit status.

Each border (a cloud, SSH, the store, a task file) translates what its library raises into one of these,
once. The command line prints them in at most five lines and never shows a trace by default.
"""

from __future__ import annotations

from orchestrator.exits import Exit


class OrchError(Exception):
    """A failure that is explained to the user.

    what: the thing that failed, one line. why: the cause, one line, may be empty.
    next_step: what to do now, ideally a command to type. code: stable short name for documentation.
    """

    code = "failure"
    exit_status: int = Exit.FAILURE

    def __init__(self, what: str, why: str = "", next_step: str = "") -> None:
        super().__init__(what if not why else f"{what}: {why}")
        self.what = what
        self.why = why
        self.next_step = next_step

    def lines(self) -> list[str]:
        """The message as it is printed: one to three parts, at most five lines in all."""
        parts = [f"error[{self.code}]: {self.what}"]
        if self.why:
            parts += [f"  why:  {line}" if i == 0 else f"        {line}" for i, line in _first(self.why, 2)]
        if self.next_step:
            parts += [f"  next: {line}" if i == 0 else f"        {line}" for i, line in _first(self.next_step, 2)]
        return parts[:5]


def _first(text: str, count: int) -> list[tuple[int, str]]:
    return list(enumerate(text.strip().splitlines()[:count]))


class UserError(OrchError):
    """The command line, the task file or the configuration asks for something that cannot be."""

    code = "usage"
    exit_status = Exit.USAGE


class NotFoundError(OrchError):
    code = "not-found"
    exit_status = Exit.NOT_FOUND


class AccessError(OrchError):
    """Credentials are missing, expired or not allowed to do this."""

    code = "permission"
    exit_status = Exit.PERMISSION


class CapacityError(OrchError):
    """The provider has no machine of this kind to give now; another zone or time may have one."""

    code = "capacity"
    exit_status = Exit.CAPACITY


class QuotaError(CapacityError):
    """The account may not have so many; trying again does not help, asking the provider does."""

    code = "quota"


class ConflictError(OrchError):
    """Somebody else is at work on the same thing."""

    code = "conflict"
    exit_status = Exit.CONFLICT


class CloudError(OrchError):
    """The provider failed in a way that is neither capacity nor permission."""

    code = "cloud"


class SetupError(OrchError):
    """A copy or a setup script failed on at least one host; the program was not started."""

    code = "setup-failed"
    exit_status = Exit.SETUP_FAILED


class HostError(OrchError):
    """A host cannot be reached, or was lost midway."""

    code = "host-lost"
    exit_status = Exit.HOST_LOST


class IdentityMismatch(HostError):
    """A host presented another key than the one pinned for it: it may be another machine."""

    code = "identity-mismatch"
    exit_status = Exit.IDENTITY


class StorageError(OrchError):
    code = "storage"
    exit_status = Exit.STORAGE


class DeadlineError(OrchError):
    """Something took longer than its stated deadline."""

    code = "timeout"
    exit_status = Exit.TIMEOUT


class ProgramFailed(OrchError):
    """The user's program ended with a failure; its own status becomes ours."""

    code = "program-failed"

    def __init__(self, what: str, status: int, why: str = "", next_step: str = "") -> None:
        super().__init__(what, why, next_step)
        self.exit_status = status
