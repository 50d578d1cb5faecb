"""What a provider must be able to do. Two small protocols, so that a preview needs no SDK and no network.

`Planner` is pure: it turns what the user wants into candidates and requests. `Provider` does I/O. The optional
capabilities `Stops` and `Preempts` are protocols of their own: a provider that cannot stop a slice simply lacks the
methods, and the caller says so.

Contract of `Provider`, checked by tests/providers/test_provider_contract.py for each of them:
- create(spec, keys) is idempotent by spec.token: called again after any crash it completes the same slice and never
  makes a second one. It returns when the request is accepted; observe() tells when hosts are READY.
- observe(name) never guesses: ABSENT only on positive evidence, UNCLEAR when the provider could not be asked.
- end(name) asks for the end and returns; observe() tells when it is ABSENT. Ending what is absent succeeds.
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

    def observe(self, name: str) -> SliceView: ...

    def end(self, name: str) -> None: ...

    def owned(self, installation: str) -> tuple[OwnedSlice, ...]: ...


@runtime_checkable
class Stops(Protocol):
    """Hosts can be stopped and started again with their disks."""

    def stop(self, name: str) -> None: ...

    def start(self, name: str) -> None: ...


@runtime_checkable
class Preempts(Protocol):
    """A host can be taken away hard, to play a preemption."""

    def preempt(self, name: str, rank: int) -> None: ...
