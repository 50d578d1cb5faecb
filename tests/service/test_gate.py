"""Links and sessions end by themselves, outlive the server, and end with what opened them."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import AccessError
from orchestrator.service.gate import IDLE_SECONDS, LINK_SECONDS, NOTE_SECONDS, SESSION_SECONDS, TOKEN_SECONDS, Gate
from orchestrator.service.oidc import Identity
from orchestrator.service.route import Role
from orchestrator.store.read import open_reader_at
from orchestrator.store.session_records import InvitationRecord
from orchestrator.store.store import Store
from orchestrator.store.token_records import TokenRecord, digest_token, make_token


class Time:
    def __init__(self) -> None:
        self.now = 1000.0


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORCH_HOME", str(tmp_path))
    Store(tmp_path / "orch.db").close()
    return tmp_path / "orch.db"


@pytest.fixture
def gate(store: Path, time: Time) -> Gate:
    return make_gate(store, time)


def make_gate(store: Path, time: Time, computer: str = "service") -> Gate:
    made = Gate(
        member="ada",
        token_file=store.parent / computer / "token",
        open_reader=lambda: open_reader_at(store),
        open_store=lambda doing: Store(store, lambda: time.now, doing=doing),
        clock=lambda: time.now,
    )
    made.read_token()
    return made


def open_session(gate: Gate) -> str:
    session = gate.open_session(gate.make_link())
    assert session is not None
    return session


@pytest.mark.parametrize(("age", "opens"), [(0, True), (LINK_SECONDS - 1, True), (LINK_SECONDS + 1, False)])
def test_a_link_opens_one_session_in_its_time(gate: Gate, time: Time, age: float, opens: bool) -> None:
    link = gate.make_link()
    time.now += age
    assert (gate.open_session(link) is not None) is opens
    assert gate.open_session(link) is None


def test_a_session_ends_without_use(gate: Gate, time: Time) -> None:
    session = open_session(gate)
    time.now += IDLE_SECONDS - 1
    assert gate.identify(session=session)
    time.now += IDLE_SECONDS - 1
    assert gate.identify(session=session), "it was used since"
    time.now += IDLE_SECONDS + 1
    assert gate.identify(session=session) is None


def test_a_session_ends_after_its_longest_time_however_much_it_is_used(gate: Gate, time: Time) -> None:
    session = open_session(gate)
    begun = time.now
    while time.now - begun <= SESSION_SECONDS - IDLE_SECONDS / 2:
        assert gate.identify(session=session)
        time.now += IDLE_SECONDS / 2
    time.now += IDLE_SECONDS / 2
    assert gate.identify(session=session) is None


def test_a_use_is_written_every_ten_minutes_and_is_no_event(gate: Gate, time: Time, store: Path) -> None:
    session, begun = open_session(gate), time.now
    with open_reader_at(store) as reader:
        events = len(reader.events_after(0, 1000))
    for age, noted in ((1.0, begun), (NOTE_SECONDS, begun), (NOTE_SECONDS + 1, begun + NOTE_SECONDS + 1)):
        time.now = begun + age
        assert gate.identify(session=session)
        with open_reader_at(store) as reader:
            found = reader.find_session(digest_token(session))
            assert found is not None and found.used == noted
            assert len(reader.events_after(0, 1000)) == events


def test_a_closed_session_and_what_is_none_open_nothing(gate: Gate) -> None:
    session = open_session(gate)
    gate.close_session(session)
    assert gate.identify(session=session) is None
    gate.close_session(session)
    gate.close_session("none")
    assert gate.identify() is gate.identify(session="") is gate.identify(bearer="x") is None


def test_a_new_session_ends_the_one_that_the_browser_had(gate: Gate) -> None:
    before = open_session(gate)
    after = gate.open_session(gate.make_link(), before)
    assert after is not None and after != before
    assert gate.identify(session=before) is None and gate.identify(session=after)


def test_a_restart_and_another_server_accept_the_same_session_until_its_token_is_revoked(
    gate: Gate, time: Time, store: Path
) -> None:
    token = make_token()
    with Store(store, lambda: time.now) as opened:
        opened.add_token(
            TokenRecord(digest=digest_token(token), name="t", member="bob", role="viewer", created=1.0, expires=9e9)
        )
    other = make_gate(store, time, "other")
    session = other.open_session(gate.make_link(token))
    assert session is not None
    for one in (gate, other, make_gate(store, time)):
        person = one.identify(session=session)
        assert person is not None and (person.name, person.role.name, person.session) == ("bob", "VIEWER", True)
    own = open_session(gate)
    assert make_gate(store, time).identify(session=own), "this computer's, after a restart"
    assert other.identify(session=own) is None, "the token of a computer opens its own server"
    with Store(store, lambda: time.now) as opened:
        opened.revoke_entry("t")
    assert [one.identify(session=session) for one in (gate, other)] == [None, None]


def test_an_invitation_becomes_a_token_and_a_session_once(gate: Gate, time: Time, store: Path) -> None:
    with Store(store, lambda: time.now) as opened:
        opened.add_invitation(invitation("secret"))
        opened.add_invitation(invitation("late", expires=time.now))
        opened.add_invitation(invitation("revoked"))
        opened.revoke_entry("revoked")
    joined = gate.accept_invitation("secret", "")
    for person in (gate.identify(bearer=joined.token), gate.identify(session=joined.session)):
        assert person is not None and (person.name, person.role.name) == ("bob", "MEMBER")
    for wrong in ("secret", "late", "revoked", "none", ""):
        with pytest.raises(AccessError):
            gate.accept_invitation(wrong, "")
    with Store(store, lambda: time.now) as opened:
        opened.revoke_member("bob")
    assert gate.identify(bearer=joined.token) is gate.identify(session=joined.session) is None


def test_a_token_for_a_computer_ends_with_what_its_person_entered_by(gate: Gate, time: Time, store: Path) -> None:
    begun = time.now
    identity = Identity(issuer="https://login.example.org", subject="1", role=Role.MEMBER, suggestion="")
    by_provider = gate.bind_identity(gate.keep_identity(identity), "carl", None, "")
    with Store(store, lambda: time.now) as opened:
        opened.add_invitation(invitation("short"))
    by_token = gate.accept_invitation("short", "").session
    time.now += IDLE_SECONDS
    assert gate.limit_token(by_provider) == begun + SESSION_SECONDS, "not a week after each approval"
    assert gate.limit_token(by_token) == begun + 90 * 86_400
    assert gate.limit_token(open_session(gate)) == time.now + TOKEN_SECONDS
    assert gate.limit_token("none") == time.now


def invitation(secret: str, expires: float = 9e9) -> InvitationRecord:
    return InvitationRecord(
        digest=digest_token(secret),
        name=secret,
        member="bob",
        role="member",
        token_days=90,
        created=1.0,
        expires=expires,
    )


def test_before_a_token_exists_none_is_accepted(gate: Gate) -> None:
    assert gate.identify(bearer="") is gate.identify(bearer="anything") is None
    token = gate.read_token()
    assert gate.identify(bearer=token) and gate.identify(bearer=token + "x") is None
    assert gate.read_token() == token, "it stays the same"
