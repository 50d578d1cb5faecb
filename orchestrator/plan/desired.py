"""What the user asked for, ready to be decided on: everything rendered, nothing looked up any more."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from orchestrator.slices import Candidate
from orchestrator.values import Text


class Strategy(StrEnum):
    """Where a lost slice's replacement is looked for first. The words of the public dialect (job_recovery)."""

    FAILOVER = "FAILOVER"  # where it was, then the same region, then the rest
    EAGER_NEXT_REGION = "EAGER_NEXT_REGION"  # anywhere else first: what was just taken there will be taken again


class After(StrEnum):
    """What becomes of the machines when the program has ended, well or badly."""

    KEEP = "keep"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Limits:
    """What ends the machines whatever the program does. None: no limit. dollars: for the whole cluster."""

    hours: float | None = None
    dollars: float | None = None


@dataclass(frozen=True, slots=True)
class TimerWanted:
    """The dead-man timer that every host gets. script: installs and starts it; safe to run again."""

    digest: str
    script: Text


@dataclass(frozen=True, slots=True)
class TreeWanted:
    """A local folder or file that has to be on every host. See actions.SyncTree."""

    label: str
    source: str
    destination: str
    digest: str
    files: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class MountWanted:
    """A bucket path that every host copies for itself. See actions.FetchMount."""

    label: str
    source: str
    destination: str
    digest: str
    script: Text


@dataclass(frozen=True, slots=True)
class SetupWanted:
    """digest: of all that decides whether setup must run again."""

    digest: str
    script: Text


@dataclass(frozen=True, slots=True)
class JobWanted:
    """The program. id: its number on this cluster, the same over every attempt."""

    id: int
    script: Text
    stop_grace: float = 10.0  # seconds between TERM and KILL
    failure_grace: float = 5.0  # seconds the others may go on after the first host failed
    limit_grace: float = 60.0  # seconds to save a checkpoint when a limit is reached

    def folder(self, attempt: int) -> str:
        """Name of the job's folder on the hosts."""
        return f"{self.id}-a{attempt}"


@dataclass(frozen=True, slots=True)
class Budgets:
    """Two budgets, never mixed, and the deadlines of the waits (seconds).

    preemptions: for all that is not the program's fault, see causes.LOSSES. restart_on, fail_on: exit statuses that
    count as a preemption beside 75, and those that are never worth a restart. capacity_wait: how long a lost slice's
    replacement is looked for; capacity_wait_first: the same for the first slice.
    """

    preemptions: int = 0
    failures: int = 0
    restart_on: tuple[int, ...] = ()
    fail_on: tuple[int, ...] = ()
    strategy: Strategy = Strategy.EAGER_NEXT_REGION
    capacity_wait: float = 0.0
    capacity_wait_first: float = 0.0
    backoff_base: float = 5.0  # pause before the second short attempt in a row; doubles with each further one
    backoff_cap: float = 300.0
    hang_deadline: float = 0.0  # a heartbeat older than this is a hang; 0 = not watched
    boot_deadline: float = 1800.0  # accepted until ready
    contact_deadline: float = 300.0  # ready until every host answers SSH
    end_deadline: float = 900.0  # end asked until the provider says gone
    lost_deadline: float = 30.0  # a host of a running program does not answer while others do, until it counts as lost
    silence_deadline: float = 90.0  # none of them answers: it may be our own network
    unclear_deadline: float = 300.0  # the provider cannot be asked, until we give up
    resend_after: float = 15.0  # an end that shows no effect is sent again
    save_before: float = 600.0  # before the provider takes the machines back, the program is told to save and stop


@dataclass(frozen=True, slots=True)
class Run:
    """Have the cluster, have it set up, have the program run to its end.

    uid: made once with the cluster's record, part of every token. run_id: the same over every attempt and resume.
    create False: the cluster must exist (exec). env: the user's envs and secrets and what the accelerator needs.
    """

    cluster: str
    uid: Text
    run_id: Text
    installation: Text
    candidates: tuple[Candidate, ...]
    trees: tuple[TreeWanted, ...] = ()
    mounts: tuple[MountWanted, ...] = ()
    setup: SetupWanted | None = None
    job: JobWanted | None = None
    job_id: int = 1
    accelerator: str = "cpu"
    num_slices: int = 1
    env: tuple[tuple[str, Text], ...] = ()
    resume_from: Text | None = None
    checkpoint_uri: Text | None = None
    create: bool = True
    after: After = After.KEEP
    budgets: Budgets = Budgets()
    ranks: tuple[int, ...] | None = None  # exec on some hosts only; None = all
    labels: tuple[tuple[str, str], ...] = ()
    limits: Limits = Limits()
    timer: TimerWanted | None = None


@dataclass(frozen=True, slots=True)
class Down:
    cluster: str
    budgets: Budgets = Budgets()


@dataclass(frozen=True, slots=True)
class Stop:
    cluster: str
    budgets: Budgets = Budgets()


@dataclass(frozen=True, slots=True)
class Start:
    cluster: str
    budgets: Budgets = Budgets()


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop a job on every host. folder: see JobWanted.folder."""

    cluster: str
    folder: str
    grace: float = 10.0
    budgets: Budgets = Budgets()


@dataclass(frozen=True, slots=True)
class Adopt:
    """Have machines that somebody else made on record, with our key on them. candidate: says which (`adopted`).

    uid, installation: as in Run.
    """

    cluster: str
    uid: Text
    installation: Text
    candidate: Candidate
    budgets: Budgets = Budgets()


Desired: TypeAlias = Run | Down | Stop | Start | Cancel | Adopt
