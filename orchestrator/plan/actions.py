"""Everything that can be done, each as a frozen value that describes the whole deed.

The preview prints these values and the engine executes these values: there is no other list.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from orchestrator.plan.causes import EndCause
from orchestrator.plan.environment import HostEnvironment
from orchestrator.slices import Request, SliceSpec
from orchestrator.values import Text


@dataclass(frozen=True, slots=True)
class CreateSlice:
    """Write the intent, then send the create. Sent again after a crash, it finishes the same slice."""

    spec: SliceSpec
    generation: int
    request: Request


@dataclass(frozen=True, slots=True)
class EndSlice:
    """End the slice for good. `cause` counts against a budget when the slice is replaced."""

    name: str
    cause: EndCause
    why: str
    request: Request


@dataclass(frozen=True, slots=True)
class StopSlice:
    name: str
    request: Request


@dataclass(frozen=True, slots=True)
class StartSlice:
    name: str
    request: Request


@dataclass(frozen=True, slots=True)
class ForgetSlice:
    """The provider says that the slice is gone: close its record. The record always goes last."""

    name: str
    cause: EndCause
    why: str


@dataclass(frozen=True, slots=True)
class SyncTree:
    """Bring a folder or file to hosts. label: what it is to the user ("workdir", "/data", "trainer")."""

    label: str
    source: str
    destination: str
    digest: str
    files: int
    total_bytes: int
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FetchMount:
    """Have hosts copy a bucket path to their own disk (file mount in COPY mode), by a rendered script."""

    label: str
    source: str
    destination: str
    digest: str
    script: Text
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RunSetup:
    """Run the setup script to its end on hosts. Every host must pass. job: its folder name on the hosts."""

    job: str
    digest: str
    script: Text
    environment: HostEnvironment
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StartJob:
    """Start the program, detached, on hosts. Started twice under one name, it runs once."""

    job: str
    attempt: int
    script: Text
    environment: HostEnvironment
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StopJob:
    """TERM, wait `grace` seconds, KILL, verify, on hosts."""

    job: str
    why: str
    grace: float
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ArmTimer:
    """Install and start the dead-man timer on hosts, so that the limits hold without us."""

    digest: str
    script: Text
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CollectStacks:
    """Have every process of the program say where it stands, before it is ended."""

    job: str
    why: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EndAttempt:
    """Record why this attempt is being ended, before its program is stopped: the verdict must outlive a crash."""

    attempt: int
    cause: EndCause
    why: str
    step: int | None = None
    rank: int | None = None  # of the host that is to blame


@dataclass(frozen=True, slots=True)
class NextAttempt:
    """Open the next attempt of the run; `cause` counts against a budget."""

    attempt: int
    cause: EndCause
    why: str
    generation: int | None = None  # the slice whose loss is charged, when it was a loss
    exit_code: int | None = None
    rank: int | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Conclude:
    """Record how the whole thing ended, before anything is taken down. Words as in an OrchError."""

    status: int
    code: str
    what: str
    why: str = ""
    next_step: str = ""


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
