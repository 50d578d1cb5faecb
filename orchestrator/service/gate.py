"""Who may enter: tokens, one-time links, and the sessions that they open.

Only digests are kept. A session or token is always needed, on loopback too: other users of the computer reach the same
port, and so do web pages in the person's browser.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.private_files import make_private_folder, write_whole
from orchestrator.service.route import Person, Role
from orchestrator.store.token_records import TokenRecord, digest_token, make_token

LINK_SECONDS = 15 * 60.0
IDLE_SECONDS = 12 * 3600.0
SESSION_SECONDS = 7 * 24 * 3600.0
_MOST_LINKS = 1000


@dataclass(frozen=True, kw_only=True)
class _Opener:
    """By which token something was opened, until when; it ends with that token."""

    token: str
    until: float


@dataclass(kw_only=True)
class _Session:
    token: str
    begun: float
    used: float


def _find_no_token(_digest: str) -> TokenRecord | None:
    return None


@dataclass(kw_only=True)
class Gate:
    """Opens and checks sessions. Safe for several threads.

    Attributes:
        member: The person whose server this is: the token of this computer's programs is theirs.
        token_file: Where that token is, readable by this user alone.
        find_token: Returns the token of a digest from the store; None for one that the store does not have.
        now: The time for links and sessions, in seconds.
        clock: The time for tokens, in epoch seconds.
    """

    member: str
    token_file: Path
    find_token: Callable[[str], TokenRecord | None] = _find_no_token
    now: Callable[[], float] = time.monotonic
    clock: Callable[[], float] = time.time
    _links: dict[str, _Opener] = field(default_factory=dict[str, _Opener])
    _sessions: dict[str, _Session] = field(default_factory=dict[str, _Session])
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _token: str = ""

    def read_token(self) -> str:
        """Return the token of this computer's programs; it is made at the first start."""
        try:
            token = self.token_file.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            token = make_token()
            make_private_folder(self.token_file.parent)
            write_whole(self.token_file, token)
        self._token = digest_token(token)
        return token

    def make_link(self, bearer: str = "") -> str:
        """Return the secret of a new link, which opens one session within 15 minutes.

        Args:
            bearer: The token for whose member it is; "" for that of this computer's programs.
        """
        secret = secrets.token_urlsafe(32)
        token = digest_token(bearer) if bearer else self._token
        with self._lock:
            self._links[digest_token(secret)] = _Opener(token=token, until=self.now() + LINK_SECONDS)
            for old in list(self._links)[:-_MOST_LINKS]:
                del self._links[old]
        return secret

    def open_session(self, link: str) -> str | None:
        """Return the secret of a new session for that of a link; None for one that is used, too old, or wrong."""
        with self._lock:
            opener = self._links.pop(digest_token(link), None)
            if opener is None or opener.until < self.now():
                return None
            secret = secrets.token_urlsafe(32)
            self._sessions[digest_token(secret)] = _Session(token=opener.token, begun=self.now(), used=self.now())
            return secret

    def close_session(self, secret: str) -> None:
        """End a session."""
        with self._lock:
            self._sessions.pop(digest_token(secret), None)

    def identify(self, *, bearer: str = "", session: str = "") -> Person | None:
        """Return who has this token or session; None for neither. A session ends with the token that opened it.

        Raises:
            StoreError: The tokens in the store cannot be read.
        """
        if bearer:
            return self._identify_token(digest_token(bearer))
        token = self._use_session(digest_token(session)) if session else None
        person = self._identify_token(token) if token is not None else None
        return replace(person, session=True) if person is not None else None

    def _use_session(self, digest: str) -> str | None:
        """Return the digest of the token that opened a session."""
        with self._lock:
            found = self._sessions.get(digest)
            if found is None:
                return None
            now = self.now()
            if now - found.used > IDLE_SECONDS or now - found.begun > SESSION_SECONDS:
                del self._sessions[digest]
                return None
            found.used = now
            return found.token

    def _identify_token(self, digest: str) -> Person | None:
        if self._token and secrets.compare_digest(digest, self._token):
            return Person(name=self.member, role=Role.ADMIN)
        found = self.find_token(digest)
        if found is None or not found.counts_at(self.clock()):
            return None
        return Person(name=found.member, role=Role[found.role.upper()])
