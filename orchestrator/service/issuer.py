"""What an OpenID issuer publishes: its addresses and keys, read within bounds, and the signatures that they prove.

Sources: OpenID Connect Discovery 1.0, section 4.3; RFC 8725 (best practices of JWT, 2020), sections 3.1 and 3.2.
The library joserfc checks the signature. It is imported at the first one only.
"""

from __future__ import annotations

import base64
import http.client
import json
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from orchestrator.conversation import StatusError, fetch_within
from orchestrator.errors import AccessError, CloudError
from orchestrator.service.oidc_settings import is_safe_address

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")  # no secrets
SKEW_SECONDS = 60  # between the clocks of the issuer and of this computer
KEPT_SECONDS = 3600.0  # then keys are read again: an issuer withdraws one that was stolen
_SECONDS = 10.0
_MOST_BYTES = 2**20
_MOST_KEYS = 100
LEAST_RSA_BITS = 2048  # RFC 7518, sections 3.3 and 3.5: shorter ones must not be used
_KINDS = ("RSA", "EC", "OKP")  # a shared secret signs for everyone who can check


class BusyIssuerError(CloudError):
    """The keys of an issuer are being read, and this thread does not wait for them."""

    code = "issuer-busy"


@dataclass(kw_only=True)
class Issuer:
    """Reads what an issuer publishes, at the first use. Safe for several threads.

    Attributes:
        address: Of the issuer, exactly as its tokens name it.
        needed: Names of addresses that it has to publish.
        again: What a person does after a failure.
        pause_seconds: Between two readings of the keys. So whoever sends wrong tokens causes few requests, and a new
            key is known after that time at the latest.
        clock: The time in seconds.
        patience_seconds: How long a thread waits while another one reads the keys.
        answer_seconds: For each whole answer of the issuer.
    """

    address: str
    needed: tuple[str, ...] = ("jwks_uri",)
    again: str = "try again"
    pause_seconds: float = 0.0
    clock: Callable[[], float] = time.monotonic
    patience_seconds: float = 3 * _SECONDS
    answer_seconds: float = _SECONDS
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _is_read: bool = False
    _metadata: dict[str, Any] | None = None
    _keys: KeySet | None = None
    _keys_read: float = 0.0
    _tried: float | None = None
    _fault: CloudError | None = None

    @property
    def name(self) -> str:
        """Its name for people."""
        return urlsplit(self.address).netloc

    def read_metadata(self) -> dict[str, Any]:
        """Return what it says of itself. Raises CloudError when it does not answer, or not as an issuer."""
        if self._metadata is None:
            self._metadata = self._fetch_metadata()
        return self._metadata

    def verify_signature(self, text: str) -> Any:
        """Return a token that the issuer has signed. Keys that it changed since are read again, once.

        Raises:
            JoseError, ValueError, TypeError, KeyError, RecursionError: It has not.
            CloudError: The issuer does not answer, or not as one.
            BusyIssuerError: Its keys are being read.
        """
        from joserfc import jwt
        from joserfc.errors import JoseError

        def decode(keys: KeySet) -> Any:
            return jwt.decode(text, keys, algorithms=list(ALGORITHMS))

        known, is_new = self._read_keys()
        try:
            return decode(known)
        except (JoseError, ValueError):
            newer = known if is_new else self._read_newer_keys(known)
            if newer is known:
                raise
        return decode(newer)

    def _read_keys(self) -> tuple[KeySet, bool]:
        """Return its keys, and whether they were read just now."""
        with self._changed:
            if self._keys is not None and self.clock() - self._keys_read < KEPT_SECONDS:
                return self._keys, False
            if self._fault is not None and self._waits():
                raise self._fault
            if not self._begins_to_read():
                return self._wait_for_keys(), True
        return self._fetch_keys(), True

    def _read_newer_keys(self, known: KeySet) -> KeySet:
        """Return keys that were read after the known ones; the known ones while it is too early to ask again."""
        with self._changed:
            if self._keys is not known or self._waits():
                return self._keys or known
            if not self._begins_to_read():
                return self._wait_for_keys()
        return self._fetch_keys()

    def _waits(self) -> bool:
        return self._tried is not None and self.clock() - self._tried < self.pause_seconds

    def _begins_to_read(self) -> bool:
        """Return whether this thread is the one that reads. It holds the lock, and must not while it reads."""
        is_first, self._is_read = not self._is_read, True
        return is_first

    def _wait_for_keys(self) -> KeySet:
        """Return the keys that another thread reads. Raises BusyIssuerError when it takes too long."""
        if not self._changed.wait_for(lambda: not self._is_read, self.patience_seconds):
            raise BusyIssuerError(f"the keys of {self.name} are being read", "it is slow to answer", self.again)
        if self._fault is not None or self._keys is None:
            raise self._fault or self.describe_fault("its keys were not read")
        return self._keys

    def _fetch_keys(self) -> KeySet:
        keys: KeySet | None = None
        fault: CloudError | None = None
        try:
            metadata = self._fetch_metadata()
            keys = self._import_keys(self.send(str(metadata["jwks_uri"])).get("keys"))
            self._metadata = metadata
        except CloudError as error:
            fault = error
            raise
        else:
            return keys
        finally:
            with self._changed:
                self._is_read, self._tried, self._fault = False, self.clock(), fault
                if keys is not None:
                    self._keys, self._keys_read = keys, self.clock()
                self._changed.notify_all()

    def _fetch_metadata(self) -> dict[str, Any]:
        found = self.send(f"{self.address.rstrip('/')}/.well-known/openid-configuration")
        if found.get("issuer") != self.address:
            raise self.describe_fault(f"it calls itself {str(found.get('issuer'))[:100]}, not {self.address}")
        if wrong := [name for name in self.needed if not self._is_usable(found.get(name))]:
            raise self.describe_fault(f"{', '.join(wrong)}: no address with https")
        return found

    def _is_usable(self, url: object) -> bool:
        """Whether an address that it publishes has TLS; an issuer elsewhere never leads to this computer without."""
        on_this_computer = urlsplit(self.address).scheme == "http"
        return is_safe_address(url) and (on_this_computer or urlsplit(str(url)).scheme == "https")

    def send(self, url: str, headers: Mapping[str, str] | None = None, form: bytes | None = None) -> dict[str, Any]:
        """Return the JSON object at an address of the issuer. Redirects are not followed.

        Raises:
            AccessError: It refuses the form.
            CloudError: It does not answer, or not as an issuer.
        """
        request = urllib.request.Request(url, form, {"Accept": "application/json"} | dict(headers or {}))  # noqa: S310  # is_safe_address
        try:
            found: Any = json.loads(fetch_within(request, self.answer_seconds, _MOST_BYTES))
        except StatusError as error:
            if form is not None and error.status in (400, 401):
                raise AccessError(f"{self.name} refuses the sign-in", error.text[:200], self.again) from error
            raise self.describe_fault(str(error)) from error
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            raise self.describe_fault(str(error)[:200]) from error
        if not isinstance(found, dict):
            raise self.describe_fault("its answer is not a JSON object")
        return cast("dict[str, Any]", found)

    def _import_keys(self, found: object) -> KeySet:
        """Return those of the published keys that can check signatures. One of another kind shuts no job out.

        Raises:
            CloudError: All that could are too short.
        """
        from joserfc.jwk import JWKRegistry, KeySet

        keys: list[Any] = []
        has_short = False
        for one in cast("list[object]", found)[:_MOST_KEYS] if isinstance(found, list) else []:
            try:
                given = cast("dict[str, Any]", one)
                if given["kty"] not in _KINDS or given.get("use") == "enc":
                    continue
                if _has_short_key(given):
                    has_short = True
                    continue
                key = JWKRegistry.import_key(given)
                key.ensure_kid()
                keys.append(key)
            except Exception:  # noqa: S112  # the library raises what the text leads it to
                continue
        if has_short and not keys:
            raise self.describe_fault(f"its RSA key has fewer than {LEAST_RSA_BITS:,} bits")
        return KeySet(keys)

    def describe_fault(self, why: str) -> CloudError:
        """Return the error of an issuer that does not answer as one."""
        return CloudError(f"the identity provider {self.name} does not answer as one", why, self.again)


def refuse_half_characters(value: object) -> None:
    """Refuse half of a surrogate pair, which JSON can have, and no store and no page. Raises UnicodeError."""
    json.dumps(value, ensure_ascii=False).encode()


def _has_short_key(given: Mapping[str, Any]) -> bool:
    if given["kty"] != "RSA":
        return False
    modulus = str(given["n"])
    return int.from_bytes(base64.urlsafe_b64decode(modulus + "=" * (-len(modulus) % 4))).bit_length() < LEAST_RSA_BITS
