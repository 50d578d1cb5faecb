"""The keys with which a host is logged in to: orch's own, or those that a person's own SSH would use."""

from __future__ import annotations

import base64
import copy
import getpass
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    SSHCertificate,
    load_ssh_public_identity,
)
from paramiko import PasswordRequiredException, PKey, SSHException
from paramiko.agent import AgentKey
from paramiko.message import Message
from paramiko.pkey import PublicBlob, UnknownKeyType

from orchestrator.errors import UserError
from orchestrator.hosts import HostAddress, OwnSsh
from orchestrator.messages import escape_controls, to_one_line
from orchestrator.remote.agent import Agent, find_agent
from orchestrator.remote.failures import HostFailure, describe_error

_TRIES = 3  # for one passphrase, as ssh allows
_LONGEST_COMMENT = 100  # characters
_LARGEST_KEY = 1 << 20  # bytes; MAX_KEY_FILE_SIZE of OpenSSH (authfile.c, 9.9)
_FORMAT = b"openssh-key-v1\0"  # PROTOCOL.key of OpenSSH

AskPassphrase = Callable[[str], str | None]
"""Gets the question, and returns the passphrase; None when no one is there to answer."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A key that can sign. `name` is for messages."""

    key: PKey
    name: str


def can_ask() -> bool:
    """Return whether a person is at the terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask_on_terminal(question: str) -> str | None:
    """Ask the person at the terminal, without an echo. Return None when there is no terminal."""
    if not can_ask():
        return None
    try:
        return getpass.getpass(question)
    except EOFError:
        return None


class KeyRing:
    """The keys of one command: each file is read once, and for each passphrase is asked once. Thread-safe."""

    def __init__(
        self, ask: AskPassphrase = ask_on_terminal, *, attended: bool = True, identity: Path | None = None
    ) -> None:
        """Prepare an empty ring.

        Args:
            ask: Asks for a passphrase.
            attended: Whether a person sits at the terminal, if there is one.
            identity: The key for hosts that orch made, in place of this computer's own.
        """
        self._ask, self._attended, self._identity = ask, attended, identity
        self._lock = threading.Lock()
        self._keys: dict[Path, PKey] = {}
        self._agents: dict[str, Agent | None] = {}  # None: it does not answer
        self._refused: dict[Path, UserError] = {}

    def identities(self, address: HostAddress) -> tuple[Identity, ...]:
        """Return the keys of a host in the order in which they are tried.

        Raises:
            UserError: There is none, or the key cannot be used.
        """
        with self._lock:
            if address.own is None:
                path = self._identity or address.identity_file
                return (Identity(self._load(path), str(path)),)
            found = self._own(address.own)
            if not found:
                raise _no_key(address)
            return tuple(found)

    def has_identity(self, address: HostAddress) -> bool:
        """Return whether some key may log in, as far as it can be known without a passphrase.

        Raises:
            UserError: The only keys have passphrases, and no one to type them, or others can read them.
        """
        own = address.own
        if own is None:
            return True
        agent = self._agent_keys(own)
        if agent and not own.only:
            return True
        held = [path for path in own.keys if public_blob(path) in agent]
        files = [path for path in own.keys if path in held or (path.suffix != ".pub" and os.access(path, os.R_OK))]
        flaws = [None if path in held else _find_flaw(path) for path in files]
        if files and (flaw := flaws[0]) is not None and all(flaws):
            raise flaw
        locked = [path for path in files if path not in held and is_locked(path)]
        if locked and locked == files and not (self._attended and can_ask()):
            raise passphrase_error(locked[0])
        return bool(files)

    def _own(self, own: OwnSsh) -> list[Identity]:
        """Return a person's keys as ssh tries them: files that the agent has, its others, then what must be read.

        A passphrase is asked for where the person named the key, or where no other key is left to try.
        """
        agent = self._agent_keys(own)
        blobs = {path: public_blob(path) for path in own.keys}
        held = [path for path in own.keys if blobs[path] in agent]
        unread = [path for path in own.keys if path not in held and path.suffix != ".pub" and os.access(path, os.R_OK)]
        found: list[Identity] = []
        for path in held:
            found += _with_certificates(Identity(agent[blobs[path] or b""].key, f"{path} by the agent"), path, own)
        found += [one for blob, one in agent.items() if not own.only and blob not in blobs.values()]
        refused: UserError | None = None
        for path in sorted(unread, key=self._must_ask):
            if self._must_ask(path) and not own.named and found:
                continue
            try:
                found += _with_certificates(Identity(self._load(path), str(path)), path, own)
            except UserError as error:
                refused = refused or error
        if not found and refused is not None:
            raise refused
        return found

    def _must_ask(self, path: Path) -> bool:
        return path not in self._keys and is_locked(path)

    def _agent_keys(self, own: OwnSsh) -> dict[bytes, Identity]:
        path = find_agent(own.agent)
        if not path:
            return {}
        if path not in self._agents:
            try:
                self._agents[path] = Agent(path)
            except HostFailure:  # an agent of an earlier login: the files are left
                self._agents[path] = None
        agent = self._agents[path]
        keys = () if agent is None else agent.keys
        return {key.asbytes(): Identity(key, f"{_plain(key.comment)} by the agent") for key in keys}

    def _load(self, path: Path) -> PKey:
        if path in self._refused:
            raise self._refused[path]
        if path not in self._keys:
            try:
                self._keys[path] = self._read(path)
            except UserError as error:
                self._refused[path] = error
                raise
        return self._keys[path]

    def _read(self, path: Path) -> PKey:
        """Return the private key in `path`. Raises UserError, since a missing key is no host's failure."""
        if path.exists() and (flaw := _find_flaw(path)) is not None:
            raise flaw
        try:
            return PKey.from_path(path)
        except FileNotFoundError:
            raise UserError(
                f"the SSH key {path} does not exist", next_step=f"ssh-keygen -t ed25519 -f {quote(str(path))}"
            ) from None
        except (PasswordRequiredException, TypeError):
            return self._unlock(path)
        except (OSError, SSHException, UnknownKeyType, ValueError) as error:
            raise UserError(
                f"the SSH key {path} cannot be read",
                describe_error(error),
                f"ssh-keygen -y -f {quote(str(path))}   shows why",
            ) from error

    def _unlock(self, path: Path) -> PKey:
        for attempt in range(_TRIES):
            passphrase = self._ask(f"passphrase of {path}{' (wrong, again)' if attempt else ''}: ")
            if not passphrase:
                raise passphrase_error(path)
            try:
                return PKey.from_path(path, password=passphrase.encode())  # type: ignore[arg-type]  # bytes are meant
            except (SSHException, ValueError):
                continue
        raise UserError(
            f"the passphrase of {path} was wrong", f"{_TRIES} times", f"ssh-keygen -y -f {quote(str(path))}   tries it"
        )


def passphrase_error(path: Path) -> UserError:
    """Return the error for a key whose passphrase no one can type here."""
    return UserError(
        f"the SSH key {path} has a passphrase",
        "no agent has the key, and no one can type the passphrase here",
        f"eval $(ssh-agent); ssh-add {quote(str(path))}   then the same command again",
    )


def _find_flaw(path: Path) -> UserError | None:
    """Return why a file is not used as a private key: it is none, or others could have read it, as ssh judges."""
    found = path.stat()
    if not _may_be_key(path):
        shows = f"ls -lL {quote(str(path))}"
        return UserError(f"the SSH key {path} cannot be read", "it is not a file with a key", shows)
    if found.st_uid == os.getuid() and found.st_mode & 0o077:
        return UserError(
            f"the SSH key {path} can be read by others",
            f"its mode is {found.st_mode & 0o777:04o}, and ssh uses no such key either",
            f"chmod 600 {quote(str(path))}   or a new key, if others use this computer",
        )
    return None


def _may_be_key(path: Path) -> bool:
    """Return whether reading `path` ends: a pipe would keep us waiting, and a device may have no end."""
    try:
        found = path.stat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size <= _LARGEST_KEY


def public_blob(path: Path) -> bytes | None:
    """Return the public key of a key file in SSH wire format, without its passphrase; None where it is not known."""
    for public in (path, path.with_name(path.name + ".pub")):
        try:
            words = public.read_text("ascii").split() if _may_be_key(public) else []
            if len(words) > 1 and words[0] != "-----BEGIN":
                return base64.b64decode(words[1], validate=True)
        except (OSError, ValueError):
            continue
    content = _openssh_content(path)
    if content is None:
        return None
    try:
        message = Message(content)
        for _ in range(3):  # cipher, kdf, its options
            message.get_binary()
        return message.get_binary() if message.get_int() == 1 else None
    except (IndexError, ValueError):
        return None


def is_locked(path: Path) -> bool:
    """Return whether a private key needs a passphrase."""
    content = _openssh_content(path)
    if content is not None:
        return Message(content).get_binary() != b"none"
    try:
        return _may_be_key(path) and b"ENCRYPTED" in path.read_bytes()
    except OSError:
        return False


def _openssh_content(path: Path) -> bytes | None:
    """Return what follows the magic word of a private key in OpenSSH's own format; None for another file."""
    try:
        lines = path.read_text("ascii").split("-----") if _may_be_key(path) else []
        content = base64.b64decode("".join(lines[2].split()))
    except (OSError, ValueError, IndexError):
        return None
    return content.removeprefix(_FORMAT) if content.startswith(_FORMAT) else None


def _with_certificates(identity: Identity, path: Path, own: OwnSsh) -> Iterator[Identity]:
    """Yield the key with each of its certificates, and then without one."""
    plain = _twin(identity.key)
    base = path.with_name(path.name.removesuffix(".pub"))
    for certificate in dict.fromkeys((*own.certificates, base.with_name(base.name + "-cert.pub"))):
        try:
            certified = load_ssh_public_identity(certificate.read_bytes() if _may_be_key(certificate) else b"")
            blob = PublicBlob.from_file(str(certificate))
        except (OSError, ValueError, UnsupportedAlgorithm):
            continue
        if isinstance(certified, SSHCertificate) and _wire(certified) == plain.asbytes():
            signing = _twin(plain)
            signing.public_blob = blob
            yield Identity(signing, str(certificate))
    yield Identity(plain, identity.name)


def _plain(comment: str) -> str:
    """Return the comment of a key, which is of its maker's choice, as one line that a terminal prints."""
    return escape_controls(to_one_line(comment, _LONGEST_COMMENT))


def _wire(certificate: SSHCertificate) -> bytes:
    """Return the certified public key in SSH wire format."""
    line = certificate.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return base64.b64decode(line.split()[1])


def _twin(key: PKey) -> PKey:
    """Return the same key without a certificate."""
    if isinstance(key, AgentKey):  # copy() of one never ends, since it asks its inner key for every attribute
        return AgentKey(key.agent, key.blob, key.comment)
    twin = copy.copy(key)
    twin.public_blob = None
    return twin


def _no_key(address: HostAddress) -> UserError:
    return UserError(
        f"there is no SSH key for {address.user}@{address.host}",
        "no agent answers, and ~/.ssh has no private key that can be read",
        f"ssh-keygen -t ed25519   then: ssh-copy-id -p {address.port} {quote(f'{address.user}@{address.host}')}",
    )
