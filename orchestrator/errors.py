"""Every error that a user can see: what failed, why, and what to do next, with a stable exit status.

Each border (a cloud, SSH, the store, a task file) translates the exceptions of its library into one of these, once. The
command line prints them in at most five lines, without a traceback by default.
"""

from __future__ import annotations

from enum import StrEnum

from orchestrator.exits import Exit


class RefusalScope(StrEnum):
    """Where else a refused create would be refused for the same cause."""

    ZONE = "zone"  # nowhere else, as far as known
    MARKET = "market"  # in the whole region, in the same market
    REGION = "region"  # in the whole region, in every market
    ACCOUNT = "account"  # everywhere at this provider
    REQUEST = "request"  # wherever it is sent, and later too: the request itself is wrong


class OrchError(Exception):
    """A failure with an explanation for the user.

    Attributes:
        what: What failed, one line.
        why: The cause, one line; may be empty.
        next_step: What to do now, ideally a command.
        code: Stable short name for documentation.
        exit_status: Exit status of the command.
    """

    code = "failure"
    exit_status: int = Exit.FAILURE

    def __init__(self, what: str, why: str = "", next_step: str = "") -> None:
        super().__init__(what if not why else f"{what}: {why}")
        self.what = what
        self.why = why
        self.next_step = next_step
        if next_step:
            self.add_note(f"next: {next_step}")  # for the traceback of a program that does not catch it

    def lines(self) -> list[str]:
        """Return the printed message: one to three parts, at most five lines."""
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


class CannotStopError(UserError):
    """Machines cannot be stopped and kept. The driver knows why, and the engine what their end means."""

    def __init__(self, machines: str, why: str) -> None:
        super().__init__(f"{machines} cannot be stopped and kept", why)

    def name_next_step(self, cluster: str, *, with_bucket: bool) -> CannotStopError:
        """Return the error with the command that ends the machines, and what that loses."""
        lost = "the bucket keeps the checkpoints" if with_bucket else "files that are only on their disks are lost"
        self.next_step = f"orch down {cluster}   ends them; {lost}"
        return self


class NotFoundError(OrchError):
    """There is no such cluster, run, job, file or bucket."""

    code = "not-found"
    exit_status = Exit.NOT_FOUND


class AccessError(OrchError):
    """Credentials are missing, expired or not allowed to do this."""

    code = "permission"
    exit_status = Exit.PERMISSION


class CredentialsError(AccessError):
    """A cloud does not accept the credentials of this computer, such as expired ones: a new login helps.

    It proves nothing about machines. No run ends for it, and it counts as no loss.
    """


class CapacityError(OrchError):
    """The provider has no machine of this kind now; another zone or time may have one.

    Attributes:
        scope: Where else the same request would be refused.
    """

    code = "capacity"
    exit_status = Exit.CAPACITY
    scope: RefusalScope = RefusalScope.ZONE


class QuotaError(CapacityError):
    """The account's quota is too small; a retry does not help, a quota request does."""

    code = "quota"


class RefusedError(CapacityError):
    """The provider refused a create; the next candidate may be accepted, or orch does not know the cause."""

    code = "refused"


class BudgetError(OrchError):
    """A budget of the project or member does not allow machines; nothing was requested."""

    code = "budget"
    exit_status = Exit.BUDGET


class ConflictError(OrchError):
    """Another command or another owner holds the cluster."""

    code = "conflict"
    exit_status = Exit.CONFLICT


class RecordedRequestError(ConflictError):
    """Another command holds the cluster; the request is on record, and a process that drives it carries it out."""

    code = "recorded"


class TakenOverError(ConflictError):
    """Another installation has taken these machines over: this one must not touch them any more."""

    code = "taken-over"


class CloudError(OrchError):
    """The provider failed for a reason other than capacity or permission."""

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


class OpenFilesError(OrchError):
    """This process, or this computer, has no open file left: it proves nothing about hosts or machines."""

    code = "open-files"


class OtherAccountError(OrchError):
    """Machines belong to another account than the credentials in use, which therefore prove nothing about them."""

    code = "other-account"
    exit_status = Exit.OTHER_ACCOUNT


class UntrustedRecordError(OrchError):
    """A task record from a bucket is not known here, or uses this computer, and no one agreed to it."""

    code = "untrusted-record"
    exit_status = Exit.UNTRUSTED


class UntrustedCheckpointError(OrchError):
    """A checkpoint that hosts would load lacks the signature of its run, and no one agreed to it."""

    code = "untrusted-checkpoint"
    exit_status = Exit.UNTRUSTED


class StorageError(OrchError):
    """The bucket refused, is full, or holds no complete checkpoint."""

    code = "storage"
    exit_status = Exit.STORAGE


class DeadlineError(OrchError):
    """Something took longer than its stated deadline."""

    code = "timeout"
    exit_status = Exit.TIMEOUT
