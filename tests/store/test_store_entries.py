"""What lets people in: each secret works once, however many come at the same time, and ends when it is taken back."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.errors import AccessError, ConflictError, NotFoundError, OrchError
from orchestrator.store.location import Location
from orchestrator.store.read import open_reader_at
from orchestrator.store.session_records import (
    EntryCode,
    InvitationRecord,
    SessionRecord,
    SignInRecord,
    digest_identity,
)
from orchestrator.store.store import Store
from orchestrator.store.token_records import TokenRecord
from orchestrator.store.trust_records import TrustRule

NOW = time.time()
INVITATION = InvitationRecord(
    digest="i", name="laptop", member="ada", role="member", token_days=90, created=NOW, expires=NOW + 1000
)
RULE = TrustRule(
    uid="r", name="ci", issuer="https://ci.example.org", claims={"sub": "s"}, member="ci", role="member", project="",
    seconds=900, created=NOW,
)  # fmt: skip
THREADS = 20


def sign_in(subject: str, member: str) -> SignInRecord:
    issuer = "https://login.example.org"
    identity = digest_identity(issuer, subject)
    return SignInRecord(identity=identity, issuer=issuer, subject=subject, member=member, created=NOW)


def race(location: Location, act: Callable[[Store, int], Any]) -> list[Any]:
    """Return what each of 20 threads got, each with its store; an error as its class."""

    def one(number: int) -> Any:
        with Store(location, lambda: NOW) as store:
            try:
                return act(store, number)
            except OrchError as error:
                return type(error)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(one, range(THREADS)))


def test_a_secret_that_many_record_together_is_that_of_one(location: Location) -> None:
    def make_token(store: Store, number: int) -> TokenRecord:
        name, member = f"n{number}", f"m{number}"
        return store.add_token(
            TokenRecord(digest="t", name=name, member=member, role="member", created=NOW, expires=NOW + 1000)
        )

    def invite(store: Store, number: int) -> InvitationRecord:
        return store.add_invitation(replace(INVITATION, name=f"n{number}", member=f"m{number}"))

    tokens, invitations = (race(location, act) for act in (make_token, invite))
    with Store(location, lambda: NOW) as store:
        assert [one for one in tokens if one is not ConflictError] == list(store.tokens())
        assert [one for one in invitations if one is not ConflictError] == list(store.invitations())


def test_a_name_that_many_tokens_ask_for_together_is_of_one(location: Location) -> None:
    Store(location, lambda: NOW).close()

    def add(store: Store, number: int) -> str:
        one = TokenRecord(
            digest=f"t{number}", name="same", member="ada", role="member", created=NOW, expires=NOW + 1000
        )
        return store.add_token(one).name

    found = race(location, add)
    assert (found.count("same"), found.count(ConflictError)) == (1, THREADS - 1)


def test_a_name_that_many_invitations_or_rules_ask_for_together_is_of_one(location: Location) -> None:
    Store(location, lambda: NOW).close()

    def invite(store: Store, number: int) -> str:
        return store.add_invitation(replace(INVITATION, digest=f"i{number}")).name

    def trust(store: Store, number: int) -> str:
        store.add_trust_rule(replace(RULE, uid=f"r{number}"))
        return "ci"

    for act, name in ((invite, "laptop"), (trust, "ci")):
        found = race(location, act)
        assert (found.count(name), found.count(ConflictError)) == (1, THREADS - 1)
    with Store(location, lambda: NOW + 2000) as store:
        assert invite(store, 99) == "laptop", "the name of an invitation that has expired is free"


def test_computers_of_one_name_that_are_let_in_together_get_different_ones(location: Location) -> None:
    one = TokenRecord(digest="t", name="laptop", member="ada", role="member", created=NOW, expires=NOW + 1000)
    with Store(location, lambda: NOW) as store:
        for number in range(THREADS // 2):
            store.add_invitation(replace(INVITATION, digest=f"i{number}", name=f"own{number}"))

    def let_in(store: Store, number: int) -> str:
        if number < THREADS // 2:
            return store.accept_invitation(f"i{number}", f"t{number}").name
        return store.add_computer_token(replace(one, digest=f"t{number}")).name

    assert len(set(race(location, let_in))) == THREADS


def test_a_condition_that_many_note_together_is_one_event(location: Location) -> None:
    Store(location, lambda: NOW).close()
    found = race(location, lambda store, _: store.record_condition("c", "waits", "waiting: job c/1"))
    assert sorted(found) == [False] * (THREADS - 1) + [True]


def test_an_invitation_that_many_open_together_makes_one_token(location: Location) -> None:
    with Store(location, lambda: NOW) as store:
        store.add_invitation(INVITATION)
    found = race(location, lambda store, number: store.accept_invitation("i", f"t{number}").digest)
    (made,) = [one for one in found if isinstance(one, str)]
    assert found.count(AccessError) == THREADS - 1
    with open_reader_at(location) as reader:
        assert [one.digest for one in reader.tokens()] == [made]
        assert [one.state for one in reader.invitations()] == ["used"]


def test_a_code_that_many_use_together_works_once(location: Location) -> None:
    with Store(location, lambda: NOW) as store:
        store.keep_entry_code(EntryCode(digest="c", kind="link", details="{}", until=NOW + 1000))
    found = race(location, lambda store, _: store.take_entry_code("c", "link") is not None)
    assert sorted(found) == [False] * (THREADS - 1) + [True]


def test_a_name_that_many_choose_together_is_of_one(location: Location) -> None:
    Store(location, lambda: NOW).close()
    found = race(location, lambda store, number: store.bind_sign_in(sign_in(f"s{number}", "bob"), proven=False))
    assert (found.count(None), found.count(ConflictError)) == (1, THREADS - 1)
    one = race(location, lambda store, number: store.bind_sign_in(sign_in("same", f"carl{number}"), proven=False))
    assert (one.count(None), one.count(ConflictError)) == (1, THREADS - 1)


def test_an_invitation_that_was_revoked_or_is_too_old_opens_nothing(location: Location) -> None:
    with Store(location, lambda: NOW) as store:
        store.add_invitation(INVITATION)
        with pytest.raises(ConflictError):
            store.add_invitation(replace(INVITATION, digest="other"))
        assert "invitation 'laptop' of ada" in store.revoke_entry("laptop")
        store.add_invitation(replace(INVITATION, digest="old", expires=NOW - 1))
        for digest in ("i", "old", "none"):
            with pytest.raises(AccessError):
                store.accept_invitation(digest, "t")
        assert store.tokens() == ()
        with pytest.raises(NotFoundError):
            store.revoke_entry("laptop")


def test_the_name_of_a_member_is_not_chosen_by_another_person(location: Location) -> None:
    with Store(location, lambda: NOW) as store:
        token = TokenRecord(digest="t", name="t", member="ada", role="viewer", created=NOW, expires=NOW + 1)
        store.add_token(token)
        store.add_invitation(replace(INVITATION, member="invited"))
        store.open_cluster("c", "")
        store.bind_sign_in(sign_in("carl", "carl"), proven=False)
        for name in ("ada", "invited", "carl", store.member):
            with pytest.raises(ConflictError, match="is taken"):
                store.bind_sign_in(sign_in("mallory", name), proven=False)
        store.bind_sign_in(sign_in("her", "ada"), proven=True)  # a session of ada proves it
        with pytest.raises(ConflictError):
            store.bind_sign_in(sign_in("mallory", "ada"), proven=True)  # while her sign-in counts
        with pytest.raises(ConflictError):
            store.bind_sign_in(sign_in("her", "other"), proven=False)  # one person, one name


def test_a_revoked_person_returns_only_by_an_invitation(location: Location) -> None:
    with Store(location, lambda: NOW) as store:
        store.bind_sign_in(sign_in("ada", "ada"), proven=False)
        assert store.revoke_entry("ada@login.example.org") == "the sign-in of ada"
        for name in ("ada", "eva"):
            with pytest.raises(ConflictError):
                store.bind_sign_in(sign_in("ada", name), proven=False)
        store.bind_sign_in(sign_in("ada", "ada"), proven=True)
        store.revoke_entry("ada@login.example.org")
        store.bind_sign_in(sign_in("new", "ada"), proven=True)  # such as after a change of the provider
        counting = [one.subject for one in store.sign_ins() if one.revoked is None]
        assert counting == ["new"]


def test_everything_of_a_member_is_taken_back_together(location: Location) -> None:
    with Store(location, lambda: NOW) as store:
        store.add_token(TokenRecord(digest="t", name="t", member="ada", role="viewer", created=NOW, expires=NOW + 99))
        store.add_token(TokenRecord(digest="o", name="o", member="bob", role="viewer", created=NOW, expires=NOW + 99))
        store.add_invitation(INVITATION)
        store.bind_sign_in(sign_in("ada", "ada"), proven=True)
        assert store.revoke_member("ada") == 3
        with pytest.raises(NotFoundError):
            store.revoke_member("ada")
        assert [one.name for one in store.tokens() if one.counts_at(NOW)] == ["o"]


def test_a_session_is_read_as_it_was_written(location: Location) -> None:
    session = SessionRecord(digest="s", member="ada", role="owner", identity="p", begun=NOW, used=NOW)
    with Store(location, lambda: NOW + 700) as store:
        store.begin_session(session)
        store.note_session_use("s")
        store.end_session("s")
        store.end_session("s")
    with open_reader_at(location) as reader:
        assert reader.find_session("s") == replace(session, used=NOW + 700, ended=NOW + 700)
        assert [one.kind for one in reader.events_after(0, 10)] == ["session", "session"]


def test_the_name_of_a_computer_is_that_of_no_token_and_no_open_invitation(location: Location) -> None:
    token = TokenRecord(digest="t", name="laptop", member="ann", role="member", created=NOW, expires=NOW + 1000)
    with Store(location, lambda: NOW) as store:
        store.add_token(token)
        store.add_invitation(replace(INVITATION, name="laptop-2"))
        assert store.add_computer_token(replace(token, digest="t3")).name == "laptop-3"
        store.add_invitation(replace(INVITATION, digest="other"))
        assert store.accept_invitation("other", "t2").name == "laptop-4", "laptop-2 is the name of an open invitation"
