"""Tokens, invitations and settings of projects through the service, by the rules of roles and projects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from service_ci import Server, serve_ci
from support.orch_process import Orch

from orchestrator.client.http import Client
from orchestrator.service.entrance import Entrance
from orchestrator.service.openapi import load_schema
from orchestrator.service.route import Medium, Role
from orchestrator.service.routes import ROUTES
from orchestrator.store.read import open_reader_at
from orchestrator.store.session_records import SignInRecord
from orchestrator.store.store import Store
from orchestrator.store.token_parents import MOST_PARENTS
from orchestrator.store.token_records import TokenRecord, digest_token, make_token
from orchestrator.store.trust_records import TrustRule

PEOPLE = {"viewer": "", "member": "", "owner": "", "owner-of-vision": "vision", "member-of-vision": "vision"}
ARN = "arn:aws:iam::111122223333:role/orch-vision"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "state" / "orch.db"


@pytest.fixture
def server(database: Path) -> Iterator[Server]:
    database.parent.mkdir()
    rule = TrustRule(
        uid="r" * 16, name="release", issuer="https://ci.example.org", claims={"sub": "job"}, member="ci-release",
        role="owner", project="", seconds=3600, created=1.0, expires=None,
    )  # fmt: skip
    with Store(database) as store:
        for name, project in PEOPLE.items():
            store.add_token(make_record(name, role=name.partition("-")[0], project=project))
        store.add_trust_rule(rule)
        store.add_token(make_record("job", role="owner", parent=rule.subject))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ORCH_HOME", str(database.parent.parent))  # a service changes the store of its environment
        with serve_ci(database, database.parent) as served:
            yield served


def make_record(name: str, **more: str) -> TokenRecord:
    record = {"digest": digest_token(f"orch_{name}"), "name": name, "member": name, "created": 1.0, "expires": 1e11}
    return TokenRecord(**(record | more))  # type: ignore[arg-type]  # names and texts


def send(server: Server, who: str, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
    content = b"" if body is None else json.dumps(body).encode()
    more = {} if body is None else {"content_type": "application/json"}
    return server.ask(path, method, content, authorization=f"Bearer {who}", **more)


def create(server: Server, who: str, secret: str = "", **body: Any) -> tuple[int, Any]:
    digest = digest_token(secret or make_token())
    return send(server, f"orch_{who}", "POST", "/v1/tokens", {"digest": digest, "name": "made"} | body)


def names(server: Server, who: str) -> set[str]:
    status, document = send(server, who, "GET", "/v1/tokens")
    assert status == 200
    Draft202012Validator(load_schema("tokens")).validate(document)
    return {one["name"] for one in document["tokens"]}


def test_a_member_makes_and_takes_back_their_own_token(server: Server, database: Path) -> None:
    secret = make_token()
    status, made = create(server, "member", secret)
    assert status == 200, made
    again = create(server, "member", secret, days=366)[1]
    assert again["tokens"] == made["tokens"], "what is on record"
    Draft202012Validator(load_schema("tokens")).validate(made)
    assert [(one["name"], one["member"], one["role"]) for one in made["tokens"]] == [("made", "member", "member")]
    assert create(server, "member", secret)[0] == 200, "the same request again"
    assert names(server, secret) == {"member", "made"}
    assert names(server, "orch_viewer") == {"viewer"} and "release" in names(server, "orch_owner")
    assert create(server, "owner", secret)[0] == 409, "another one's token"
    assert create(server, "viewer", name="made", role="viewer")[0] == 409, "another one's name"
    with open_reader_at(database) as reader:
        events = [one for one in reader.events(None) if "'made'" in one.what]
    assert len(events) == 1 and events[0].kind == "token" and events[0].actor.startswith("member@")
    assert secret not in json.dumps([str(one) for one in events])
    assert send(server, "orch_viewer", "DELETE", "/v1/tokens?name=made")[0] == 404
    status, taken = send(server, "orch_member", "DELETE", "/v1/tokens?name=made")
    assert (status, [one["name"] for one in taken["tokens"]]) == (200, ["made"])
    assert send(server, secret, "GET", "/v1/tokens")[0] == 401
    assert send(server, "orch_member", "DELETE", "/v1/tokens?name=made")[0] == 404
    assert create(server, "member", secret)[0] == 409, "what was taken back does not count again"
    assert send(server, "orch_member", "DELETE", "/v1/tokens")[0] == 400


def test_an_own_token_ends_with_the_one_that_made_it(server: Server) -> None:
    first, second, others = make_token(), make_token(), make_token()
    assert create(server, "owner", first, name="first", role="owner")[0] == 200
    status, _ = send(server, first, "POST", "/v1/tokens", {"digest": digest_token(second), "name": "second"})
    assert status == 200
    body = {"digest": digest_token(others), "name": "others", "member": "ada"}
    assert send(server, first, "POST", "/v1/tokens", body)[0] == 200
    assert send(server, second, "GET", "/v1/me")[0] == 200
    assert send(server, "orch_owner", "DELETE", "/v1/tokens?name=first")[0] == 200
    assert send(server, second, "GET", "/v1/me")[0] == 401
    assert send(server, others, "GET", "/v1/me")[1]["member"] == "ada", "that of another member stays"


@pytest.mark.parametrize(
    ("who", "body", "status"),
    [
        ("member", {"member": "ada"}, 403),
        ("member", {"role": "owner"}, 403),
        ("viewer", {}, 403),
        ("viewer", {"role": "viewer"}, 200),
        ("owner", {"member": "ada", "role": "owner", "project": "vision"}, 200),
        ("owner-of-vision", {"member": "ada"}, 200),
        ("owner-of-vision", {"member": "ada", "project": "speech"}, 403),
        ("member-of-vision", {"project": "default"}, 403),
        ("job", {"member": "ada"}, 403),
        ("job", {}, 200),
        ("member", {"name": "two words"}, 400),
        ("owner", {"member": "me"}, 400),
        ("member", {"project": "No"}, 400),
        ("member", {"days": 0}, 400),
        ("member", {"digest": "x"}, 400),
        ("member", {"parent": ""}, 400),
    ],
)
def test_no_member_gives_more_than_they_have(server: Server, who: str, body: dict[str, Any], status: int) -> None:
    found, document = create(server, who, **body)
    assert found == status, document
    if status == 200:
        assert document["tokens"][0]["project"] == (PEOPLE.get(who) or body.get("project") or None)
    else:
        assert document["next_step"]


def test_owners_of_a_project_see_and_take_back_what_is_of_it(server: Server) -> None:
    assert names(server, "orch_owner-of-vision") == {"owner-of-vision", "member-of-vision"}
    assert send(server, "orch_owner-of-vision", "DELETE", "/v1/tokens?name=member")[0] == 404
    assert send(server, "orch_owner-of-vision", "DELETE", "/v1/tokens?member=member-of-vision")[0] == 200
    assert send(server, "orch_member-of-vision", "GET", "/v1/me")[0] == 401


def test_owners_invite_and_members_do_not(server: Server) -> None:
    secret = make_token()
    body = {"digest": digest_token(secret), "name": "ada-laptop", "member": "ada"}
    assert send(server, "orch_member", "POST", "/v1/invitations", body)[0] == 403
    for _ in range(2):
        status, made = send(server, "orch_owner-of-vision", "POST", "/v1/invitations", body)
        assert status == 200 and made["tokens"][0]["project"] == "vision", made
    joined = server.gate.accept_invitation(secret, "")
    person = server.gate.identify(bearer=joined.token)
    assert person is not None and (person.name, person.project) == ("ada", "vision")
    assert send(server, "orch_owner-of-vision", "POST", "/v1/invitations", body)[0] == 409, "it was used"


def invite(server: Server, who: str, secret: str, **body: Any) -> tuple[int, Any]:
    named = {"digest": digest_token(secret), "name": "invited"} | body
    return send(server, f"orch_{who}", "POST", "/v1/invitations", named)


@pytest.mark.parametrize(("who", "member", "status"), [
    ("job", "job", 403),
    ("job", "ada", 403),
    ("owner", "owner", 403),
    ("owner", "ada", 200),
])  # fmt: skip
def test_no_token_leaves_an_invitation_for_its_own_member(server: Server, who: str, member: str, status: int) -> None:
    found, document = invite(server, who, make_token(), member=member)
    assert found == status, document
    assert status == 200 or document["next_step"]


def test_the_server_s_own_computer_invites_its_member(server: Server) -> None:
    admin = server.gate.read_token()
    body = {"digest": digest_token(make_token()), "name": "invited", "member": "boss"}
    assert send(server, admin, "POST", "/v1/invitations", body)[0] == 200, "that token never ends"


def test_a_token_takes_back_nothing_above_it(server: Server) -> None:
    reading, equal = make_token(), make_token()
    assert create(server, "member", reading, name="reading", role="viewer")[0] == 200
    assert create(server, "member", equal, name="equal")[0] == 200
    for secret in (reading, equal):
        for named in ("name=member", "member=member"):
            status, problem = send(server, secret, "DELETE", f"/v1/tokens?{named}")
            assert status == 403 and problem["next_step"], problem
    assert send(server, reading, "DELETE", "/v1/tokens?name=equal")[0] == 403, "a higher role"
    assert send(server, "orch_member", "GET", "/v1/me")[0] == 200
    assert send(server, equal, "DELETE", "/v1/tokens?name=reading")[0] == 200
    assert send(server, equal, "DELETE", "/v1/tokens?name=equal")[0] == 200, "itself"
    assert send(server, "orch_member", "DELETE", "/v1/tokens?member=member")[0] == 200


def test_a_member_takes_back_no_sign_in_of_theirs(server: Server, database: Path) -> None:
    known = SignInRecord(identity="i", issuer="https://id.example.org", subject="s", member="member", created=1.0)
    with Store(database) as store:
        store.bind_sign_in(known, proven=True)
    assert send(server, "orch_member", "DELETE", "/v1/tokens?name=member@id.example.org")[0] == 403, "its role varies"
    assert send(server, "orch_owner", "DELETE", "/v1/tokens?name=member@id.example.org")[0] == 200


@pytest.mark.parametrize(("member", "status"), [
    ("owner", 403),  # of every project
    ("boss", 403),  # whose server it is
    ("elsewhere", 403),
    ("signed-in", 403),
    ("member-of-vision", 200),
    ("new", 200),
])  # fmt: skip
def test_owners_of_a_project_act_for_its_members_alone(
    server: Server, database: Path, member: str, status: int
) -> None:
    known = SignInRecord(identity="i", issuer="https://id.example.org", subject="s", member="signed-in", created=1.0)
    with Store(database) as store:
        store.add_token(make_record("elsewhere", role="viewer", project="speech"))
        store.bind_sign_in(known, proven=True)
    found, document = create(server, "owner-of-vision", member=member, role="owner")
    assert found == status, document
    assert invite(server, "owner-of-vision", make_token(), member=member)[0] == status
    assert create(server, "owner", name="any", member=member)[0] == 200, "owners of every project do"


def test_a_token_counts_as_long_as_what_it_ends_with(server: Server) -> None:
    first, second = make_token(), make_token()
    assert create(server, "member", first, name="first")[0] == 200
    assert send(server, first, "POST", "/v1/tokens", {"digest": digest_token(second), "name": "second"})[0] == 200
    assert send(server, "orch_member", "DELETE", "/v1/tokens?name=first")[0] == 200
    listed = send(server, "orch_member", "GET", "/v1/tokens")[1]["tokens"]
    assert {one["name"]: one["counts"] for one in listed} == {"member": True, "first": False, "second": False}


def make_own(server: Server, who: str, name: str, **body: Any) -> tuple[str, int, Any]:
    """Make a token with another one; return its secret, the status and the document."""
    secret = make_token()
    return secret, *send(server, who, "POST", "/v1/tokens", {"digest": digest_token(secret), "name": name} | body)


def test_a_chain_of_tokens_is_short_and_none_outlives_its_maker(server: Server) -> None:
    secret, expires = "orch_member", ""
    for number in range(MOST_PARENTS):
        days = 300 if number else 2
        secret, status, document = make_own(server, secret, f"n{number}", days=days)
        assert status == 200, document
        assert expires in ("", document["tokens"][0]["expires"])
        expires = document["tokens"][0]["expires"]
        assert send(server, secret, "GET", "/v1/me")[0] == 200
    _, status, problem = make_own(server, secret, "further")
    assert status == 403 and "makes no other token" in problem["title"] and problem["next_step"], problem


def test_the_name_of_a_token_that_ended_with_its_parent_is_free(server: Server) -> None:
    first = make_own(server, "orch_member", "first")[0]
    second = make_own(server, first, "second")[0]
    assert make_own(server, "orch_owner", "second")[1] == 409
    assert send(server, "orch_member", "DELETE", "/v1/tokens?name=first")[0] == 200
    assert send(server, second, "GET", "/v1/me")[0] == 401
    again, status, document = make_own(server, "orch_owner", "second", role="viewer")
    assert status == 200, document
    assert send(server, "orch_owner", "DELETE", "/v1/tokens?name=second")[0] == 200
    assert send(server, again, "GET", "/v1/me")[0] == 401


def test_owners_of_every_project_set_as_whom_clouds_are_called(server: Server, database: Path) -> None:
    path, body = "/v1/projects/vision/settings", {"key": "aws.role_arn", "value": ARN}
    for who in ("viewer", "member", "owner-of-vision", "member-of-vision"):
        assert send(server, f"orch_{who}", "PUT", path, body)[0] == 403, who
        assert send(server, f"orch_{who}", "DELETE", f"{path}?key=aws.role_arn")[0] == 403, who
    status, shown = send(server, "orch_owner", "PUT", path, body)
    assert status == 200 and send(server, "orch_owner", "PUT", path, body) == (200, shown), "the same request again"
    Draft202012Validator(load_schema("config-list")).validate(shown)
    assert {one["key"]: one["value"] for one in shown["keys"]}["aws.role_arn"] == ARN
    with open_reader_at(database) as reader:
        events = [one for one in reader.events(None) if one.kind == "setting"]
    assert len(events) == 1 and events[0].actor.startswith("owner@")
    assert send(server, "orch_member-of-vision", "GET", path) == (200, shown)
    assert send(server, "orch_member-of-vision", "GET", "/v1/projects/default/settings")[0] == 404
    assert send(server, "orch_owner", "PUT", path, {"key": "limits.max_hours", "value": "1"})[0] == 400
    assert send(server, "orch_owner", "PUT", path, {"key": "aws.role_arn", "value": "no"})[0] == 400
    assert send(server, "orch_owner", "PUT", "/v1/projects/No/settings", body)[0] == 400
    assert send(server, "orch_owner", "DELETE", f"{path}?key=aws.role_arn")[0] == 200
    assert send(server, "orch_owner", "DELETE", f"{path}?key=aws.role_arn")[0] == 404


def test_every_change_of_a_program_says_which_event_it_writes() -> None:
    own = {"plan", "order-create", "access", "tree-send"}  # nothing, an order, or files
    for route in ROUTES:
        changes = route.method != "GET" and route.medium is Medium.JSON and route.role > Role.ANYONE
        assert bool(route.audit) == (changes and route.name not in own), route.name


@pytest.mark.slow
def test_the_commands_have_the_same_words_through_a_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = tmp_path / "state" / "orch.db"
    database.parent.mkdir()
    monkeypatch.setenv("ORCH_HOME", str(tmp_path))
    with Store(database) as store:
        store.add_token(make_record("owner", role="owner"))
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    with serve_ci(database, tmp_path, Entrance()) as server:
        url = f"http://127.0.0.1:{server.port}"
        here = Orch(tmp_path / "here")
        served = Orch(tmp_path / "there", {"ORCH_SERVER": url, "ORCH_TOKEN": "orch_owner"})
        commands = (
            ("token", "create", "nightly", "--member", "ada"),
            ("token", "create", "nightly", "--member", "bob"),
            ("token", "invite", "bob-laptop", "--member", "bob", "--url", url),
            ("token", "revoke", "nightly"),
            ("token", "revoke", "nightly"),
            ("token", "revoke", "--member", "bob"),
            ("token", "revoke"),
            ("config", "set", "aws.role_arn", ARN, "--project", "vision"),
            ("config", "list", "--project", "vision"),
            ("config", "unset", "aws.role_arn", "--project", "vision"),
            ("config", "unset", "aws.role_arn", "--project", "vision"),
        )
        for words in commands:
            mine, its = here(*words), served(*words)
            said = [re.sub(r"until [\d-]+ [\d:]+", "", done.stderr) for done in (mine, its)]
            assert (mine.returncode, said[0]) == (its.returncode, said[1]), words
            assert mine.stdout == its.stdout or words[1] in ("create", "invite"), words
        made = served("token", "create", "mine")
        assert made.returncode == 0 and "it ends with the token that this computer has" in made.stderr, made.stderr
        listed = served("token")
        assert "bob-laptop" in listed.stdout and "revoked" in listed.stdout
        refused = served("token", "trust", "x", "--issuer", "github", "--claim", "repository=a/b")
        assert refused.returncode == 2 and "`orch token trust` does not work through a service" in refused.stderr
        with Client(url, made.stdout.strip()) as client:
            assert client.show_member()["member"] == "owner"
