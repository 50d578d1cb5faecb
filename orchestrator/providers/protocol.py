"""What a provider must be able to do. Two small protocols, so that a preview needs no SDK and no network.

`Planner` is pure: it turns what the user wants into candidates and requests. `Provider` does I/O. The optional
capabilities `Stops`, `Preempts` and `Adopts` are protocols of their own: a provider that cannot stop a slice simply
lacks the methods, and the caller says so.

Contract of `Provider`, checked by tests/providers/test_provider_contract.py for each of them:
- create(spec, keys) is idempotent by spec.token: called again after any crash it completes the same slice and never
  makes a second one. It returns when the request is accepted; observe() tells when hosts are READY.
- observe(name) never guesses: ABSENT only on positive evidence, UNCLEAR when the provider could not be asked.
- end(name) asks for the end and returns; observe() tells when it is ABSENT. Ending what is absent succeeds.
- token, of the slice that is meant: a provider that has no record of it looks for what carries it, and never touches
  another installation's slice of the same name. "": any of this name.
- Errors are orchestrator.errors: CapacityError, QuotaError, AccessError, UserError, CloudError.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from orchestrator.slices import (
    Candidate,
    HostFacts,
    OwnedSlice,
    Request,
    SliceKeys,
    SliceSpec,
    SliceView,
    Stranger,
)


class Planner(Protocol):
    """Pure: no I/O, no SDK, no clock."""

    name: str

    def create_request(self, spec: SliceSpec) -> Request: ...

    def end_request(self, name: str, candidate: Candidate) -> Request: ...

    def stop_request(self, name: str, candidate: Candidate) -> Request: ...

    def start_request(self, name: str, candidate: Candidate) -> Request: ...

    def host_facts(self, candidate: Candidate) -> HostFacts: ...


class Provider(Protocol):
    """Does what the requests say. Made by `registry.open_provider(name)`; holds its own clients."""

    name: str

    def create(self, spec: SliceSpec, keys: SliceKeys) -> None: ...

    def observe(self, name: str, token: str = "") -> SliceView: ...

    def end(self, name: str, token: str = "") -> None: ...

    def owned(self, installation: str) -> tuple[OwnedSlice, ...]: ...


@runtime_checkable
class Stops(Protocol):
    """Hosts can be stopped and started again with their disks."""

    def stop(self, name: str) -> None: ...

    def start(self, name: str) -> None: ...


@runtime_checkable
class Adopts(Provider, Protocol):
    """Machines that somebody else made can be taken under management, and given back as they are.

    To adopt is to create a slice whose candidate says `adopted`: it marks the machines as ours and lets our key in, and
    changes nothing else of them. Sent again with the same token, it completes the same adoption.
    """

    def find(self, name: str, zone: str, project: str = "", user: str = "") -> Stranger:
        """Look at it; nothing is changed. user: the account to log in with, "" for the usual one.

        Raises UserError for what can never be adopted, NotFoundError, AccessError, CloudError.
        """
        ...

    def release(self, name: str) -> None:
        """Take our marks and our key off the slice's machines; they stay. Again, or when they are gone: nothing."""
        ...


class Releases(Planner, Protocol):
    """A planner that can say what a release sends."""

    def release_request(self, name: str, candidate: Candidate) -> Request: ...


@runtime_checkable
class Preempts(Protocol):
    """A host can be taken away hard, to play a preemption."""

    def preempt(self, name: str, rank: int) -> None: ...
