"""The OS Login API, version 1, as far as orch and gcloud use it: profiles of accounts with their keys, in memory.

    TpuServer(access, fronts={PREFIX: OsLoginFront(now)})

Serve it under /oslogin/: `ORCH_GCP_ENDPOINT` and gcloud's override of the endpoint lead there.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import threading
import time
from collections.abc import Callable
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from orch_fronts.google.status import INVALID_ARGUMENT, NOT_FOUND, Refusal, invalid
from orchestrator.simulator.rules import Rule

PREFIX = "/oslogin/"
PROFILE_BYTES = 32 * 1024
_REST = "OS Login API v1 REST reference (docs.cloud.google.com/compute/docs/oslogin/rest/v1), read November 2026"
_TROUBLE = "Troubleshooting OS Login (docs.cloud.google.com/compute/docs/oslogin/troubleshoot-os-login), 2025"

RULES = (
    Rule(
        "imported_key_is_in_the_profile",
        "importSshPublicKey answers the profile: the key by its SHA-256 fingerprint, and a POSIX account.",
        f"{_REST} (users.importSshPublicKey)",
    ),
    Rule(
        "key_imported_again_has_a_new_expiry",
        "A key that is in the profile stays one key; its expirationTimeUsec becomes the new one.",
        f"{_REST} (SshPublicKey); that it is not refused is how gcloud 528 uses it, the rest is modelled",
    ),
    Rule(
        "expired_key_counts_no_longer",
        "A key is not shown after its expirationTimeUsec, and an import with one in the past is INVALID_ARGUMENT.",
        f"{_REST} (SshPublicKey.expirationTimeUsec); that it vanishes and the refusal are modelled",
    ),
    Rule(
        "user_name_comes_from_the_email",
        "A user's name is the e-mail with _ for what is no letter or digit; a service account's is sa_ and a number.",
        "Set up OS Login (docs.cloud.google.com/compute/docs/oslogin/set-up-oslogin), 2025; the number is modelled",
    ),
    Rule("profile_has_a_limit", "A profile holds 32 KiB; an import beyond is INVALID_ARGUMENT.", _TROUBLE),
    Rule(
        "deleted_key_is_gone", "A key that is not there, or no longer, is NOT_FOUND.", f"{_REST} (users.sshPublicKeys)"
    ),
)
_PATH = re.compile(
    r"/oslogin/v1/users/(?P<user>[^/:]+)"
    r"(?:(?P<profile>/loginProfile)|(?P<add>:importSshPublicKey)|/sshPublicKeys/(?P<key>[0-9a-f]+))"
)
_FIELDS = frozenset({"key", "expirationTimeUsec", "fingerprint", "name"})


class OsLoginFront:
    """See `Front` in server.py. now: seconds since the epoch."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._keys: dict[str, dict[str, dict[str, Any]]] = {}  # by account, by fingerprint
        self._lock = threading.Lock()

    def handle(self, method: str, target: str, body: bytes = b"") -> dict[str, Any]:
        path = unquote(urlsplit(target).path)
        found = _PATH.fullmatch(path)
        with self._lock:
            match (method, found):
                case ("POST", re.Match()) if found["add"]:
                    self._add(found["user"], _read(body))
                    return {"loginProfile": self._profile(found["user"])}
                case ("GET", re.Match()) if found["profile"]:
                    return self._profile(found["user"])
                case ("GET", re.Match()) if found["key"]:
                    return self._key(found["user"], found["key"])
                case ("DELETE", re.Match()) if found["key"]:
                    self._key(found["user"], found["key"])
                    del self._keys[found["user"]][found["key"]]
                    return {}
                case _:
                    raise Refusal(NOT_FOUND, f"Method not found: {method} {path}")

    def _add(self, account: str, given: dict[str, Any]) -> None:
        blob = _blob(str(given.get("key", "")))
        expires = str(given.get("expirationTimeUsec", "0"))
        if not expires.isdecimal() or (int(expires) and int(expires) <= self._now() * 1e6):
            raise invalid("ssh_public_key.expiration_time_usec", f"{expires} is in the past")
        fingerprint = hashlib.sha256(blob).hexdigest()
        made = {"key": given["key"], "fingerprint": fingerprint, "name": f"users/{account}/sshPublicKeys/{fingerprint}"}
        if int(expires):
            made["expirationTimeUsec"] = expires
        keys = self._valid(account) | {fingerprint: made}
        if len(json.dumps(keys)) > PROFILE_BYTES:
            words = "Login profile size exceeds 32 KiB. Delete profile values to make additional space."
            raise Refusal(INVALID_ARGUMENT, words)
        self._keys[account] = keys

    def _valid(self, account: str) -> dict[str, dict[str, Any]]:
        moment = self._now() * 1e6
        keys = self._keys.get(account, {})
        return {name: key for name, key in keys.items() if int(key.get("expirationTimeUsec", moment + 1)) > moment}

    def _key(self, account: str, fingerprint: str) -> dict[str, Any]:
        keys = self._valid(account)
        if fingerprint not in keys:
            raise Refusal(NOT_FOUND, f"users/{account}/sshPublicKeys/{fingerprint} was not found")
        return keys[fingerprint]

    def _profile(self, account: str) -> dict[str, Any]:
        number = str(int(hashlib.sha256(account.encode()).hexdigest()[:8], 16))
        user = re.sub(r"[^a-z0-9]", "_", account.lower())
        if account.endswith(".gserviceaccount.com"):
            user = f"sa_{number}"
        posix = {
            "primary": True,
            "username": user,
            "uid": number,
            "gid": number,
            "homeDirectory": f"/home/{user}",
            "operatingSystemType": "LINUX",
        }
        return {"name": number, "posixAccounts": [posix], "sshPublicKeys": self._valid(account)}


def _read(body: bytes) -> dict[str, Any]:
    try:
        value: object = json.loads(body) if body.strip() else {}
    except ValueError as error:
        raise Refusal(INVALID_ARGUMENT, f"Invalid JSON payload received. {error}") from error
    unknown = sorted(set(cast(dict[str, Any], value)) - _FIELDS) if isinstance(value, dict) else ["ssh_public_key"]
    if unknown:
        raise invalid("ssh_public_key", f"Invalid JSON payload received. Unknown name {unknown[0]!r}")
    return cast(dict[str, Any], value)


def _blob(key: str) -> bytes:
    """The key in SSH wire format. Raises Refusal for what is none."""
    words = key.split()
    try:
        blob = base64.b64decode(words[1], validate=True)
        kind = blob[4 : 4 + int.from_bytes(blob[:4], "big")].decode("ascii")
    except (IndexError, binascii.Error, UnicodeDecodeError) as error:
        raise invalid("ssh_public_key.key", "the key is no SSH public key") from error
    if kind != words[0]:
        raise invalid("ssh_public_key.key", f"the key says {words[0]} and is {kind}")
    return blob
