"""OS Login: our client, and the real gcloud, against the simulated service; each rule of the service by its name."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from access_support import GCLOUD, PROJECT, Answer, run_gcloud
from google.auth.credentials import AnonymousCredentials
from support.served import served

from orch_fronts.google.oslogin import RULES, OsLoginFront
from orch_fronts.google.status import Refusal
from orchestrator.errors import AccessError, CloudError, OrchError
from orchestrator.providers.google.oslogin import LOCAL_ACCOUNT, OsLogin, Profile
from orchestrator.providers.google.session import Session
from orchestrator.remote.keys import make_host_key

ME = "a.person@example.com"
KEY = make_host_key()[1]
OTHER = make_host_key()[1]


class Service:
    """now: the clock of the service. refuses: the next answers, each an error or None for none."""

    def __init__(self) -> None:
        self.now = time.time()
        self.front = OsLoginFront(lambda: self.now)
        self.url = ""
        self.refuses: list[Answer] = []
        self.seen: list[tuple[str, str, Any]] = []

    def handle(self, method: str, target: str, raw: bytes) -> tuple[int, dict[str, Any]]:
        self.seen.append((method, target, json.loads(raw) if raw.strip() else {}))
        if self.refuses:
            answer = self.refuses.pop(0)
            return answer.http, answer.json
        try:
            return 200, self.front.handle(method, target, raw)
        except Refusal as refusal:
            return refusal.canonical.http, refusal.to_json()

    def profile(self, account: str = ME) -> dict[str, Any]:
        return self.front.handle("GET", f"/oslogin/v1/users/{account}/loginProfile")

    def add(self, key: str = KEY, account: str = ME, **more: str) -> dict[str, Any]:
        body = json.dumps({"key": key, **more}).encode()
        return self.front.handle("POST", f"/oslogin/v1/users/{account}:importSshPublicKey", body)["loginProfile"]

    @property
    def client(self) -> OsLogin:
        return OsLogin(Session(AnonymousCredentials(), PROJECT, self.url))


@contextmanager
def service() -> Iterator[Service]:
    made = Service()
    with served(made.handle) as made.url:
        yield made


@pytest.fixture
def google() -> Iterator[Service]:
    with service() as made:
        yield made


def fingerprint(key: str = KEY) -> str:
    return hashlib.sha256(base64.b64decode(key.split()[1])).hexdigest()


def test_a_key_is_let_in_for_a_time_and_taken_out(google: Service) -> None:
    until = google.now + 3600
    profile = google.client.admit(ME, KEY + "\n", PROJECT, until)
    assert profile == Profile("a_person_example_com", f"users/{ME}/sshPublicKeys/{fingerprint()}")
    shown = google.profile()["sshPublicKeys"][fingerprint()]
    assert shown["expirationTimeUsec"] == str(round(until * 1e6))
    method, target, body = google.seen[0]
    assert (method, set(body)) == ("POST", {"key", "expirationTimeUsec"})
    assert f"projectId={PROJECT}" in target
    google.client.forget(profile)
    assert google.profile()["sshPublicKeys"] == {}
    google.client.forget(profile)


def test_other_keys_of_the_account_stay(google: Service) -> None:
    google.add(OTHER)
    profile = google.client.admit(ME, KEY, PROJECT, google.now + 60)
    google.client.forget(profile)
    assert list(google.profile()["sshPublicKeys"]) == [fingerprint(OTHER)]


@pytest.mark.parametrize(
    ("answer", "kind", "step"),
    [
        (Answer(403, "Permission 'compute.osLogin' denied"), AccessError, "roles/compute.osAdminLogin"),
        (Answer(403, "OS Login API has not been used in project 1"), AccessError, "enable oslogin.googleapis.com"),
        (Answer(400, "Login profile size exceeds 32 KiB"), AccessError, "ssh-keys list"),
        (Answer(503, "no"), CloudError, "again"),
    ],
)
def test_a_refusal_says_what_to_do(google: Service, answer: Answer, kind: type[OrchError], step: str) -> None:
    google.refuses = [answer]
    with pytest.raises(kind) as told:
        google.client.admit(ME, KEY, PROJECT, google.now + 60)
    assert step in told.value.next_step


def account(**changes: Any) -> dict[str, Any]:
    return {"username": "right", "operatingSystemType": "LINUX"} | changes


@pytest.mark.parametrize(
    "accounts",
    [
        [],
        [account(username="-oProxyCommand=x")],
        [account(username="a b")],
        [account(operatingSystemType="WINDOWS")],
        [account(systemId="another-system")],
    ],
)
def test_an_account_without_a_user_for_linux_is_told_and_keeps_no_key(accounts: list[dict[str, Any]]) -> None:
    profile = {"posixAccounts": accounts, "sshPublicKeys": {fingerprint(): {"key": KEY}}}
    asked: list[tuple[str, str]] = []

    def handle(method: str, target: str, _: bytes) -> tuple[int, dict[str, Any]]:
        asked.append((method, _parts(target)[0]))
        return 200, {"loginProfile": profile}

    with served(handle) as url:
        client = OsLogin(Session(AnonymousCredentials(), PROJECT, url))
        with pytest.raises(AccessError, match="no user for"):
            client.admit(ME, KEY, PROJECT, time.time() + 60)
    assert asked[1:] == [("DELETE", f"/oslogin/v1/users/{ME}/sshPublicKeys/{fingerprint()}")]


def test_the_primary_user_is_taken_and_a_profile_without_the_key_is_told() -> None:
    accounts = [account(username="second"), account(primary=True), account(username="w", operatingSystemType="WINDOWS")]
    profile: dict[str, Any] = {"posixAccounts": accounts, "sshPublicKeys": {fingerprint(): {"key": KEY}}}
    with served(lambda *_: (200, {"loginProfile": profile})) as url:
        client = OsLogin(Session(AnonymousCredentials(), PROJECT, url))
        made = client.admit(ME, KEY, PROJECT, time.time() + 60)
        assert made == Profile("right", f"users/{ME}/sshPublicKeys/{fingerprint()}")
        profile["sshPublicKeys"] = {fingerprint(OTHER): {"key": OTHER}}
        with pytest.raises(CloudError, match="did not take the key"):
            client.admit(ME, KEY, PROJECT, time.time() + 60)


def test_who_is_logged_in_is_the_service_account_where_there_is_one() -> None:
    class Robot(AnonymousCredentials):
        service_account_email = "robot@p.iam.gserviceaccount.com"

    assert OsLogin(Session(Robot(), PROJECT)).account() == Robot.service_account_email
    assert OsLogin(Session(Robot(), PROJECT, "http://127.0.0.1:1")).account() == LOCAL_ACCOUNT


@pytest.mark.skipif(GCLOUD is None, reason="gcloud is not installed")
def test_gcloud_sends_what_we_send(google: Service, tmp_path: Path) -> None:
    words = ["compute", "os-login", "ssh-keys", "add", f"--key={KEY}", "--ttl=1h", f"--project={PROJECT}"]
    done = run_gcloud(words, tmp_path, google.url, account=ME)
    assert done.returncode == 0, done.stderr
    [theirs] = [one for one in google.seen if one[0] == "POST"]
    google.seen.clear()
    google.client.admit(ME, KEY, PROJECT, google.now + 3600)
    [mine] = google.seen
    assert _parts(theirs[1]) == _parts(mine[1])
    assert theirs[2]["key"] == mine[2]["key"]
    assert abs(int(theirs[2]["expirationTimeUsec"]) - int(mine[2]["expirationTimeUsec"])) < 60 * 1_000_000
    removed = run_gcloud(
        ["compute", "os-login", "ssh-keys", "remove", f"--key={KEY}"], tmp_path, google.url, account=ME
    )
    assert removed.returncode == 0, removed.stderr
    assert google.profile()["sshPublicKeys"] == {}


def _parts(target: str) -> tuple[str, set[str]]:
    """Path and query; the user's @ may be written as %40."""
    path, _, query = target.replace("%40", "@").partition("?")
    return path, {word for word in query.split("&") if not word.startswith(("alt=", "prettyPrint="))}


class TestRules:
    """Of the simulated service."""

    def test_each_rule_has_a_test_of_its_name(self) -> None:
        assert {f"test_{rule.name}" for rule in RULES} == {
            name
            for name in dir(TestRules)
            if name.startswith("test_") and name != "test_each_rule_has_a_test_of_its_name"
        }
        assert all(rule.source for rule in RULES)

    def test_imported_key_is_in_the_profile(self) -> None:
        profile = Service().add()
        assert profile["sshPublicKeys"][fingerprint()]["fingerprint"] == fingerprint()
        assert profile["posixAccounts"][0]["operatingSystemType"] == "LINUX"
        for wrong in ("", "ssh-ed25519", "ssh-ed25519 !!!", "ssh-rsa " + KEY.split()[1]):
            with pytest.raises(Refusal, match="INVALID_ARGUMENT"):
                Service().add(wrong)
        with pytest.raises(Refusal, match="Unknown name"):
            Service().add(ttl="1h")

    def test_key_imported_again_has_a_new_expiry(self) -> None:
        made = Service()
        made.add(expirationTimeUsec=str(round((made.now + 10) * 1e6)))
        made.add(expirationTimeUsec=str(round((made.now + 99) * 1e6)))
        made.now += 50
        assert list(made.profile()["sshPublicKeys"]) == [fingerprint()]

    def test_expired_key_counts_no_longer(self) -> None:
        made = Service()
        made.add(expirationTimeUsec=str(round((made.now + 10) * 1e6)))
        made.now += 11
        assert made.profile()["sshPublicKeys"] == {}
        with pytest.raises(Refusal, match="in the past"):
            made.add(expirationTimeUsec=str(round((made.now - 1) * 1e6)))

    def test_user_name_comes_from_the_email(self) -> None:
        made = Service()
        assert made.add()["posixAccounts"][0]["username"] == "a_person_example_com"
        robot = made.add(account="r@p.iam.gserviceaccount.com")["posixAccounts"][0]["username"]
        assert robot.startswith("sa_")
        assert robot.removeprefix("sa_").isdecimal()

    def test_profile_has_a_limit(self) -> None:
        made = Service()
        with pytest.raises(Refusal, match="exceeds 32 KiB"):
            for number in range(200):
                blob = base64.b64encode(base64.b64decode(KEY.split()[1])[:-4] + number.to_bytes(4, "big")).decode()
                made.add(f"ssh-ed25519 {blob}")
        assert 50 < len(made.profile()["sshPublicKeys"]) < 200

    def test_deleted_key_is_gone(self) -> None:
        made = Service()
        made.add()
        path = f"/oslogin/v1/users/{ME}/sshPublicKeys/{fingerprint()}"
        assert made.front.handle("GET", path)["key"] == KEY
        assert made.front.handle("DELETE", path) == {}
        for method in ("DELETE", "GET"):
            with pytest.raises(Refusal, match="NOT_FOUND"):
                made.front.handle(method, path)
