"""Whom the service lets in to which hosts: the rules, over a real store and without a server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from support.service_site import CANDIDATE, record_run

from orchestrator.acting import acting_as
from orchestrator.cloud_access import CloudAccess
from orchestrator.errors import AccessError, ConflictError, OrchError
from orchestrator.hosts import HostAddress, OwnSsh
from orchestrator.remote.keys import make_host_key
from orchestrator.service import host_access
from orchestrator.service.gate import Gate
from orchestrator.service.host_access import AccessRequest, grant_access
from orchestrator.service.member_rules import MemberRules
from orchestrator.service.route import Answer, Call, Person, Role
from orchestrator.service.site import Site
from orchestrator.slices import Candidate, Owned
from orchestrator.store.leases import Lease
from orchestrator.store.store import Store
from orchestrator.store.token_records import TokenRecord

RENTED = replace(CANDIDATE, details=(("firewall", "none"),))
KEY = make_host_key()[1]
HOST = HostAddress(
    rank=0, alias="mine-1-0", host="192.0.2.7", port=22, user="orch", identity_file=Path("/k"), known_hosts=Path("/n"),
    internal_ip="10.0.0.2", host_key=KEY,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Place:
    """A store with a cluster 'mine' of ada, and what its service does."""

    database: Path
    rules: MemberRules

    def ask(self, name: str = "ada", role: Role = Role.MEMBER, key: str = KEY, **more: Any) -> Answer:
        """Ask as a member with a token of theirs, or as the server's own programs."""
        token = ""
        with Store(self.database) as store:
            if role < Role.ADMIN:
                token = f"{name}-{role.name}"
                if not any(one.digest == token for one in store.tokens()):
                    store.add_token(
                        TokenRecord(
                            digest=token, name=token, member=name, role=role.name.lower(), created=1.0, expires=9e9
                        )
                    )
        site = Site(location=self.database, project="default", access=CloudAccess(), member_rules=self.rules)
        gate = Gate(
            member="root",
            token_file=self.database,
            open_reader=site.open_reader,
            open_store=lambda _: Store(self.database),
        )
        request = AccessRequest.model_validate({"public_key": key} | more)
        person = Person(name=name, role=role, token=token)
        return grant_access(Call(site=site, gate=gate, person=person, body=request, path={"name": "mine"}))


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Place]:
    """Return a place whose cluster has a host."""
    monkeypatch.setenv("ORCH_HOME", str(tmp_path))
    monkeypatch.delenv("ORCH_STORE", raising=False)

    def made(host: HostAddress | None = HOST, candidate: Candidate = RENTED, **rules: Any) -> Place:
        with acting_as("ada"), Store(tmp_path / "state" / "orch.db") as store:
            cluster = record_run(store, "mine", "run", candidate=candidate)
            lease = store.acquire("cluster:mine", "a test")
            assert isinstance(lease, Lease)
            store.note_hosts(lease, cluster, (host,) if host is not None else ())
            store.release(lease)
        return Place(database=tmp_path / "state" / "orch.db", rules=MemberRules(**rules))

    return made


def test_the_same_key_is_one_order_until_half_of_its_time_is_over(make: Callable[..., Place]) -> None:
    place = make()
    first, again = place.ask().document, place.ask().document
    assert first == again and first["hosts"][0]["host_key"] == KEY
    assert place.ask(key=make_host_key()[1]).document["order"] != first["order"]
    assert place.ask("olga", Role.OWNER).document["order"] != first["order"]
    assert place.ask(seconds=80_000).document["order"] == first["order"], "it lasts for half of that"


@pytest.mark.parametrize("role", [Role.MEMBER, Role.OWNER])
def test_no_member_enters_the_computer_of_the_service_unless_it_is_allowed(
    make: Callable[..., Place], role: Role
) -> None:
    local = replace(RENTED, provider="local")
    with pytest.raises(AccessError, match="processes of the service's computer"):
        make(candidate=local).ask(role=role)


def test_who_may_use_the_computer_of_the_service_enters_it(make: Callable[..., Place]) -> None:
    place = make(candidate=replace(RENTED, provider="local"), allowed=frozenset({"infra:local"}))
    assert place.ask().document["cluster"] == "mine"
    assert replace(place, rules=MemberRules()).ask("root", Role.ADMIN).document["cluster"] == "mine"


def test_whoever_runs_the_service_may_let_no_member_in(make: Callable[..., Place]) -> None:
    place = make(ssh=False)
    for role in (Role.MEMBER, Role.OWNER):
        with pytest.raises(AccessError, match="do not log in to hosts here"):
            place.ask(role=role)
    assert place.ask("root", Role.ADMIN).document["cluster"] == "mine"


@pytest.mark.parametrize(
    ("host", "market", "what"),
    [
        (HOST, Owned(), "entered with their owner's keys"),
        (replace(HOST, proxy=("gcloud", "x")), None, "reached by gcloud"),
        (replace(HOST, jump=HOST), None, "reached by a jump host"),
        (replace(HOST, host_key=None), None, "reached there alone"),
        (replace(HOST, own=OwnSsh()), None, "reached there alone"),
        (None, None, "has no hosts now"),
    ],
)
def test_hosts_that_a_key_does_not_open_are_refused(
    make: Callable[..., Place], host: HostAddress | None, market: Owned | None, what: str
) -> None:
    with pytest.raises(OrchError, match=what):
        make(host, replace(RENTED, market=market or RENTED.market)).ask()


def test_a_member_has_a_bounded_number_of_keys(make: Callable[..., Place], monkeypatch: pytest.MonkeyPatch) -> None:
    place = make()
    monkeypatch.setattr(host_access, "MOST_OF_MEMBER", 2)
    for _ in range(2):
        place.ask(key=make_host_key()[1])
    with pytest.raises(ConflictError, match="with 2 keys already"):
        place.ask(key=make_host_key()[1])
    assert place.ask("olga", Role.OWNER).document["cluster"] == "mine", "another member is not concerned"
