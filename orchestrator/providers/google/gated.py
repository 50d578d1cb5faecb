"""The provider "gcp" with the ways to its hosts: firewall rules and OS Login before a slice is made, gone after it.

The halves behind it know nothing of this: they make and end machines, and say where those are.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Protocol

from orchestrator.errors import (
    AccessError,
    CapacityError,
    ConflictError,
    OrchError,
    OtherAccountError,
    QuotaError,
    UserError,
)
from orchestrator.hosts import HostAddress
from orchestrator.options import Details
from orchestrator.providers.caller import CallerAddress
from orchestrator.providers.google import access, choices, configured
from orchestrator.providers.google.access import Way
from orchestrator.providers.google.firewall import Firewall, OwnedRule, with_caller
from orchestrator.providers.google.gates import Gate, Gates
from orchestrator.providers.google.labels import INSTALLATION
from orchestrator.providers.google.oslogin import ADMIN_ROLE, OsLogin, Profile
from orchestrator.providers.google.reach import reached
from orchestrator.providers.google.sending import named_project, with_project
from orchestrator.providers.google.session import Session
from orchestrator.providers.protocol import DiagnosesHosts, Finishes, Recovers, Stops
from orchestrator.providers.records import Records as RecordPlace
from orchestrator.slices import (
    Candidate,
    OwnedSlice,
    RecoveredSlice,
    Request,
    SliceKeys,
    SliceSpec,
    SliceState,
    SliceView,
)

GATES = "google-gates"  # folder of the records, below the state folder
_AS = " as "  # between a project and the service account as which it is called, in the name of a place
KEY_SECONDS = 30 * 24 * 3600.0  # how long a key stays in an OS Login profile when nobody takes it out


class Machines(Finishes, Stops, Recovers, DiagnosesHosts, Protocol):
    """What makes and ends the machines."""

    def instance_names(self, name: str) -> tuple[str, ...]:
        """What Compute Engine calls each host, in rank order; "" for one that has not said it. Raises OrchError."""
        ...

    def projects(self) -> set[str]:
        """Those in which something was made from here."""
        ...


class Gated:
    """at, in_project: open the provider for a project and the service account as which it is called, "" for none.

    complete: see provider.py.
    """

    name = "gcp"
    place_word = "project"
    searched = "every zone"

    def __init__(
        self,
        inner: Machines,
        session: Session,
        records: RecordPlace | Path,
        now: Callable[[], float] = time.time,
        *,
        at: Callable[[str, str], Gated] | None = None,
        in_project: Callable[[str, str], Gated] | None = None,
        complete: bool = False,
    ) -> None:
        self._inner = inner
        self._session = session
        self._gates = Gates(records)
        self._now = now
        self._at = at
        self._complete = complete
        self._in_project = in_project
        self._caller = CallerAddress(session)

    def account(self, candidate: Candidate) -> str:
        """See protocol.HasAccounts: a project, such as "gcp:my-project"."""
        return f"gcp:{named_project(candidate, self._session.project)}{self._mark}"

    def within(self, account: str, candidate: Candidate) -> Gated:
        """See protocol.HasAccounts. Every request names its project: the recorded one is asked, whichever is usual."""
        project, at, mark = account.removeprefix("gcp:").partition("@")
        if at + mark != self._mark:
            here, there = "a simulated cloud", "Google itself"
            here, there = (here, there) if self._mark else (there, here)
            raise OtherAccountError(
                f"these machines belong to project '{project}' of {there}",
                f"this command asks {here}, which says nothing about them; nothing was changed",
                "inside `orch simulate`, or with its variables exported, the simulated cloud is asked; else Google is",
            )
        return self._for(project, candidate)

    def _for(self, project: str, candidate: Candidate) -> Gated:
        """The provider that is called as the service account of a candidate."""
        identity = candidate.detail("impersonate")
        if (project, identity) == (self._session.project, self._session.impersonated) or self._in_project is None:
            return self
        return self._in_project(project, identity)

    @property
    def _mark(self) -> str:
        return "@loopback" if self._session.loopback else ""

    def create(self, spec: SliceSpec, keys: SliceKeys) -> None:
        """Raises what the machines' half raises, and ConflictError for a firewall rule that is somebody else's.

        A refusal that ends it takes back what was opened for it.
        """
        if spec.candidate.detail("impersonate") != self._session.impersonated:
            project = named_project(spec.candidate, self._session.project)
            self._for(project, spec.candidate).create(spec, keys)
            return
        spec = with_project(access.tagged(spec), self._session.project)
        known = self._gates.read(spec.name)
        if known is not None and known.token != spec.token.reveal() and self._is_absent(spec.name):
            self._close(known)
            known = None
        opens = known is None or known.token == spec.token.reveal()
        try:
            gate = self._open(spec, keys) if opens else None
            self._inner.create(spec, keys)
        except (CapacityError, QuotaError, AccessError, UserError, ConflictError) as error:
            # An earlier try may have made machines: then end() follows and closes; after a conflict, if they are ours.
            if known is None or (opens and isinstance(error, ConflictError) and not self._is_ours(spec)):
                self._withdraw(spec.name)
            raise
        if gate is not None:
            self._gates.put(replace(gate, opened=True))

    def observe(self, name: str, token: str = "") -> SliceView:
        """Never raises. A slice is not absent before its SSH access is removed."""
        return self._with_access(self._inner.observe(name, token), name, token)

    def _with_access(self, view: SliceView, name: str, token: str) -> SliceView:
        """Return the view of the machines with the way to their hosts."""
        try:
            gate = self._gate(name, token)
            if gate is None:
                return view
            if view.state is SliceState.ABSENT and gate.opened:
                return SliceView(state=SliceState.ENDING, reason="its SSH access is not removed yet", due=True)
            return self._led(gate, view) if view.state is SliceState.READY else view
        except (OrchError, OSError, ValueError) as error:
            return SliceView(state=SliceState.UNCLEAR, reason=str(error))

    def diagnose_hosts(self, name: str, token: str, ranks: Sequence[int]) -> Mapping[int, str]:
        """See protocol.DiagnosesHosts."""
        return self._inner.diagnose_hosts(name, token, ranks)

    def finish(self, name: str, token: str = "") -> SliceView:
        """See protocol.Finishes: remove what the machines leave behind, then their SSH access."""
        machines = self._inner.finish(name, token)
        view = self._with_access(machines, name, token)
        if machines.state is not SliceState.ABSENT or not view.due:
            return view
        try:
            gate = self._gate(name, token)
            if gate is None or self._close(gate):
                return machines
            return SliceView(state=SliceState.ENDING, reason="one of its firewall rules still exists", due=True)
        except (OrchError, OSError, ValueError) as error:
            return SliceView(state=SliceState.UNCLEAR, reason=str(error))

    def end(self, name: str, token: str = "") -> None:
        """Hosts that are to go need no way to them: the rules go at once."""
        self._inner.end(name, token)
        gate = self._gate(name, token)
        if gate is not None:
            self._close(gate)
        elif self._complete or self._gates.used:
            for rule in self._rules():
                if rule.slice == name and token in ("", rule.intent):
                    self._wall.remove(rule.request, rule.intent)

    def owned(self, installation: str) -> tuple[OwnedSlice, ...]:
        """Rules whose slice is gone are listed as what is left of it."""
        found = self._inner.owned(installation)
        if not self._complete and not self._gates.used:
            return found
        names = {one.name for one in found}
        left = {rule.slice: rule for rule in self._rules(installation) if rule.slice not in names}
        return (*found, *(_left(rule) for rule in left.values()))

    def describe_owned(self, found: OwnedSlice) -> RecoveredSlice:
        """See protocol.Recovers."""
        recovered, account = self._inner.describe_owned(found), self._session.impersonated
        if not account:
            return recovered
        details = (*recovered.candidate.details, ("impersonate", account))
        return replace(recovered, candidate=replace(recovered.candidate, details=details))

    def relabel(self, found: OwnedSlice, installation: str, epoch: int) -> None:
        """See protocol.Recovers. The descriptions of firewall rules stay: rules go with their slice, by its token."""
        self._inner.relabel(found, installation, epoch)

    def keep_recovered(self, found: OwnedSlice, recovered: RecoveredSlice, keys: SliceKeys) -> None:
        """See protocol.Recovers."""
        self._inner.keep_recovered(found, recovered, keys)
        rules = [rule.request.target for rule in self._rules() if rule.intent == found.intent]
        internal = bool(recovered.candidate.detail("internal_ips"))
        gate = Gate(
            name=found.name,
            token=found.intent,
            project=self._session.project,
            zone=recovered.candidate.zone,
            way=Way.INTERNAL if internal else Way.EXTERNAL,
            jump="",
            rules=tuple(rules),
            opened=True,
        )
        self._gates.put(gate)

    def places(self, *, named: bool) -> tuple[str, ...]:
        """See protocol.HasPlaces."""
        used = self._inner.projects() | {gate.project for gate in self._gates.all()} | {self._session.project}
        if named:
            used |= {*configured.list_projects(os.environ, Path.home())}
        return tuple(sorted(used - {""})) or ("",)

    def at(self, place: str) -> Gated:
        """See protocol.HasPlaces."""
        project, _, account = place.partition(_AS)
        return self if self._at is None else self._at(project, account)

    def place_as(self, details: Details) -> str:
        """See protocol.HasIdentities."""
        given = dict(details)
        project = given.get("project") or self._session.project
        return f"{project}{_AS}{given['impersonate']}" if given.get("impersonate") else project

    def place_account(self) -> str:
        """See protocol.NamesAccounts: a place is a project, and so is an account."""
        return f"gcp:{self._session.project}{self._mark}"

    def place_of(self, account: str) -> str:
        """See protocol.NamesAccounts."""
        project, at, mark = account.removeprefix("gcp:").partition("@")
        return project if at + mark == self._mark else ""

    def needs_admission(self, candidate: Candidate) -> bool:
        """See protocol.PlansAdmission."""
        return access.needs_admission(candidate)

    def login_role(self, candidate: Candidate) -> str:
        """See protocol.ChecksLogins."""
        return ADMIN_ROLE if access.read(candidate).oslogin else ""

    def own_address(self, candidate: Candidate) -> str:
        """See protocol.AdmitsAddresses."""
        return self._caller.read()

    def change_addresses(
        self, name: str, token: str, candidate: Candidate, admitted: Mapping[str, str], withdrawn: Collection[str]
    ) -> None:
        """See protocol.AdmitsAddresses. A rule has no place for the ids of computers."""
        gate = self._gate(name, token)
        rules = gate.rules if gate is not None else tuple(one.request.target for one in self._rules())
        for rule in rules:
            if rule.rpartition("/")[2] == access.ssh_rule_name(name):
                self._wall.change_sources(rule, token, admitted, withdrawn)

    def stop(self, name: str) -> None:
        self._inner.stop(name)

    def start(self, name: str) -> None:
        self._inner.start(name)

    def _open(self, spec: SliceSpec, keys: SliceKeys) -> Gate | None:
        """Make what lets us in; None when nothing is needed. Again after a crash: what is there is seen to be right."""
        candidate, token = spec.candidate, spec.token.reveal()
        way, project = access.read(candidate), choices.project_of(candidate)
        network = candidate.detail("network", "default")
        rules = access.create_requests(way, spec, project, network)
        if not rules and way.way is Way.EXTERNAL and not way.oslogin:
            return None
        ends = access.end_requests(way, spec.name, project, network)
        gate = Gate(
            name=spec.name,
            token=token,
            project=project.reveal(),
            zone=choices.zone_of(candidate),
            way=way.way,
            jump=way.jump,
            rules=tuple(one.target for one in ends),
        )
        self._gates.put(gate)
        for rule in with_caller(rules, lambda: self._caller.read().removesuffix("/32")):
            self._wall.ensure(rule)
        if not way.oslogin:
            return gate
        login = OsLogin(self._session)
        profile = login.admit(login.account(), keys.user_public, gate.project, self._now() + KEY_SECONDS)
        return self._gates.put(replace(gate, user=profile.user, os_key=profile.key))

    def _close(self, gate: Gate) -> bool:
        """Whether nothing of it is left. Raises OrchError."""
        gone = self._remove(gate)
        if gone:
            self._forget(gate)
        return gone

    def _withdraw(self, name: str) -> None:
        """After a refusal, and nobody looks again: rules that are on their way out, or stay all the same, are found by
        their descriptions. See owned()."""
        with suppress(OrchError):
            gate = self._gates.read(name)
            if gate is not None:
                self._remove(gate)
                self._forget(gate)

    def _remove(self, gate: Gate) -> bool:
        """Whether none of its rules is left."""
        gone = [
            self._wall.remove(Request(service=access.SERVICE, method="DELETE", target=rule), gate.token)
            for rule in gate.rules
        ]
        return all(gone)

    def _forget(self, gate: Gate) -> None:
        others = {one.os_key for one in self._gates.all() if one.name != gate.name}
        if gate.os_key and gate.os_key not in others:  # the key is this computer's: other slices may need it
            OsLogin(self._session).forget(Profile(gate.user, gate.os_key))
        self._gates.drop(gate.name)

    def _led(self, gate: Gate, view: SliceView) -> SliceView:
        """The view with addresses that lead to the hosts. Hosts that stand on this computer need no way."""
        if self._session.loopback:
            return view
        names = self._inner.instance_names(gate.name) if gate.way is Way.IAP else ("",) * len(view.hosts)
        if gate.way is Way.IAP and ("" in names or len(names) != len(view.hosts)):
            return SliceView(
                state=SliceState.CREATING, reason="not every host has reported its name, by which IAP reaches it"
            )
        pairs = zip(view.hosts, names, strict=True)
        account = self._session.impersonated
        return replace(view, hosts=tuple(self._reached(gate, host, name, account) for host, name in pairs))

    @staticmethod
    def _reached(gate: Gate, host: HostAddress, instance: str, account: str) -> HostAddress:
        host = replace(host, user=gate.user or host.user)
        return reached(
            host, gate.access, name=gate.name, instance=instance, project=gate.project, zone=gate.zone, account=account
        )

    def _is_absent(self, name: str) -> bool:
        return self._inner.observe(name).state is SliceState.ABSENT

    def _is_ours(self, spec: SliceSpec) -> bool:
        """Whether machines are shown that were made for this very request. Raises OrchError."""
        installation = dict(spec.labels)[INSTALLATION].reveal()
        token = spec.token.reveal()
        return any(one.name == spec.name and one.intent == token for one in self._inner.owned(installation))

    def _gate(self, name: str, token: str) -> Gate | None:
        """Of two slices of one name it may be the other one's."""
        gate = self._gates.read(name)
        return None if gate is not None and token not in ("", gate.token) else gate

    def _rules(self, installation: str = "") -> list[OwnedRule]:
        used = {gate.project for gate in self._gates.all()}
        projects = ({self._session.project} if self._complete else used | {self._session.project}) - {""}
        return [
            rule
            for project in sorted(projects)
            for rule in self._wall.owned(project, installation, may_be_off=self._complete and project not in used)
        ]

    @cached_property
    def _wall(self) -> Firewall:
        return Firewall(self._session)


def _left(rule: OwnedRule) -> OwnedSlice:
    state = SliceState.FAILED  # of no use, and to be ended
    return OwnedSlice(
        name=rule.slice,
        cluster=rule.cluster,
        installation=rule.installation,
        state=state,
        created=rule.created,
        where="gcp",
        intent=rule.intent,
    )
