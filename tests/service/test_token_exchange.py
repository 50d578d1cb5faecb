"""Jobs of CI enter by the tokens of a real issuer on a socket, which a test makes lie."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from hypothesis import given
from hypothesis import strategies as st
from joserfc.errors import JoseError
from jsonschema import Draft202012Validator
from service_ci import AUDIENCE, CLAIMS, Server, make_job_token, make_rule, serve_ci
from support.oidc_provider import Provider, SigningKey, encode, join, oidc_provider

from orchestrator.errors import AccessError, CloudError, UserError
from orchestrator.service.entrance import Entrance
from orchestrator.service.issuer import KEPT_SECONDS, Issuer
from orchestrator.service.openapi import load_schema
from orchestrator.service.token_exchange import JWT, PAUSE_SECONDS, choose_rule
from orchestrator.store.read import open_reader_at
from orchestrator.store.store import Store
from orchestrator.store.token_records import TOKEN_ROLES
from orchestrator.store.trust_records import BINDING_CLAIMS, TrustRule, parse_claims


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Provider, Path]]:
    folder = tmp_path_factory.mktemp("ci")
    database = folder / "orch.db"
    Store(database).close()
    with oidc_provider("127.0.0.1") as provider, serve_ci(database, folder) as server:
        with Store(database) as store:
            store.add_trust_rule(make_rule(provider.issuer))
        yield server, provider, database


@pytest.fixture
def server(parts: tuple[Server, Provider, Path]) -> Server:
    return parts[0]


@pytest.fixture
def database(parts: tuple[Server, Provider, Path]) -> Path:
    return parts[2]


@pytest.fixture
def ci(parts: tuple[Server, Provider, Path]) -> Provider:
    parts[1].reset()
    return parts[1]


def test_a_job_gets_a_token_of_the_rule_s_member_role_and_project(server: Server, ci: Provider, database: Path) -> None:
    with Store(database) as store:
        store.add_trust_rule(
            make_rule(ci.issuer, "vision", claims={"repository_id": "7"}, project="vision", seconds=60)
        )
    status, given = server.exchange(make_job_token(ci))
    assert status == 200, given
    Draft202012Validator(load_schema("exchanged-token")).validate(given)
    assert (given["member"], given["role"], given["project"], given["rule"]) == (
        "ci-release",
        "member",
        None,
        "release",
    )
    assert 3590 <= given["expires_in"] <= 3600
    assert server.who(given["access_token"])[1]["member"] == "ci-release"
    status, other = server.exchange(
        make_job_token(ci, repository_id=7, ref=None), subject_token_type=JWT, audience=AUDIENCE
    )
    assert (status, other["member"], other["project"]) == (200, "ci-vision", "vision"), "an id may be a number"
    assert 50 <= other["expires_in"] <= 60
    with open_reader_at(database) as reader:
        made = [one for one in reader.events(None) if one.kind == "token" and "by the rule 'vision'" in one.what]
    assert len(made) == 1 and made[0].actor.startswith("ci-vision@") and "repo:org/name" in made[0].cause


LIES: dict[str, dict[str, Any]] = {
    "another repository": {"repository": "evil/name"},
    "a repository of the same beginning": {"repository": "org/name2"},
    "another branch": {"ref": "refs/heads/mine"},
    "no branch": {"ref": None},
    "a list of repositories": {"repository": ["org/name"]},
    "another audience": {"aud": "https://other.test"},
    "the audience of this computer": {"aud": "http://127.0.0.1:6724"},
    "several audiences": {"aud": [AUDIENCE, "https://other.test"]},
    "no audience": {"aud": None},
    "another issuer": {"iss": "https://token.actions.githubusercontent.com"},
    "no issuer": {"iss": None},
    "expired": {"iat": time.time() - 900, "nbf": None, "exp": time.time() - 300},
    "no end": {"exp": None},
    "an end in words": {"exp": "tomorrow"},
    "no end ever": {"exp": float("nan")},
    "an end that is true": {"exp": True},
    "an end in a thousand years": {"exp": time.time() + 3e10},
    "an end without bounds": {"exp": 10**400},
    "no begin": {"iat": None},
    "not yet": {"nbf": time.time() + 86_400},
    "made later": {"iat": time.time() + 86_400},
    "an id that is none": {"jti": ["a"]},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_token_that_is_not_for_this_service_or_no_rule_s_gets_nothing(
    server: Server, ci: Provider, database: Path, lie: str
) -> None:
    with open_reader_at(database) as reader:
        before = len(reader.tokens())
    status, refused = server.exchange(make_job_token(ci, **LIES[lie]))
    assert (status, refused["error"]) == (400, "invalid_request"), refused
    assert refused["title"] and refused["exit_status"] and "access_token" not in refused
    with open_reader_at(database) as reader:
        assert len(reader.tokens()) == before


def test_clocks_may_differ_by_a_minute(server: Server, ci: Provider) -> None:
    now = time.time()
    assert server.exchange(make_job_token(ci, iat=now + 30, nbf=now + 30))[0] == 200
    status, given = server.exchange(make_job_token(ci, iat=now - 300, nbf=now - 300, exp=now - 30))
    assert status == 200 and given["expires_in"] <= 3570, "it counts from the end of the job's token"


@pytest.mark.parametrize(
    "attack",
    ["none", "none in capitals", "another key", "its kid", "public key", "no signature", "text", "deep", "jwk"],
)
def test_a_token_that_the_issuer_did_not_sign_is_refused(server: Server, ci: Provider, attack: str) -> None:
    other, key = SigningKey("other"), ci.key

    def with_own_key(claims: dict[str, Any]) -> str:
        head = join({"alg": "RS256", "jwk": other.to_jwk()}, claims)
        return f"{head}.{other.sign(claims).rpartition('.')[2]}"

    attacks: dict[str, Callable[[dict[str, Any]], str]] = {
        "none": lambda claims: join({"alg": "none"}, claims) + ".",
        "none in capitals": lambda claims: join({"alg": "NONE", "kid": key.kid}, claims) + ".",
        "another key": other.sign,
        "its kid": SigningKey(key.kid).sign,
        "public key": key.sign_with_public_key,
        "no signature": lambda claims: key.sign(claims).rpartition(".")[0] + ".",
        "text": lambda _: "x.y.z",
        "deep": lambda claims: f"{encode(b'[' * 5000)}.{key.sign(claims).split('.')[1]}.x",
        "jwk": with_own_key,
    }
    ci.sign = attacks[attack]
    status, refused = server.exchange(make_job_token(ci))
    assert (status, refused["error"]) == (400, "invalid_request"), refused


def test_what_is_no_exchange_is_refused(server: Server, ci: Provider) -> None:
    token = make_job_token(ci)
    for more, error in (
        ({"grant_type": "client_credentials"}, "invalid_request"),
        ({"subject_token_type": "urn:ietf:params:oauth:token-type:access_token"}, "invalid_request"),
        ({"requested_token_type": "urn:ietf:params:oauth:token-type:refresh_token"}, "invalid_request"),
        ({"actor_token": "x"}, "invalid_request"),
        ({"audience": "https://other.test"}, "invalid_target"),
        ({"subject_token": ""}, "invalid_request"),
        ({"subject_token": "a.b"}, "invalid_request"),
    ):
        status, refused = server.exchange(
            **({"token": token} | more) if "subject_token" not in more else {"token": more["subject_token"]}
        )
        assert (status, refused.get("error")) == (400, error), more
    assert server.exchange(token, subject_token_type=JWT, unknown="ignored")[0] == 200
    kind = "application/x-www-form-urlencoded"
    for body, medium in (
        (b"grant_type=a&grant_type=b", kind),
        (b"{}", "application/json"),
        (b"subject_token=" + b"x" * 17_000, kind),
        (b"subject_token=" + b"x" * 30_000, kind),
        (b"&".join(b"a%d=1" % number for number in range(60)), kind),
    ):
        assert server.ask("/v1/tokens/exchange", "POST", body, content_type=medium)[0] == 400


def test_a_token_is_exchanged_once_at_whichever_server(server: Server, ci: Provider, database: Path) -> None:
    with serve_ci(database, database.parent) as second:
        token = make_job_token(ci)
        assert server.exchange(token)[0] == 200
        for again in (server, second):
            status, refused = again.exchange(token)
            assert status == 400 and "was exchanged before" in refused["title"]
        same = make_job_token(ci, jti="same")
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda number: (server, second)[number % 2].exchange(same)[0], range(8)))
        assert sorted(found) == [200] + [400] * 7
        assert server.exchange(make_job_token(ci, jti="same", exp=int(time.time()) + 200))[0] == 400, "the same id"


def test_a_spent_token_stays_spent_when_its_id_is_sent_as_a_code(server: Server, ci: Provider) -> None:
    token = make_job_token(ci, jti="known")
    assert server.exchange(token)[0] == 200
    own = f"{ci.issuer}\0known"
    digest = hashlib.sha256(own.encode()).hexdigest()
    for code in (own, f"spent:{digest}", digest):
        body = f"code={code}".encode()
        server.ask(
            "/login", "POST", body, content_type="application/x-www-form-urlencoded", sec_fetch_site="same-origin"
        )
    assert server.exchange(token)[0] == 400


def test_a_token_without_an_id_is_known_by_what_is_signed(tmp_path: Path) -> None:
    """Whoever has an ECDSA signature (r, s) can write (r, n - s), which is another text with the same meaning."""
    key: Any = EllipticKey("curve")  # writes itself as a JWK
    with oidc_provider("127.0.0.1") as ci, serve_ci(tmp_path / "orch.db", tmp_path) as server:
        with Store(tmp_path / "orch.db") as store:
            store.add_trust_rule(make_rule(ci.issuer))
        ci.published, ci.sign = [key], key.sign
        token = make_job_token(ci, jti=None)
        assert server.exchange(token)[0] == 200
        head, _, signature = token.rpartition(".")
        status, refused = server.exchange(f"{head}.{key.turn(signature)}")
        assert status == 400 and "was exchanged before" in refused["title"], refused


class EllipticKey:
    """A key of P-256 (RFC 7518, section 3.4)."""

    ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551

    def __init__(self, kid: str) -> None:
        self.kid, self._private = kid, ec.generate_private_key(ec.SECP256R1())

    def to_jwk(self) -> dict[str, Any]:
        numbers = self._private.public_key().public_numbers()
        x, y = (encode(one.to_bytes(32, "big")) for one in (numbers.x, numbers.y))
        return {"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": self.kid, "x": x, "y": y}

    def sign(self, claims: dict[str, Any]) -> str:
        head = join({"alg": "ES256", "kid": self.kid}, claims)
        r, s = decode_dss_signature(self._private.sign(head.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{head}.{encode(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"

    def turn(self, signature: str) -> str:
        content = base64.urlsafe_b64decode(signature + "==")
        s = self.ORDER - int.from_bytes(content[32:], "big")
        return encode(content[:32] + s.to_bytes(32, "big"))


def test_keys_that_the_issuer_changed_are_read_again_but_not_for_everyone_who_asks(
    server: Server, ci: Provider
) -> None:
    assert server.exchange(make_job_token(ci))[0] == 200
    server.clock[0] += PAUSE_SECONDS
    ci.key = SigningKey("two")
    ci.published.append(ci.key)
    assert server.exchange(make_job_token(ci))[0] == 200, "a new key, which was not read before"
    newest, ci.sign = ci.key, SigningKey("unknown").sign
    ci.seen.clear()
    wrong = make_job_token(ci)
    assert {server.exchange(wrong)[0] for _ in range(20)} == {400}
    assert ci.seen.count("/keys") == 0, "wrong tokens make no requests before the pause is over"
    ci.sign = None
    assert server.exchange(make_job_token(ci))[0] == 200, "and shut no one out"
    ci.published = [newest, SigningKey("three")]
    server.clock[0] += KEPT_SECONDS
    ci.sign = SigningKey("one").sign
    assert server.exchange(make_job_token(ci))[0] == 400


def test_a_key_that_was_withdrawn_counts_for_an_hour_at_most(tmp_path: Path) -> None:
    with oidc_provider("127.0.0.1") as ci, serve_ci(tmp_path / "orch.db", tmp_path) as server:
        with Store(tmp_path / "orch.db") as store:
            store.add_trust_rule(make_rule(ci.issuer))
        assert server.exchange(make_job_token(ci))[0] == 200
        ci.published = [SigningKey("new")]
        server.clock[0] += KEPT_SECONDS
        assert server.exchange(make_job_token(ci))[0] == 400


@pytest.mark.parametrize("issuer", ['"\\ud800"', '"a\\u0000b"', "[]", '{"a": 1}', "1e999", "null"])
def test_an_issuer_that_is_no_text_is_refused(server: Server, ci: Provider, issuer: str) -> None:
    claims = encode(f'{{"iss": {issuer}}}'.encode())
    status, refused = server.exchange(f"{encode(b'{}')}.{claims}.x")
    assert (status, refused["error"]) == (400, "invalid_request"), refused


def test_an_id_that_is_half_a_character_is_spent_too(server: Server, ci: Provider) -> None:
    token = make_job_token(ci, jti="\ud800")
    assert [server.exchange(token)[0] for _ in range(2)] == [200, 400]


UNUSABLE: list[Any] = [
    {"kty": "EC", "crv": "brainpoolP256r1", "kid": "x", "x": "AQ", "y": "AQ"},
    {"kty": "OKP", "crv": "ML-DSA", "kid": "x", "x": "AQ"},
    {"kty": "OKP", "crv": {}, "kid": "x", "x": "A"},
    {"kty": "EC", "kid": "x", "crv": ["P-256"], "x": "AA", "y": "AA"},
    {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
    {"kty": "RSA", "kid": "x"},
    {"kty": "RSA", "kid": ["x"], "n": "AQ", "e": "AQ"},
    {"kty": "RSA", "kid": "x", "n": "\ud800", "e": "AA"},
    {"kty": "RSA", "kid": "x", "n": "AA", "e": "AA"},
    {"kty": "RSA", "kid": "x", "n": 1, "e": 2},
    {"kty": "RSA", "use": {}, "kid": "x", "n": "AQ", "e": "AQ"},
    {"kty": "RSA", "key_ops": 5, "kid": "x", "n": "AQ", "e": "AQ"},
    {"kty": ["RSA"]},
    {"kty": "AKP", "kid": "x"},
    "RSA",
]


def test_a_key_that_cannot_be_used_shuts_no_job_out(tmp_path: Path) -> None:
    with oidc_provider("127.0.0.1") as ci:
        published: list[Any] = [*map(_Published, UNUSABLE), ci.key]
        ci.published = published
        issuer = Issuer(address=ci.issuer)
        assert issuer.verify_signature(make_job_token(ci)).claims["iss"] == ci.issuer
        ci.published = published[:1]
        with pytest.raises(JoseError):
            Issuer(address=ci.issuer).verify_signature(make_job_token(ci))


@dataclass(frozen=True)
class _Published:
    """An entry of the published keys."""

    document: Any

    def to_jwk(self) -> Any:
        return self.document


def test_a_slow_issuer_takes_one_thread_and_stops_no_other(tmp_path: Path) -> None:
    with (
        oidc_provider("127.0.0.1") as good,
        serve_ci(tmp_path / "orch.db", tmp_path) as server,
        socket.create_server(("127.0.0.1", 0)) as silent,
    ):
        slow = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with Store(tmp_path / "orch.db") as store:
            store.add_trust_rule(make_rule(good.issuer))
            store.add_trust_rule(make_rule(slow, "other"))
        of_slow = good.key.sign({"iss": slow})
        with ThreadPoolExecutor(8) as pool:
            first = pool.submit(server.exchange, of_slow)
            reading, _ = silent.accept()  # it waits for an answer
            try:
                refused = list(pool.map(server.exchange, [of_slow] * 7))
                assert {(status, problem["code"]) for status, problem in refused} == {(503, "issuer-busy")}
                assert server.exchange(make_job_token(good))[0] == 200
                assert not first.done()
                server.clock[0] += PAUSE_SECONDS  # reading takes as long as the pause
            finally:
                reading.close()
            assert first.result()[0] == 502
            assert server.exchange(of_slow)[0] == 502, "the pause begins when it has failed"
        silent.setblocking(False)
        with pytest.raises(BlockingIOError):
            silent.accept()


def test_an_issuer_that_does_not_answer_is_read_once_in_a_while(tmp_path: Path) -> None:
    with oidc_provider("127.0.0.1") as ci, serve_ci(tmp_path / "orch.db", tmp_path) as server:
        with Store(tmp_path / "orch.db") as store:
            store.add_trust_rule(make_rule(ci.issuer))
        ci.metadata = {"issuer": "https://elsewhere.test"}
        for _ in range(5):
            status, problem = server.exchange(make_job_token(ci))
            assert status == 502 and "it calls itself" in problem["detail"]
        assert len(ci.seen) == 1
        ci.metadata = {}
        server.clock[0] += PAUSE_SECONDS
        assert server.exchange(make_job_token(ci))[0] == 200


def test_tokens_end_with_their_rule(server: Server, ci: Provider, database: Path) -> None:
    def exchange(name: str, **more: Any) -> tuple[TrustRule, str]:
        rule = make_rule(ci.issuer, name, claims={"sub": name}, **more)
        with Store(database) as store:
            store.add_trust_rule(rule)
        status, given = server.exchange(make_job_token(ci, sub=name, ref=None))
        assert status == 200, given
        return rule, given["access_token"]

    _, of_removed = exchange("removed")
    _, of_kept = exchange("kept")
    short, of_short = exchange("short", expires=time.time() + 1.5)
    with Store(database) as store:
        assert store.revoke_entry("removed") == "rule 'removed' of ci-removed"
    assert server.who(of_removed)[0] == 401
    assert server.who(of_kept)[0] == 200
    assert server.exchange(make_job_token(ci, sub="removed", ref=None))[0] == 400
    while time.time() < (short.expires or 0):
        time.sleep(0.1)
    assert server.who(of_short)[0] == 401
    assert (
        "no rule of this service is for this job"
        in server.exchange(make_job_token(ci, sub="short", ref=None))[1]["title"]
    )
    with Store(database) as store:
        assert store.revoke_member("ci-kept") == 2, "the rule, and the token"
    assert server.who(of_kept)[0] == 401


def test_what_a_job_lets_in_ends_with_the_rule(server: Server, ci: Provider, database: Path) -> None:
    with Store(database) as store:
        store.add_trust_rule(make_rule(ci.issuer, "parent", claims={"sub": "parent"}, project="vision", role="viewer"))
    token = server.exchange(make_job_token(ci, sub="parent", ref=None))[1]["access_token"]
    session = server.gate.open_session(server.gate.make_link(token))
    assert session is not None
    person = server.gate.identify(session=session)
    assert person is not None and (person.role.name, person.project) == ("VIEWER", "vision")
    with Store(database) as store:
        store.revoke_entry("parent")
    assert server.gate.identify(session=session) is None


def test_a_rule_is_of_one_repository_and_without_patterns() -> None:
    assert parse_claims(["repository=org/name", "ref=a=b"]) == {"repository": "org/name", "ref": "a=b"}
    for wrong in (
        [], ["ref=refs/heads/main"], ["repository_owner=org"], ["repository=org/*"], ["repository"], ["=x"],
        ["repository="], ["sub=a", "aud=x"], ["sub=a", "sub=b"], ["sub=a\nb"], ["sub=" + "x" * 400],
        ["sub=a", *(f"c{number}=1" for number in range(20))],
    ):  # fmt: skip
        with pytest.raises(UserError):
            parse_claims(wrong)
    for one in BINDING_CLAIMS:
        assert parse_claims([f"{one}=7"]) == {one: "7"}


_values = st.sampled_from(["a", "b", 1, True, None, ["a"]])
_claims = st.dictionaries(st.sampled_from(["repository", "ref", "sub", "environment"]), _values)
_rules = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from(["repository", "ref", "sub"]), st.sampled_from(["a", "b", "1"]), min_size=1),
        st.sampled_from(TOKEN_ROLES),
    ),
    min_size=1,
    max_size=6,
)


@given(_claims, _rules)
def test_no_token_has_a_role_above_that_of_a_rule_that_allows_it(
    claims: dict[str, Any], found: list[tuple[dict[str, str], str]]
) -> None:
    rules = tuple(make_rule("https://ci.test", claims=own, role=role) for own, role in found)
    allowing = [rule for rule in rules if all(str(claims.get(name)) == value for name, value in rule.claims.items())]
    try:
        chosen = choose_rule(rules, claims)
    except AccessError:
        assert not any(
            all(isinstance(claims.get(name), str) and claims[name] == value for name, value in rule.claims.items())
            for rule in rules
        )
        return
    assert chosen in allowing
    like = [rule for rule in allowing if len(rule.claims) == len(chosen.claims)]
    assert all(TOKEN_ROLES.index(chosen.role) <= TOKEN_ROLES.index(rule.role) for rule in like)


def test_of_rules_with_as_many_claims_the_narrowest_counts_or_none() -> None:
    def choose(*about: tuple[str, str]) -> str:
        rules = [
            make_rule("https://ci.test", f"{project}-{role}", project=project, role=role) for project, role in about
        ]
        names = {choose_rule(tuple(order), CLAIMS).name for order in (rules, rules[::-1])}
        assert len(names) == 1
        return names.pop()

    assert choose(("", "member"), ("vision", "member")) == "vision-member"
    assert choose(("vision", "owner"), ("vision", "viewer"), ("", "viewer")) == "vision-viewer"
    for about in ((("", "viewer"), ("vision", "member")), (("audio", "viewer"), ("vision", "viewer"))):
        with pytest.raises(AccessError) as refused:
            choose(*about)
        assert all(f"{project}-{role}" in refused.value.what for project, role in about)


def test_an_address_that_others_have_too_is_no_audience_of_a_service_with_a_name() -> None:
    named = Entrance(names=("orch.test", "orch.test:8443"), behind_proxy=True)
    assert named.list_audiences(6724) == {"https://orch.test", "https://orch.test:8443"}
    assert "http://127.0.0.1:6724" in Entrance().list_audiences(6724)


class _Hostile(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        kind = self.path.split("/")[1]
        if kind == "redirect":
            self.send_response(302)
            self.send_header("Location", "/elsewhere")
            self.end_headers()
            return
        self.send_response(200)
        self.end_headers()
        if kind == "endless":
            with_size = b" " * 65_536
            try:
                for _ in range(100):
                    self.wfile.write(with_size)
            except OSError:
                return
        if kind == "deep":
            self.wfile.write(b"[" * 100_000)
        if kind == "elsewhere":  # it would be believed
            issuer = f"http://{self.headers['Host']}/redirect"
            self.wfile.write(json.dumps({"issuer": issuer, "jwks_uri": f"{issuer}/keys"}).encode())


@pytest.mark.parametrize("kind", ["redirect", "endless", "deep"])
def test_a_hostile_issuer_is_read_within_bounds(kind: str) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hostile)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        issuer = Issuer(address=f"http://127.0.0.1:{server.server_address[1]}/{kind}")
        with pytest.raises(CloudError):
            issuer.read_metadata()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_an_issuer_elsewhere_does_not_lead_to_this_computer() -> None:
    issuer = Issuer(address="https://ci.test")
    assert issuer._is_usable("https://ci.test/keys") and not issuer._is_usable("http://127.0.0.1:8080/keys")
    assert Issuer(address="http://localhost:1")._is_usable("http://127.0.0.1:8080/keys")
