"""What a provider must be able to do: two small protocols, so that a preview needs no SDK and no network.

`Planner` is pure: it turns a task into places and options of candidates, and candidates into requests. `Provider` does
I/O. The optional capabilities `AddsNotes`, `ChecksTasks`, `HasAccounts`, `HasPlaces`, `AdmitsAddresses`,
`ChecksLogins`, `Finishes`, `Recovers`, `Stops` and `Preempts` are separate protocols: a provider that cannot
stop a slice has not got the methods, and the caller reports that.

Contract of `Provider`, checked by tests/providers/test_provider_contract.py for each of them:
- create(spec, keys) is idempotent by spec.token: called again after any crash it completes the same slice and never
  makes a second one. It returns when the request is accepted; observe() reports when hosts are READY.
- observe(name) never guesses: ABSENT only on positive evidence, UNCLEAR when the provider could not be asked. It sends
  no request that changes anything. What is left to do is in `SliceView.due`.
- end(name) requests the end and returns; observe() reports when it is ABSENT. Ending what is absent succeeds.
- token, of the slice that is meant: a provider that has no record of it looks for what carries it, and never touches
  another installation's slice of the same name. "": any of this name.
- Errors are orchestrator.errors: CapacityError, QuotaError, AccessError, UserError, CloudError.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from orchestrator.errors import OrchError
from orchestrator.options import Details
from orchestrator.slices import (
    Candidate,
    HostFacts,
    Market,
    OwnedSlice,
    RecoveredSlice,
    Request,
    SliceKeys,
    SliceSpec,
    SliceView,
)

if TYPE_CHECKING:  # these load pydantic, and light commands load planners
    from orchestrator.task.model import Task
    from orchestrator.task.resources import Resources


@dataclass(frozen=True, slots=True)
class Place:
    """Where a candidate's machines are; a part is "" where the provider chooses."""

    region: str = ""
    zone: str = ""
    subnet: str = ""


class Planner(Protocol):
    """The pure half of a provider: no I/O, no SDK, no clock."""

    name: str

    def list_places(self, task: Task, choice: Resources, market: Market) -> Sequence[Place]:
        """Return the places where a choice of a task is tried, the first one first; at least one."""
        ...

    def list_details(
        self, task: Task, choice: Resources, market: Market, place: Place, *, only: bool
    ) -> tuple[tuple[str, str], ...]:
        """Return the details of the candidate for one place (slices.Candidate), none of them empty.

        Args:
            task: The task.
            choice: The choice of the task.
            market: The market in which it asks for machines.
            place: One of those that `list_places` returned.
            only: Whether the task has no other candidate to try after this one.
        """
        ...

    def create_request(self, spec: SliceSpec) -> Request: ...

    def end_request(self, name: str, candidate: Candidate) -> Request: ...

    def stop_request(self, name: str, candidate: Candidate) -> Request: ...

    def start_request(self, name: str, candidate: Candidate) -> Request: ...

    def host_facts(self, candidate: Candidate) -> HostFacts: ...


class Provider(Protocol):
    """The half that sends the requests; `registry.open_provider(name)` makes it. It holds its own clients."""

    name: str

    def create(self, spec: SliceSpec, keys: SliceKeys) -> None: ...

    def observe(self, name: str, token: str = "") -> SliceView: ...

    def end(self, name: str, token: str = "") -> None: ...

    def owned(self, installation: str) -> tuple[OwnedSlice, ...]:
        """Return the slices with an installation's label; with "", those with the label of any."""
        ...


@runtime_checkable
class HasPlaces(Provider, Protocol):
    """A provider whose machines are in places that are asked separately, such as accounts or projects.

    Attributes:
        place_word: What such a place is called, such as "profile".
    """

    place_word: str

    def places(self, *, named: bool) -> tuple[str, ...]:
        """Return the usual place, and those in which something was made from here.

        With `named`, return also all others that the configuration of this computer names.
        """
        ...

    def at(self, place: str) -> Provider:
        """Return the provider for one place, all of which it searches: records do not limit where it looks."""
        ...


@runtime_checkable
class NamesAccounts(HasPlaces, Protocol):
    """A provider of which each place is in an account, as HasAccounts records it.

    Attributes:
        searched: Where in a place it looks for slices, such as "every region".
    """

    searched: str

    def place_account(self) -> str:
        """Return the account of the place that this provider is bound to.

        Raises:
            AccessError: There are no credentials, or they are refused.
            CloudError: It could not be found out.
        """
        ...

    def place_of(self, account: str) -> str:
        """Return the place that is this account; "" where only the credentials of a place say what its account is."""
        ...


@runtime_checkable
class HasIdentities(HasPlaces, Protocol):
    """A provider that can be called as another identity, which options of candidates name (OptionSpec.identity)."""

    def place_as(self, details: Details) -> str:
        """Return the place that the options of a candidate name, with the identity as which it is called."""
        ...


@runtime_checkable
class NamesCallers(Provider, Protocol):
    """A provider whose audit log can show for whom it is called."""

    def for_caller(self, caller: str) -> Provider:
        """Return the same provider with this name in its calls, where it can have one."""
        ...


@runtime_checkable
class LogsInAsOwner(Protocol):
    """A provider of machines that are entered with their owner's own keys."""

    def check_unattended_login(self, candidate: Candidate) -> None:
        """Raise UserError when a key would need a passphrase, which no one types in the background."""
        ...


@runtime_checkable
class HasAccounts(Provider, Protocol):
    """A provider whose answers hold only for the account of its credentials: an empty one of another proves nothing.

    An account is text that compares, such as "aws:123456789012" or "gcp:my-project". It is recorded before a create.
    """

    def account(self, candidate: Candidate) -> str:
        """Return the account in which this computer's credentials would make these machines.

        Raises:
            AccessError: There are no credentials, or they are refused.
            CloudError: It could not be found out.
        """
        ...

    def within(self, account: str, candidate: Candidate) -> Provider:
        """Return the provider bound to an account in which machines were made.

        Raises:
            OtherAccountError: These credentials are of another one.
            AccessError: There are no credentials, or they are refused.
            CloudError: It could not be found out.
        """
        ...


@runtime_checkable
class Finishes(Provider, Protocol):
    """A provider with steps that are possible only later than the create or the end that they belong to.

    Examples: an address can be attached to a machine only when it runs, and a security group deleted only after it.
    """

    def finish(self, name: str, token: str = "") -> SliceView:
        """Take the steps that are due, and return the view after them. Repeating it does nothing.

        Like observe() it raises nothing that the provider reports. Only the holder of the cluster's lease calls it.
        """
        ...


@runtime_checkable
class DiagnosesHosts(Provider, Protocol):
    """A provider that reports more of a host than the state of its slice."""

    def diagnose_hosts(self, name: str, token: str, ranks: Sequence[int]) -> Mapping[int, str]:
        """Return what is known of hosts that do not answer SSH, by rank. Sends only reads.

        Raises:
            OrchError: The provider failed, or refused.
        """
        ...


@runtime_checkable
class Recovers(Provider, Protocol):
    """A provider whose machines can be taken over by an installation that has no record of them.

    All three may be repeated. They are called in this order; see engine/operations/take_over.py.
    """

    def describe_owned(self, found: OwnedSlice) -> RecoveredSlice:
        """Describe a listed slice, with the keys of its hosts where the provider holds them. Changes nothing.

        Raises:
            NotFoundError: It does not exist any more.
            OrchError: The provider failed.
        """
        ...

    def relabel(self, found: OwnedSlice, installation: str, epoch: int) -> None:
        """Write the new owner into the labels of all that the slice consists of, where labels can be changed."""
        ...

    def keep_recovered(self, found: OwnedSlice, recovered: RecoveredSlice, keys: SliceKeys) -> None:
        """Write the record by which `observe` finds the hosts and their keys."""
        ...


@runtime_checkable
class Stops(Protocol):
    """A provider whose hosts can be stopped and started again with their disks."""

    def stop(self, name: str) -> None: ...

    def start(self, name: str) -> None: ...


@runtime_checkable
class PlansAdmission(Planner, Protocol):
    """A planner that knows which slices are reached through a firewall of ours."""

    def needs_admission(self, candidate: Candidate) -> bool:
        """Return whether a firewall rule of ours decides from which addresses the hosts are reached.

        Not so where the user names the sources, the rule or the group, or where no open port leads to the hosts.
        """
        ...


@runtime_checkable
class AdmitsAddresses(Provider, Protocol):
    """A provider whose firewall admits a set of addresses to the hosts of a slice."""

    def needs_admission(self, candidate: Candidate) -> bool:
        """See PlansAdmission."""
        ...

    def own_address(self, candidate: Candidate) -> str:
        """Return this computer's address as the hosts see it, as CIDR. It is asked for once a minute at most.

        Raises:
            CloudError: No service reports it.
        """
        ...

    def change_addresses(
        self, name: str, token: str, candidate: Candidate, admitted: Mapping[str, str], withdrawn: Collection[str]
    ) -> None:
        """Admit addresses to the hosts of a slice, and withdraw others. Repeating it does nothing.

        Other sources stay, as does everything of a slice that has no rule of ours.

        Args:
            name: The slice.
            token: Of the slice.
            candidate: Where it is.
            admitted: Each address as CIDR, with the id of its computer. Not empty: for Google, a rule without
                sources admits everyone.
            withdrawn: Addresses as CIDR.

        Raises:
            OrchError: The provider failed, or refused.
        """
        ...


@runtime_checkable
class ChecksLogins(Provider, Protocol):
    """A provider whose IAM may decide who logs in to a host."""

    def login_role(self, candidate: Candidate) -> str:
        """Return the role without which a host refuses every key; "" where keys alone decide."""
        ...


@runtime_checkable
class AddsNotes(Planner, Protocol):
    """A planner that knows what a user should know before agreeing to a plan."""

    def list_notes(self, task: Task, candidates: Sequence[Candidate]) -> tuple[str, ...]:
        """Return the notes about the choices of a task that are for this provider."""
        ...


@runtime_checkable
class ChecksTasks(Planner, Protocol):
    """A planner that knows what would fail on the machines of a task."""

    def preflight_error(self, task: Task, facts: HostFacts) -> OrchError | None:
        """Return the first error of the choices of a task that are for this provider, or None."""
        ...


@runtime_checkable
class Preempts(Protocol):
    """A provider that can take a host away abruptly, to simulate a preemption."""

    def preempt(self, name: str, rank: int) -> None: ...
