"""Who may enter: one-time links, the sessions they open, and the token of this computer's own programs.

Only digests are kept. The server answers on this computer alone, and yet a session or token is always needed: other
users of the computer reach the same port, and so do web pages in the person's browser.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.private_files import make_private_folder, write_whole
from orchestrator.service.route import Person, Role

LINK_SECONDS = 15 * 60.0
IDLE_SECONDS = 12 * 3600.0
SESSION_SECONDS = 7 * 24 * 3600.0
_MOST_LINKS = 20
_TOKEN = "orch_"  # noqa: S105  # how tokens begin, so that scanners find them


@dataclass(kw_only=True)
class _Session:
    begun: float
    used: float


@dataclass(kw_only=True)
class Gate:
    """Opens and checks sessions. Safe for several threads.

    Attributes:
        member: The person whose server this is; every session and the token are theirs.
        token_file: Where the token of this computer's programs is, readable by this user alone.
        now: The time, in seconds.
    """

    member: str
    token_file: Path
    now: Callable[[], float] = time.monotonic
    _links: dict[str, float] = field(default_factory=dict[str, float])
    _sessions: dict[str, _Session] = field(default_factory=dict[str, _Session])
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _token: str = ""

    def read_token(self) -> str:
        """Return the token of this computer's programs; it is made at the first start."""
        try:
            token = self.token_file.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            token = _TOKEN + secrets.token_urlsafe(32)
            make_private_folder(self.token_file.parent)
            write_whole(self.token_file, token)
        self._token = _digest(token)
        return token

    def make_link(self) -> str:
        """Return the secret of a new link, which opens one session within 15 minutes."""
        secret = secrets.token_urlsafe(32)
        with self._lock:
            self._links[_digest(secret)] = self.now() + LINK_SECONDS
            for old in list(self._links)[:-_MOST_LINKS]:
                del self._links[old]
        return secret

    def open_session(self, link: str) -> str | None:
        """Return the secret of a new session for that of a link; None for one that is used, too old, or wrong."""
        with self._lock:
            until = self._links.pop(_digest(link), None)
            if until is None or until < self.now():
                return None
            secret = secrets.token_urlsafe(32)
            self._sessions[_digest(secret)] = _Session(begun=self.now(), used=self.now())
            return secret

    def close_session(self, secret: str) -> None:
        """End a session."""
        with self._lock:
            self._sessions.pop(_digest(secret), None)

    def identify(self, *, bearer: str = "", session: str = "") -> Person | None:
        """Return who has this token or session; None for neither."""
        if bearer:
            known = bool(self._token) and secrets.compare_digest(_digest(bearer), self._token)
            return Person(name=self.member, role=Role.OWNER) if known else None
        with self._lock:
            found = self._sessions.get(_digest(session)) if session else None
            if found is None:
                return None
            now = self.now()
            if now - found.used > IDLE_SECONDS or now - found.begun > SESSION_SECONDS:
                del self._sessions[_digest(session)]
                return None
            found.used = now
        return Person(name=self.member, role=Role.OWNER, session=True)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
