"""What the user requested, with everything rendered: decisions look nothing up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from orchestrator.offers.offers import Offer
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.slices import Candidate
from orchestrator.values import Text


class Strategy(StrEnum):
    """Where a replacement for a lost slice is requested first; the values of the public dialect (job_recovery)."""

    FAILOVER = "FAILOVER"  # where it was, then the same region, then the rest
    EAGER_NEXT_REGION = (
        "EAGER_NEXT_REGION"  # anywhere else first: a place that was just preempted is likely to be preempted again
    )


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits that end the machines whatever the program does; None for no limit.

    Attributes:
        dollars: For all slices of the cluster together.
    """

    hours: float | None = None
    dollars: float | None = None


@dataclass(frozen=True, slots=True)
class TimerSpec:
    """The dead-man timer of every host.

    Attributes:
        script: Installs and starts the timer; safe to run again.
        idle_minutes: Minutes without a job after which it acts; None for never.
        stops: Whether it stops idle machines and keeps their disks, or ends them.
        only_stops: Whether it can only stop them, also at the end of their lifetime.
    """

    digest: str
    script: Text
    idle_minutes: float | None = None
    stops: bool = False
    only_stops: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeSpec:
    """A local folder or file that every host needs; see actions.SyncTree."""

    label: str
    source: str
    destination: str
    digest: str
    files: int
    total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MountSpec:
    """A bucket path that every host copies to its disk; see actions.FetchMount."""

    label: str
    source: str
    destination: str
    digest: str
    script: Text


@dataclass(frozen=True, slots=True)
class SetupSpec:
    """The setup script of every host.

    Attributes:
        digest: Fingerprint of everything whose change makes setup run again.
    """

    digest: str
    script: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """The program of a job.

    Attributes:
        id: Number of the job on its cluster, the same for every attempt.
        stop_grace: Seconds between TERM and KILL.
        failure_grace: Seconds that the other hosts may continue after the first one failed.
        limit_grace: Seconds to save a checkpoint when a limit is reached.
    """

    id: int
    script: Text
    stop_grace: float = 10.0
    failure_grace: float = 5.0
    limit_grace: float = 60.0

    def folder(self, attempt: int) -> str:
        """Return the name of the job's folder on the hosts."""
        return f"{self.id}-a{attempt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """The two restart budgets, which are never mixed, and the deadlines of the waits (seconds).

    Attributes:
        preemptions: Restarts after losses that are not the program's fault; see causes.LOSSES.
        failures: Restarts after failures of the program.
        restart_on: Exit statuses that count as a preemption, in addition to 75.
        storage: Restarts after the exit status of a bucket that fails (10), in a row and without progress; beyond
            `failures`. 0 for programs that do not define it.
        fail_on: Exit statuses that are never restarted.
        final: Exit statuses by which the program itself asks for no restart.
        reports_steps: Whether the program is known to report its steps, by which a hang is seen.
        capacity_wait: How long a replacement for a lost slice is requested.
        capacity_wait_first: The same for the first slice.
    """

    preemptions: int = 0
    failures: int = 0
    storage: int = 0
    restart_on: tuple[int, ...] = ()
    fail_on: tuple[int, ...] = ()
    final: tuple[int, ...] = ()
    reports_steps: bool = True
    strategy: Strategy = Strategy.EAGER_NEXT_REGION
    capacity_wait: float = 0.0
    capacity_wait_first: float = 0.0
    backoff_base: float = 5.0  # pause before the second short attempt in a row; doubles with each further one
    backoff_cap: float = 300.0
    hang_deadline: float = 0.0  # a heartbeat older than this is a hang; 0 disables the check
    boot_deadline: float = 1800.0  # accepted until ready
    contact_deadline: float = 300.0  # ready until every host answers SSH
    own_contact_deadline: float = 8.0  # the same for the user's own machines, which no one is booting
    end_deadline: float = 900.0  # end requested until the provider reports it absent
    lost_deadline: float = 30.0  # a host of a running program is silent while others answer, until it counts as lost
    silence_deadline: float = 90.0  # no host answers: it may be our own network
    unclear_deadline: float = 300.0  # the provider cannot be queried, until we give up
    resend_after: float = 15.0  # an end without effect is sent again
    save_before: float = 600.0  # before the provider takes the machines back, the program is asked to save and stop


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What differs on some of the candidates. The fields are those of Run.

    Attributes:
        one_computer: Whether the hosts are this computer, and share its ports with other clusters.
        nodes: Slices or instances.
        offer: For which the candidates were chosen; None where orch did not choose them.
    """

    candidates: tuple[Candidate, ...]
    setup: SetupSpec | None
    mounts: tuple[MountSpec, ...]
    job: JobSpec | None
    accelerator: str
    num_slices: int
    env: tuple[tuple[str, Text], ...]
    timer: TimerSpec | None
    one_computer: bool = False
    nodes: int = 1
    offer: Offer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AutomaticChoice:
    """What limits the choice of machines that is made again after a loss.

    Attributes:
        budget: US dollars for the whole run; None for any.
        by: A time after the launch, or a date; "" for any.
    """

    budget: float | None
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Create the cluster where it does not exist, set it up, and run the program to its end.

    Attributes:
        uid: Made once with the cluster's record; part of every token.
        slice_stem: What the names of its slices begin with.
        run_id: The same for every attempt and resume.
        create: False for commands that need an existing cluster (exec).
        env: The user's envs and secrets, and what the accelerator needs.
        ranks: The hosts of an exec; None for all.
        project: The cluster's project, for a label; "" for no label.
        member: Its owner, in the form of a label; "" for no label.
        record: The SHA-256 of the run's task record in its bucket, in hex; "" without a bucket.
        run_key: The secret by which the ranks know what they left in the bucket themselves; None without a bucket.
        trusted: SHA-256 of manifests that an own program may load without its run's signature, newest consent first.
        one_computer: Whether the hosts are this computer, and share its ports with other clusters.
        variants: What differs by candidate; () where nothing does. The fields of the run are those of the first.
        automatic: Where orch chose the candidates, what limits the choice; else None.
        grow: Whether it moves to better machines while it has some; see growth.py.
    """

    cluster: str
    slice_stem: str
    uid: Text
    run_id: Text
    installation: Text
    candidates: tuple[Candidate, ...]
    trees: tuple[TreeSpec, ...] = ()
    mounts: tuple[MountSpec, ...] = ()
    setup: SetupSpec | None = None
    job: JobSpec | None = None
    job_id: int = 1
    accelerator: str = "cpu"
    num_slices: int = 1
    env: tuple[tuple[str, Text], ...] = ()
    resume_from: Text | None = None
    checkpoint_uri: Text | None = None
    create: bool = True
    teardown: TeardownPolicy = TeardownPolicy.KEEP
    budgets: Budgets = Budgets()
    ranks: tuple[int, ...] | None = None
    labels: tuple[tuple[str, str], ...] = ()
    limits: Limits = Limits()
    timer: TimerSpec | None = None
    project: str = ""
    member: str = ""
    record: str = ""
    run_key: Text | None = None
    trusted: tuple[str, ...] = ()
    one_computer: bool = False
    variants: tuple[Variant, ...] = ()
    automatic: AutomaticChoice | None = None
    grow: bool = False

    @property
    def possible(self) -> tuple[Candidate, ...]:
        """The candidates, and those that it may get only after a loss."""
        later = (one for variant in self.variants for one in variant.candidates)
        return tuple(dict.fromkeys((*self.candidates, *later)))

    def find_variant(self, candidate: Candidate) -> Variant | None:
        """Return what differs on a candidate, or on machines like it; None where nothing does."""
        same = [one for one in self.variants if candidate in one.candidates]
        like = (candidate.accelerator, candidate.hosts)
        same += [one for one in self.variants if any((c.accelerator, c.hosts) == like for c in one.candidates)]
        return same[0] if same else None

    def adapt(self, candidate: Candidate) -> Run:
        """Return the run as it is on a candidate."""
        found = self.find_variant(candidate)
        if found is None:
            return self
        return replace(
            self,
            setup=found.setup,
            mounts=found.mounts,
            job=found.job,
            accelerator=found.accelerator,
            num_slices=found.num_slices,
            env=found.env,
            timer=found.timer,
            one_computer=found.one_computer,
        )


@dataclass(frozen=True, slots=True)
class Down:
    """End every machine of the cluster and close its record.

    Attributes:
        abandon: Close the record of the user's own machines although one that does not answer may still run the
            program.
    """

    cluster: str
    budgets: Budgets = Budgets()
    abandon: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the machines of the cluster; their disks stay."""

    cluster: str
    budgets: Budgets = Budgets()


@dataclass(frozen=True, slots=True)
class Start:
    """Start the stopped machines of the cluster."""

    cluster: str
    budgets: Budgets = Budgets()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Stop a job on every host.

    Attributes:
        folder: See JobSpec.folder.
    """

    cluster: str
    folder: str
    grace: float = 10.0
    budgets: Budgets = Budgets()


Desired: TypeAlias = Run | Down | Stop | Start | Cancel
