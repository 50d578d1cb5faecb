"""Who may enter: tokens, one-time links, and the sessions that they open.

The store keeps sessions and links, and of each secret a digest only: so a restart ends no session, and several servers
of one store accept the same ones. A session or token is always needed, on loopback too: other users of the computer
reach the same port, and so do web pages in the person's browser.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.acting import acting_as
from orchestrator.errors import AccessError, ConflictError, OrchError
from orchestrator.private_files import make_private_folder, write_whole
from orchestrator.service.oidc import Identity
from orchestrator.service.route import Person, Role
from orchestrator.service.token_exchange import TrustedIssuers
from orchestrator.store.read import Reader
from orchestrator.store.session_records import EntryCode, SessionRecord, SignInRecord, digest_identity
from orchestrator.store.store import Store
from orchestrator.store.token_parents import counts_with_parents
from orchestrator.store.token_records import TokenRecord, digest_token, make_token

LINK_SECONDS = 15 * 60.0
IDLE_SECONDS = 12 * 3600.0
SESSION_SECONDS = 7 * 24 * 3600.0
TOKEN_SECONDS = 90 * 24 * 3600.0
NOTE_SECONDS = 10 * 60.0  # a use within this time after the last one that was noted is not noted
_LINK, _IDENTITY = "link", "identity"


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """What an invitation became. Both secrets are shown now, and never again."""

    person: Person
    token: str = field(repr=False)
    session: str = field(repr=False)
    expires: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Opener:
    """What opened a session.

    Attributes:
        project: The only one that its person sees; "" for every project.
        subject: Of its row, with which ends what the session gives; "" for that of the server's own token.
    """

    project: str
    subject: str


@dataclass(kw_only=True)
class Gate:
    """Opens and checks sessions. Safe for several threads.

    Attributes:
        member: The person whose server this is: the token of this computer's programs is theirs.
        token_file: Where that token is, readable by this user alone.
        open_reader: Opens the store for reading.
        open_store: Opens it for a change, for a cause that its events name.
        clock: The time in epoch seconds.
        provider: The address of the identity provider by which people sign in; "" for none.
        issuers: Whose tokens are exchanged, where a rule says so.
    """

    member: str
    token_file: Path
    open_reader: Callable[[], Reader]
    open_store: Callable[[str], Store]
    clock: Callable[[], float] = time.time
    provider: str = ""
    issuers: TrustedIssuers = field(default_factory=TrustedIssuers)
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

    def read_sign_in_key(self) -> bytes:
        """Return the key by which the servers of the store sign attempts to sign in."""
        with self.open_store("sign-ins") as store:
            return store.sign_in_key()

    def make_link(self, bearer: str = "") -> str:
        """Return the secret of a new link, which opens one session within 15 minutes.

        Args:
            bearer: The token for whose member it is; "" for that of this computer's programs.
        """
        secret = secrets.token_urlsafe(32)
        details = json.dumps({"token": digest_token(bearer) if bearer else self._token})
        until = self.clock() + LINK_SECONDS
        with self.open_store("a link to the page") as store:
            store.keep_entry_code(EntryCode(digest=digest_token(secret), kind=_LINK, details=details, until=until))
        return secret

    def open_session(self, link: str, before: str = "") -> str | None:
        """Return the secret of a new session for that of a link; None for one that is used, too old, or wrong.

        Args:
            link: The secret of the link.
            before: The session that the browser had: it ends.
        """
        code = self._take_code(link, _LINK)
        if code is None:
            return None
        token = str(json.loads(code.details)["token"])
        with self.open_reader() as reader:
            person = self._identify_token(reader, token)
        return None if person is None else self.begin_session(person, before, token=token)

    def begin_session(self, person: Person, before: str, *, token: str = "", identity: str = "") -> str:
        """Record a session and return its new secret; it ends with the token or sign-in that opened it."""
        secret, now = secrets.token_urlsafe(32), self.clock()
        session = SessionRecord(
            digest=digest_token(secret), member=person.name, role=person.role.name.lower() if identity else "",
            token=token, identity=identity, begun=now, used=now,
        )  # fmt: skip
        with acting_as(person.name), self.open_store("a sign-in") as store:
            if before:
                store.end_session(digest_token(before))
            store.begin_session(session)
        return secret

    def accept_invitation(self, secret: str, before: str) -> Joined:
        """Make an invitation a token and a session, once.

        Args:
            secret: Of the invitation.
            before: The session that the browser had: it ends.

        Raises:
            AccessError: It was used or revoked, has expired, or never was.
        """
        token, digest = make_token(), digest_token(secret)
        with self.open_reader() as reader:
            member = next((one.member for one in reader.invitations() if one.digest == digest), "")
        with acting_as(member), self.open_store("an invitation") as store:
            record = store.accept_invitation(digest, digest_token(token))
        person = Person(name=record.member, role=Role[record.role.upper()])
        session = self.begin_session(person, before, token=record.digest)
        return Joined(person=person, token=token, session=session, expires=record.expires)

    def open_identity(self, identity: Identity, before: str) -> str | None:
        """Return the secret of a new session for a person of the provider; None for one who has no name here."""
        key = digest_identity(identity.issuer, identity.subject)
        with self.open_reader() as reader:
            found = reader.find_sign_in(key)
        if found is None or found.revoked is not None:
            return None
        return self.begin_session(Person(name=found.member, role=identity.role), before, identity=key)

    def keep_identity(self, identity: Identity) -> str:
        """Return the secret by which a person who has signed in chooses their name here, within 15 minutes."""
        secret = secrets.token_urlsafe(32)
        details = {"issuer": identity.issuer, "subject": identity.subject, "role": identity.role.name}
        code = EntryCode(
            digest=digest_token(secret), kind=_IDENTITY, details=json.dumps(details), until=self.clock() + LINK_SECONDS
        )
        with self.open_store("a sign-in") as store:
            store.keep_entry_code(code)
        return secret

    def bind_identity(self, secret: str, name: str, person: Person | None, before: str) -> str:
        """Give a person of the provider their name, and return the secret of their session.

        Args:
            secret: What `keep_identity` returned.
            name: What they chose.
            person: Whose session the browser has: it proves a name that is in use.
            before: That session, which ends.

        Raises:
            AccessError: The secret was used, or is too old.
            ConflictError: The name is another member's.
        """
        code = self._take_code(secret, _IDENTITY)
        if code is None:
            raise AccessError("this sign-in took too long", "", "sign in again")
        details = json.loads(code.details)
        issuer, subject = str(details["issuer"]), str(details["subject"])
        record = SignInRecord(
            identity=digest_identity(issuer, subject), issuer=issuer, subject=subject, member=name, created=self.clock()
        )
        proven = person is not None and person.session and person.name == name
        with acting_as(name), self.open_store("a sign-in") as store:
            try:
                store.bind_sign_in(record, proven=proven)
            except ConflictError:
                store.keep_entry_code(code)  # for another name
                raise
        identity = Identity(issuer=issuer, subject=subject, role=Role[details["role"]], suggestion=name)
        session = self.open_identity(identity, before)
        assert session is not None  # noqa: S101  # it was bound just now
        return session

    def _take_code(self, secret: str, kind: str) -> EntryCode | None:
        """Return what a secret that works once opens, and forget it. A wrong one costs little: everyone may try."""
        digest = digest_token(secret)
        with self.open_reader() as reader:
            if not reader.has_entry_code(digest):
                return None
        with self.open_store("a sign-in") as store:
            return store.take_entry_code(digest, kind)

    def find_opener(self, session: str) -> Opener | None:
        """Return what opened the session of a digest, while it lets its person in; else None."""
        person = self._identify_session(session)
        with self.open_reader() as reader:
            found = reader.find_session(session)
        if person is None or found is None:
            return None
        if found.identity:
            return Opener(project=person.project, subject=f"sign_in {found.identity}")
        # The token of the server's own computer is no row: who has it has the server.
        return Opener(project=person.project, subject="" if self._is_own(found.token) else f"token {found.token}")

    def limit_token(self, session: str) -> float:
        """Return until when a token may count that a session's person gives to a computer.

        By an identity provider: as long as the longest session of that sign-in, so that who is disabled there is out
        then. By a token: as long as that.
        """
        now = self.clock()
        with self.open_reader() as reader:
            found = reader.find_session(digest_token(session))
            token = reader.find_token(found.token) if found is not None and found.token else None
        if found is None or found.identity:
            return found.begun + SESSION_SECONDS if found is not None else now
        return now + TOKEN_SECONDS if token is None else min(token.expires, now + TOKEN_SECONDS)

    def close_session(self, secret: str) -> None:
        """End a session."""
        with self.open_store("a sign-out") as store:
            store.end_session(digest_token(secret))

    def identify(self, *, bearer: str = "", session: str = "") -> Person | None:
        """Return who has this token or session; None for neither.

        Raises:
            StoreError: The store cannot be read.
        """
        if bearer:
            digest = digest_token(bearer)
            if self._is_own(digest):
                return self._own_person()
            with self.open_reader() as reader:
                return self._identify_token(reader, digest)
        return self._identify_session(digest_token(session)) if session else None

    def _identify_session(self, digest: str) -> Person | None:
        now = self.clock()
        with self.open_reader() as reader:
            found = reader.find_session(digest)
            if found is None or found.ended is not None:
                return None
            if now - found.used > IDLE_SECONDS or now - found.begun > SESSION_SECONDS:
                return None
            person = self._identify_opener(reader, found)
        if person is None:
            return None
        if now - found.used > NOTE_SECONDS:
            with contextlib.suppress(OrchError), self.open_store("a session") as store:  # it ends earlier then
                store.note_session_use(digest)
        return replace(person, session=True, token="")

    def _identify_opener(self, reader: Reader, session: SessionRecord) -> Person | None:
        """Return whose session it is, as long as what opened it counts."""
        if session.token:
            return self._identify_token(reader, session.token)
        sign_in = reader.find_sign_in(session.identity)
        if sign_in is None or sign_in.revoked is not None:
            return None
        return Person(name=session.member, role=Role[session.role.upper()])

    def _identify_token(self, reader: Reader, digest: str) -> Person | None:
        if self._is_own(digest):
            return self._own_person()
        found: TokenRecord | None = reader.find_token(digest)
        if found is None or not counts_with_parents(reader, found, self.clock()):
            return None
        return Person(name=found.member, role=Role[found.role.upper()], project=found.project, token=found.digest)

    def _is_own(self, digest: str) -> bool:
        return bool(self._token) and secrets.compare_digest(digest, self._token)

    def _own_person(self) -> Person:
        return Person(name=self.member, role=Role.ADMIN)
