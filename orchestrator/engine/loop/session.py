"""What one command keeps in memory while it works on a cluster. All of it may be lost at any time: see observe.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.clock import SteadyClock
from orchestrator.cloud_access import CloudAccess
from orchestrator.cloud_identities.role import name_caller
from orchestrator.engine.narrator import Narrator
from orchestrator.engine.preparation.prepared import MissingOutput
from orchestrator.engine.services import Services
from orchestrator.engine.state.fences import fence_hosts
from orchestrator.engine.state.identities import find_access
from orchestrator.engine.state.lease import LeaseKeeper
from orchestrator.engine.state.pins import StorePins
from orchestrator.errors import OrchError
from orchestrator.hosts import HostAddress, HostOutcome
from orchestrator.paths import Paths
from orchestrator.plan.desired import Desired
from orchestrator.plan.facts import Facts
from orchestrator.plan.observed import ActionFailure, ActionSuccess, Intent, Outcome
from orchestrator.providers.protocol import HasAccounts, NamesCallers, Provider
from orchestrator.remote.host_operations import HostOperations
from orchestrator.remote.tree import Tree
from orchestrator.slices import Candidate
from orchestrator.store.job_end import HostRun
from orchestrator.store.records import ClusterRecord, JobRecord
from orchestrator.store.store import Store

if TYPE_CHECKING:
    from orchestrator.engine.loop.epoch import RunHold
    from orchestrator.engine.loop.follow import Follower


@dataclass(kw_only=True)
class Memory:
    """Evidence that only this process has seen. Losing it costs time, never correctness.

    Attributes:
        healthy_at: When the slice was last seen READY, or when this command began; deadlines do not start before that.
        failure: The last failed action.
        succeeded: The last action, where it succeeded.
        unclear_since: Since when the provider gives no clear answer.
        contact_since: Since when a host does not answer.
        silence_recorded: The silence of hosts that was recorded: the cause of its event.
        failed_since: Since when the program has failed on a host.
        first_failed: The rank on which it failed first.
        stacks_of: Folder of the job whose stacks were collected.
        outcomes: One per host, of the last program or failed step.
        host_run: The job folder that was observed last, and for how long its hosts have run it.
        log_sizes: The bytes of the program's log on each host that answered last, by rank.
        follow_error: Why the output is not followed, as it was reported; "" while it is.
        missing_output: The output of the ended program that has not come; None for none.
        ends: A slice, and when its provider takes the machines back (epoch seconds).
        created: A slice whose create request was accepted, and when (epoch seconds).
        reported_end: The slice whose near end was reported.
        skew_reported: Whether a wrong clock of this computer was reported.
        logs_saved: Whether the remaining logs were downloaded before the teardown.
        new_owner: Who has taken the machines over, in words, as the labels of the machines show; "" for no one.
        looked_at: When the machines were looked at last; 0 before.
        silent_since: Since when there was no look before the one that found them absent or unclear; 0 for no such time.
        stopped: Whether the machines were reported as stopped last, as it is recorded; None before that.
        admitted_to: The slice whose firewall admits this computer's address, or was tried to.
        address_tried: When that was tried last.
        address_error: Why it failed.
        admitted: The lines of the keys that were let in, by the slice whose hosts have them.
        diagnosis: What the provider reports of hosts that do not answer, by rank.
        diagnosed_at: When it was asked last; 0 before.
        refusals: The causes of refused creates that were reported.
        over_budget: The candidates that a budget did not allow in this attempt.
        spent_budget: Which budget is spent and ends the run, in words.
        budgets_read: When that was computed last.
        spent_before: What the run has cost on other clusters, once it was summed: a job, and Observed.spent_before.
        step_of: The attempt for which the step of the newest checkpoint was read.
        saved_step: That step; None for no checkpoint.
        chosen: The attempt for which machines were chosen again last, and the first of them.
        growth_checked: When the records were last read for whether the run moves to better machines; 0 before.
    """

    healthy_at: float
    failure: ActionFailure | None = None
    succeeded: ActionSuccess | None = None
    unclear_since: float | None = None
    contact_since: float | None = None
    silence_recorded: str = ""
    failed_since: float | None = None
    first_failed: int | None = None
    stacks_of: str = ""
    outcomes: tuple[HostOutcome, ...] = ()
    host_run: tuple[str, HostRun] | None = None
    log_sizes: Mapping[int, int] = field(default_factory=dict[int, int])
    follow_error: str = ""
    missing_output: MissingOutput | None = None
    ends: tuple[str, float] | None = None
    created: tuple[str, float] | None = None
    reported_end: str = ""
    skew_reported: bool = False
    logs_saved: bool = False
    new_owner: str = ""
    looked_at: float = 0.0
    silent_since: float = 0.0
    stopped: bool | None = None
    admitted_to: str = ""
    address_tried: float | None = None
    address_error: OrchError | None = None
    admitted: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    diagnosis: dict[int, str] = field(default_factory=dict[int, str])
    diagnosed_at: float = 0.0
    refusals: set[str] = field(default_factory=set[str])
    over_budget: dict[Candidate, Outcome] = field(default_factory=dict[Candidate, Outcome])
    spent_budget: str = ""
    budgets_read: float = float("-inf")
    spent_before: tuple[int, float | None] = (0, 0.0)
    step_of: int = 0
    saved_step: int | None = None
    chosen: tuple[int, Candidate | None] = (0, None)
    growth_checked: float = 0.0


class Providers:
    """The providers of one command, each opened once.

    Args:
        services: Opens them.
        caller: For whom they are called, as their audit logs show it; "" where that is not known.
    """

    def __init__(self, services: Services, caller: str = "") -> None:
        self._open = services.provider
        self._caller = caller
        self._opened: dict[str, Provider] = {}

    def get(self, name: str) -> Provider:
        """Return the provider of this name."""
        if name not in self._opened:
            opened = self._open(name)
            if self._caller and isinstance(opened, NamesCallers):
                opened = opened.for_caller(self._caller)
            self._opened[name] = opened
        return self._opened[name]

    def of(self, intent: Intent) -> Provider:
        """Return the provider of an intent's machines, bound to their account.

        Raises:
            OtherAccountError: The credentials are of another account.
            OrchError: Whose they are could not be found out.
        """
        provider = self.get(intent.candidate.provider)
        if not intent.account or not isinstance(provider, HasAccounts):
            return provider
        return provider.within(intent.account, intent.candidate)


class Session:
    """One command at work on one cluster."""

    def __init__(
        self,
        store: Store,
        paths: Paths,
        narrator: Narrator,
        keeper: LeaseKeeper,
        cluster: ClusterRecord,
        desired: Desired,
        facts: Facts,
        job: JobRecord | None,
        services: Services,
        providers: Providers | None = None,
        *,
        accept_host_keys: bool = False,
        trees: tuple[Tree, ...] = (),
    ) -> None:
        """Begin. accept_host_keys: Whether a person confirmed whatever new machines of theirs present.

        trees: The files that it sends, where this process planned them.
        """
        self.store = store
        self.paths = paths
        self.narrator = narrator
        self.keeper = keeper
        self.cluster = cluster
        self.desired = desired
        self.facts = facts
        self.job = job
        self.services = services
        self.trees = trees
        self.memory = Memory(healthy_at=services.clock.now())
        self.follower: Follower | None = None
        self.pins = StorePins(
            lambda: store, narrator.note, cluster=cluster.qualified_name, job=self._open_job, confirm=accept_host_keys
        )
        self.hold: RunHold | None = None
        self._providers = providers or Providers(services, name_caller(store.installation, cluster.owner))
        self._operations: HostOperations | None = None

    def _open_job(self) -> str:
        return f"{self.job.cluster_uid}/{self.job.id}" if self.job is not None else ""

    def find_access(self, job: JobRecord) -> CloudAccess:
        """Return how the bucket of a job of the cluster is reached."""
        caller = name_caller(self.store.installation, self.cluster.owner)
        return find_access(self.store, self.services.access, caller, project=self.cluster.project, task=job.task)

    def provider(self, name: str) -> Provider:
        """Return the provider of this name, opened once per command."""
        return self._providers.get(name)

    def provider_of(self, intent: Intent) -> Provider:
        """Return the provider of an intent's machines, bound to their account; see Providers.of."""
        return self._providers.of(intent)

    def uncorrected(self) -> float:
        """Return the time without what servers have corrected, for spans within this process."""
        clock = self.services.clock
        return clock.uncorrected() if isinstance(clock, SteadyClock) else clock.now()

    def now(self) -> float:
        """Return the time in seconds since the epoch."""
        return self.services.clock.now()

    def host_operations(self, hosts: tuple[HostAddress, ...]) -> HostOperations:
        """Return the operations on these hosts; connections are kept as long as the hosts are the same."""
        if self._operations is not None and self._operations.hosts == hosts:
            return self._operations
        self.disconnect()
        self._operations = self.services.host_operations(self.fence(hosts), self.pins)
        return self._operations

    def fence(self, hosts: tuple[HostAddress, ...]) -> tuple[HostAddress, ...]:
        """Return the addresses of the cluster's hosts with what every command presents to them."""
        return fence_hosts(hosts, self.store.intents(self.cluster), self.store.installation, self.store.slice_owner)

    @property
    def hosts(self) -> tuple[HostAddress, ...]:
        """The hosts that are connected, in rank order."""
        return self._operations.hosts if self._operations is not None else ()

    def disconnect(self) -> None:
        """Stop following logs and close the connections."""
        if self.follower is not None:
            self.follower.stop()
            self.follower = None
        if self._operations is not None:
            self._operations.close()
            self._operations = None

    def close(self) -> None:
        """Close all connections, and stop the beat of the run."""
        if self.hold is not None:
            self.hold.close()
        self.disconnect()
