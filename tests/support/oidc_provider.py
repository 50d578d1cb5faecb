"""An OpenID provider on a real socket: discovery, keys, authorization, tokens, profiles. A test can make it lie.

It signs with `cryptography` alone, so that what checks its tokens shares no code with it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

CLIENT, SECRET = "orch at work", "s3cr3t/of+the test"
Claims = dict[str, Any]


def encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


@dataclass
class SigningKey:
    """An RSA key with its id."""

    kid: str
    private: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))

    def to_jwk(self) -> Claims:
        numbers = self.private.public_key().public_numbers()
        n, e = (encode(one.to_bytes((one.bit_length() + 7) // 8, "big")) for one in (numbers.n, numbers.e))
        return {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": self.kid, "n": n, "e": e}

    def sign(self, claims: Claims) -> str:
        head = join({"alg": "RS256", "kid": self.kid, "typ": "JWT"}, claims)
        return f"{head}.{encode(self.private.sign(head.encode(), padding.PKCS1v15(), hashes.SHA256()))}"

    def sign_with_public_key(self, claims: Claims) -> str:
        """The attack of RFC 8725, section 2.1: the public key as the secret of HS256."""
        pem = self.private.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        head = join({"alg": "HS256", "kid": self.kid}, claims)
        return f"{head}.{encode(hmac.digest(pem, head.encode(), 'sha256'))}"


def join(header: Claims, claims: Claims) -> str:
    return f"{encode(json.dumps(header).encode())}.{encode(json.dumps(claims).encode())}"


@dataclass
class Provider:
    """What it does now; a test changes it.

    Attributes:
        person: The claims of who is signed in there.
        key: Signs.
        published: The keys that it publishes.
        sign: Makes a token of claims.
        twist: Changes claims before they are signed.
        answer: Changes the query with which the browser goes back.
        metadata: Changes what it says of itself.
        profile: What is at the endpoint for profiles alone.
    """

    issuer: str = ""
    person: Claims = field(default_factory=lambda: {"sub": "248289761001", "groups": ["ml"]})
    key: SigningKey = field(default_factory=lambda: SigningKey("one"))
    published: list[SigningKey] = field(default_factory=list[SigningKey])
    sign: Callable[[Claims], str] | None = None
    twist: Claims = field(default_factory=dict[str, Any])
    answer: dict[str, str] = field(default_factory=dict[str, str])
    metadata: Claims = field(default_factory=dict[str, Any])
    profile: Claims = field(default_factory=dict[str, Any])
    seen: list[str] = field(default_factory=list[str])
    codes: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])

    def reset(self) -> None:
        """Be honest again."""
        fresh = Provider(issuer=self.issuer, key=self.key, published=[self.key])
        for name in ("person", "published", "sign", "twist", "answer", "metadata", "profile", "seen"):
            setattr(self, name, getattr(fresh, name))

    def describe(self) -> Claims:
        known = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "userinfo_endpoint": f"{self.issuer}/userinfo",
            "jwks_uri": f"{self.issuer}/keys",
            "authorization_response_iss_parameter_supported": True,
        }
        return known | self.metadata

    def authorize(self, query: dict[str, str]) -> str:
        """Return where the browser goes."""
        assert query["response_type"] == "code" and query["client_id"] == CLIENT and "openid" in query["scope"].split()
        assert query["code_challenge_method"] == "S256" and len(query["state"]) > 40 and len(query["nonce"]) > 40
        code = secrets.token_urlsafe(16)
        self.codes[code] = query
        back = {"code": code, "state": query["state"], "iss": self.issuer} | self.answer
        return f"{query['redirect_uri']}?{urlencode({name: value for name, value in back.items() if value})}"

    def redeem(self, authorization: str, form: dict[str, str]) -> tuple[int, Claims]:
        """Return the answer to a code."""
        pair = base64.b64decode(authorization.removeprefix("Basic ")).decode()
        if pair != f"{quote(CLIENT, safe='')}:{quote(SECRET, safe='')}":
            return 401, {"error": "invalid_client"}
        begun = self.codes.pop(form["code"], None)
        challenge = encode(hashlib.sha256(form["code_verifier"].encode()).digest())
        if begun is None or begun["redirect_uri"] != form["redirect_uri"] or begun["code_challenge"] != challenge:
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": begun["nonce"]}
        claims = {name: value for name, value in (claims | self.person | self.twist).items() if value is not None}
        token = (self.sign or self.key.sign)(claims)
        return 200, {"access_token": "of-the-person", "token_type": "Bearer", "id_token": token}


@contextmanager
def oidc_provider(host: str = "localhost") -> Generator[Provider]:
    """Run a provider on a free port. By default it is another site than 127.0.0.1, for browsers."""
    provider = Provider()
    provider.published = [provider.key]

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            provider.seen.append(parts.path)
            if parts.path == "/authorize":
                self.send_response(302)
                self.send_header("Location", provider.authorize(dict(parse_qsl(parts.query))))
                self.end_headers()
            elif parts.path == "/.well-known/openid-configuration":
                self.send_json(200, provider.describe())
            elif parts.path == "/keys":
                self.send_json(200, {"keys": [key.to_jwk() for key in provider.published]})
            elif parts.path == "/userinfo":
                assert self.headers["Authorization"] == "Bearer of-the-person"
                self.send_json(200, provider.profile)
            else:
                self.send_json(404, {"error": unquote(parts.path)})

        def do_POST(self) -> None:
            form = dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
            self.send_json(*provider.redeem(self.headers.get("Authorization", ""), form))

        def send_json(self, status: int, document: Claims) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    provider.issuer = f"http://{host}:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
