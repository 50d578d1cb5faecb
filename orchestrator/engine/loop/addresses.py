"""The addresses that the firewall of a slice admits: a set, each recorded before its request and confirmed after it.

Whoever connects admits this computer first, unless a confirmed record says that it is admitted. Each address has an
expiry; whoever connects renews its own, and withdraws those that expired.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.computer import read_computer
from orchestrator.engine.loop.session import Session
from orchestrator.engine.state.names import slice_token
from orchestrator.errors import OrchError
from orchestrator.plan.observed import Contact, Intent, IntentState, Observed
from orchestrator.providers.protocol import AdmitsAddresses
from orchestrator.slices import SliceSpec
from orchestrator.store.admission_records import AdmissionRecord
from orchestrator.store.records import ClusterRecord
from orchestrator.store.store import Store

VALID_SECONDS = 14 * 86_400.0  # as for keys
RENEW_SECONDS = 86_400.0
TRY_SECONDS = 60.0  # between two tries while hosts are silent
MOST_OF_ONE = 4  # addresses of one computer: one that moves must not fill the firewall (60 rules on EC2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The firewall of one slice, and the computer that wants to pass it.

    Attributes:
        ended: Grants of members that do not count any more: their addresses are withdrawn.
    """

    store: Store
    cluster: ClusterRecord
    intent: Intent
    provider: AdmitsAddresses
    computer: str
    ended: frozenset[str] = frozenset()

    def rows(self) -> tuple[AdmissionRecord, ...]:
        """Return what is on record of its addresses."""
        found = self.store.admissions(self.cluster.uid, self.intent.generation)
        return tuple(one for one in found if one.address)

    def needs_change(self, now: float) -> bool:
        """Return whether this computer must be admitted or renewed, or another one's address withdrawn."""
        rows = self.rows()
        return not is_admitted(rows, self.computer, now, RENEW_SECONDS) or bool(self._outdated(rows, now))

    def admit(self, now: float) -> None:
        """Admit this computer's address, and withdraw what is outdated. Repeating it after any crash completes it.

        Raises:
            OrchError: The address is not known, or the provider refused.
        """
        self.admit_address(self.provider.own_address(self.intent.candidate), now, now + VALID_SECONDS)

    def admit_address(self, address: str, now: float, until: float) -> None:
        """Admit an address of the computer until a time, and withdraw what is outdated.

        Raises:
            OrchError: The provider refused.
        """
        self.note(address, until, confirmed=False)
        rows = self.rows()
        outdated = self._outdated(rows, now)
        kept = {one.address for one in rows if one not in outdated}  # several computers may share an address
        token, candidate = slice_token(self.cluster, self.intent), self.intent.candidate
        withdrawn = {one.address for one in outdated} - kept
        self.provider.change_addresses(self.intent.name, token, candidate, {address: self.computer}, withdrawn)
        self.note(address, until, confirmed=True)
        for one in outdated:
            self.store.drop_admission(one)

    def note(self, address: str, until: float, *, confirmed: bool) -> None:
        """Record that the computer is admitted at an address until a time, or is about to be."""
        uid, generation = self.cluster.uid, self.intent.generation
        self.store.note_admission(uid, generation, self.computer, address, until, confirmed=confirmed)

    def _outdated(self, rows: Sequence[AdmissionRecord], now: float) -> tuple[AdmissionRecord, ...]:
        newest: dict[str, int] = {}
        found: list[AdmissionRecord] = []
        for one in sorted(rows, key=lambda row: -row.at):
            newest[one.computer] = newest.get(one.computer, 0) + 1
            if one.until <= now or one.computer in self.ended or newest[one.computer] > MOST_OF_ONE:
                found.append(one)
        return tuple(found)


def is_admitted(rows: Sequence[AdmissionRecord], computer: str, now: float, within: float) -> bool:
    """Return whether a confirmed address of this computer is on record, not older than `within` seconds."""
    return any(
        one.address and one.computer == computer and one.confirmed and one.until > now and one.at > now - within
        for one in rows
    )


def admit_before_contact(session: Session, intent: Intent) -> None:
    """Admit this computer to a slice before its hosts are contacted, once per slice. An error is kept until then."""
    if session.memory.admitted_to == intent.name or not session.keeper.is_held:
        return
    session.memory.admitted_to = intent.name
    gate = _find_gate(session, intent)
    if gate is not None and gate.needs_change(session.now()):
        _admit(session, gate)


def admit_after_silence(session: Session, observed: Observed) -> None:
    """Admit this computer again when hosts are silent: it may have moved to another address.

    Raises:
        OrchError: It was never admitted, and cannot be. Silence then says nothing about the hosts.
    """
    memory, intent = session.memory, observed.current
    if intent is None or not any(host.contact is Contact.DOWN for host in observed.hosts):
        return
    gate = _find_gate(session, intent)
    if gate is None or memory.admitted_to != intent.name:
        return
    if memory.address_tried is None or session.now() - memory.address_tried >= TRY_SECONDS:
        _admit(session, gate)
    if memory.address_error is not None and not is_admitted(gate.rows(), gate.computer, session.now(), VALID_SECONDS):
        raise memory.address_error


def renew_addresses(session: Session, intent: Intent) -> None:
    """Renew this computer's address and withdraw outdated ones, for a driver that runs for days."""
    gate = _find_gate(session, intent)
    if gate is not None and gate.needs_change(session.now()):
        _admit(session, gate)


def find_creator_address(session: Session, spec: SliceSpec) -> str:
    """Return the address that a create will admit, as CIDR; "" where it admits none.

    Raises:
        CloudError: It is not known.
    """
    provider = session.provider(spec.candidate.provider)
    if not isinstance(provider, AdmitsAddresses) or not provider.needs_admission(spec.candidate):
        return ""
    return provider.own_address(spec.candidate)


def note_creator_address(session: Session, intent: Intent, address: str, *, confirmed: bool) -> None:
    """Record the address that a create admits: before its request, and after its answer."""
    gate = _find_gate(session, intent) if address else None
    if gate is not None:
        gate.note(address, session.now() + VALID_SECONDS, confirmed=confirmed)


def drop_addresses(session: Session, generation: int) -> None:
    """Delete the records of a slice that no longer exists: its firewall went with it."""
    for one in session.store.admissions(session.cluster.uid, generation):
        if one.address:
            session.store.drop_admission(one)


def _find_gate(session: Session, intent: Intent) -> Gate | None:
    """Return the firewall of an accepted or planned slice; None where the address does not matter."""
    if intent.state not in (IntentState.PLANNED, IntentState.ACCEPTED):
        return None
    known = session.provider(intent.candidate.provider)
    if not isinstance(known, AdmitsAddresses) or not known.needs_admission(intent.candidate):
        return None
    bound = session.provider_of(intent)
    provider = bound if isinstance(bound, AdmitsAddresses) else known
    computer = read_computer(session.paths.state)
    return Gate(store=session.store, cluster=session.cluster, intent=intent, provider=provider, computer=computer.id)


def _admit(session: Session, gate: Gate) -> None:
    memory = session.memory
    memory.address_tried = session.now()
    try:
        gate.admit(session.now())
    except OrchError as error:
        if memory.address_error is None:
            session.narrator.note(f"the firewall of {gate.intent.name} could not admit this computer: {error}")
        memory.address_error = error
    else:
        memory.address_error = None
