"""Every action that orch can take, each as a frozen value that describes it completely.

The preview prints these values and the engine executes these values: there is no other list.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from orchestrator.hosts import EndedBy
from orchestrator.next_step import NO_STEP, NextStep
from orchestrator.plan.causes import EndCause
from orchestrator.plan.environment import HostEnvironment
from orchestrator.slices import Request, SliceSpec
from orchestrator.values import Text


@dataclass(frozen=True, slots=True)
class CreateSlice:
    """Record the intent, then send the create request.

    Sent again after a crash, it finishes the same slice.
    """

    spec: SliceSpec
    generation: int
    request: Request


@dataclass(frozen=True, slots=True, kw_only=True)
class EndSlice:
    """End the slice permanently. `cause` counts against a budget when the slice is replaced."""

    name: str
    cause: EndCause
    why: str
    request: Request


@dataclass(frozen=True, slots=True)
class StopSlice:
    """Stop the machines of a slice; they can be started again."""

    name: str
    request: Request


@dataclass(frozen=True, slots=True)
class StartSlice:
    """Start the machines of a stopped slice."""

    name: str
    request: Request


@dataclass(frozen=True, slots=True)
class ForgetSlice:
    """Close the record of a slice that the provider reports as absent. The record always closes last.

    Attributes:
        jobs_end: Why all jobs of the cluster end before that; "" where they continue on a new slice.
    """

    name: str
    cause: EndCause
    why: str
    jobs_end: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncTree:
    """Copy a local folder or file to hosts.

    Attributes:
        label: Its name for the user: "workdir", "/data", "trainer".
        digest: Fingerprint of the content; a host that holds it is skipped.
    """

    label: str
    source: str
    destination: str
    digest: str
    files: int
    total_bytes: int
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchMount:
    """Run a rendered script that copies a bucket path to the hosts' own disk (file mount in COPY mode)."""

    label: str
    source: str
    destination: str
    digest: str
    script: Text
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSetup:
    """Run the setup script to its end on hosts; every host must pass.

    Attributes:
        job: Name of its folder on the hosts.
    """

    job: str
    digest: str
    script: Text
    environment: HostEnvironment
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartJob:
    """Start the program, detached, on hosts. Started twice under one name, it runs once."""

    job: str
    attempt: int
    script: Text
    environment: HostEnvironment
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopJob:
    """Stop a job on hosts: TERM, wait `grace` seconds, KILL, verify.

    Attributes:
        ended_by: What the hosts keep about the end of the job before the signal is sent.
    """

    job: str
    ended_by: EndedBy
    why: str
    grace: float
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ArmTimer:
    """Install and start the dead-man timer on hosts, so that the limits hold without orch."""

    digest: str
    script: Text
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CollectStacks:
    """Collect the stack traces of every process of the program before it is stopped."""

    job: str
    why: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndAttempt:
    """Record why this attempt is being ended.

    It is recorded before the program is stopped, so that the verdict survives a crash.

    Attributes:
        step: Last training step that is known.
        rank: Rank of the host that is to blame.
    """

    attempt: int
    cause: EndCause
    why: str
    step: int | None = None
    rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NextAttempt:
    """Open the next attempt of the run; `cause` counts against a budget.

    Attributes:
        generation: The slice whose loss is charged, when it was a loss.
    """

    attempt: int
    cause: EndCause
    why: str
    generation: int | None = None
    exit_code: int | None = None
    rank: int | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclude:
    """Record the result of the job before anything is taken down. The texts are those of an OrchError."""

    status: int
    code: str
    what: str
    why: str = ""
    next_step: NextStep = NO_STEP


HostAction: TypeAlias = SyncTree | FetchMount | RunSetup | StartJob | StopJob | ArmTimer | CollectStacks

Action: TypeAlias = (
    CreateSlice
    | EndSlice
    | StopSlice
    | StartSlice
    | ForgetSlice
    | SyncTree
    | FetchMount
    | RunSetup
    | StartJob
    | StopJob
    | ArmTimer
    | CollectStacks
    | EndAttempt
    | NextAttempt
    | Conclude
)
