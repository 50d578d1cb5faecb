"""What every instance reads at its boot: a cloud-config that installs our keys and sets a dead man's timer. Pure.

EC2 keeps one user-data for all instances of a request, 16,384 bytes of it (EC2 User Guide, "Run commands when you
launch an EC2 instance", 2026). So the host keys of all hosts are in it, each host takes its own by its launch index,
and a key travels as its 64 bytes alone: seed and public half, which are all that an OpenSSH file of an Ed25519 key says
(OpenSSH, PROTOCOL.key). cloud-init runs `bootcmd` before sshd starts, and is told to make no keys of its own.

The timer ends a machine that orch never reached, and one on which orch never set the timer of templates/limits/: that
one knows the limits as they are now, so where it was ever set this one does nothing.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Sequence
from math import ceil

from orchestrator.errors import UserError
from orchestrator.remote.private_key_file import BEGIN, END, KIND, MAGIC, format_private_key, format_public_key

LARGEST = 16_384  # bytes, before base64
USER = "ubuntu"  # the login name of Ubuntu's images, which cloud-init gives our key without being told
GRACE_SECONDS = 600  # beyond max_hours: the timer that orch sets comes first
MOST_HOSTS = 144  # their keys fit, beside an Ed25519 key of the user's
_PAIR = 64
_PUBLIC = re.compile(r"(ssh-[a-z0-9-]+|ecdsa-[a-z0-9-]+|sk-[a-z0-9@.-]+) ([A-Za-z0-9+/]+={0,2})(?: .*)?")
_LOGIN = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_HEAD = """\
#cloud-config
ssh_deletekeys: false
ssh_genkeytypes: [ed25519]
ssh_authorized_keys: [{keys}]
{users}bootcmd:
- - bash
  - -c
  - |
"""
_USERS = 'users: [default, {{name: "{user}", ssh_authorized_keys: [{keys}]}}]\n'
_PACKED_KEYS = re.compile(r"^( *orch_keys=)(\S*)$", re.MULTILINE)
_USER_NAME = re.compile(r'^users: \[default, \{name: "([a-z_][a-z0-9_-]{0,31})"', re.MULTILINE)
_USER_KEYS = re.compile(r"^ssh_authorized_keys: (\[.*\])$", re.MULTILINE)


def render(
    user_public: str,
    host_private: Sequence[str],
    user: str = USER,
    max_hours: float | None = None,
    *,
    recovery_public: str = "",
) -> str:
    """user_public: the line for authorized_keys, whose comment is left out. host_private: one OpenSSH file per rank.

    recovery_public: another such line, of a key that is to log in too; "" for none.

    Raises UserError when it gets too long, ValueError for what is no key and for a login name that there cannot be.
    """
    from orchestrator.render.templates import render_template  # loads Jinja, which offers do not need

    found = [_PUBLIC.fullmatch(line.strip()) for line in (user_public, recovery_public) if line]
    if None in found or not found or not _LOGIN.fullmatch(user):
        raise ValueError("the user's key is not a public key, or its login name is none")
    keys = ", ".join(f'"{public[1]} {public[2]}"' for public in found if public is not None)
    packed = base64.b64encode(b"".join(map(_pair, host_private))).decode()
    limit = ceil(max_hours * 3600) + GRACE_SECONDS if max_hours else 0
    script = render_template("aws/boot.sh.j2", keys=packed, user=user, max_seconds=limit)
    users = "" if user == USER else _USERS.format(user=user, keys=keys)
    lines = [f"    {line}\n" if line else "\n" for line in script.splitlines()]
    whole = _HEAD.format(keys=keys, users=users) + "".join(lines)
    if (size := len(whole.encode())) > LARGEST:
        fit = len(host_private) - ceil((size - LARGEST) * 3 / 4 / _PAIR)
        raise UserError(
            f"the keys of {len(host_private)} hosts do not fit into EC2's user-data",
            f"it holds {LARGEST:,} bytes and would have {size:,}: up to {fit} hosts fit",
            "ask for fewer machines, or for several clusters",
        )
    return whole


def unpack(text: str) -> tuple[str, tuple[str, ...]]:
    """The keys that log in, a line each, and the hosts' private ones, as `render` packed them.

    Raises ValueError for other text.
    """
    keys, packed = _USER_KEYS.search(text), _PACKED_KEYS.search(text)
    if keys is None or packed is None:
        raise ValueError("this is not user-data of orch")
    raw = base64.b64decode(packed[2], validate=True)
    if len(raw) % _PAIR:
        raise ValueError("the host keys are incomplete")
    hosts = tuple(format_private_key(raw[start : start + _PAIR]) for start in range(0, len(raw), _PAIR))
    return "\n".join(json.loads(keys[1])), hosts


def unpack_public(text: str) -> tuple[str, ...]:
    """The hosts' public keys, one line for each rank. Raises ValueError for text that `render` did not write."""
    packed = _PACKED_KEYS.search(text)
    raw = base64.b64decode(packed[2], validate=True) if packed is not None else b""
    if not raw or len(raw) % _PAIR:
        raise ValueError("there are no host keys of orch in it")
    return tuple(format_public_key(raw[start + 32 : start + _PAIR]) for start in range(0, len(raw), _PAIR))


def without_host_keys(text: str) -> str:
    """What `render` made, without the private keys: it may be kept until it is sent."""
    return _PACKED_KEYS.sub(r"\1", text)


def with_keys(text: str, user_public: str, host_private: Sequence[str]) -> str:
    """What `without_host_keys` left, with these keys. user_public: "" leaves the key that is in it."""
    packed = base64.b64encode(b"".join(map(_pair, host_private))).decode()
    old, new = _USER_KEYS.search(text), _PUBLIC.fullmatch(user_public.strip())
    if old is not None and new is not None:
        text = text.replace(str(json.loads(old[1])[0]), f"{new[1]} {new[2]}")
    return _PACKED_KEYS.sub(lambda found: found[1] + packed, text)


def login_of(text: str) -> str:
    """Return the login name that `render` wrote; "" for the image's usual one."""
    found = _USER_NAME.search(text)
    return found[1] if found is not None else ""


def _pair(key: str) -> bytes:
    """Seed and public half. Raises ValueError for what is no OpenSSH file of an Ed25519 key without a passphrase."""
    try:
        first, *middle, last = key.strip().splitlines()
        raw = base64.b64decode("".join(middle), validate=True)
        cipher, derivation, _options, rest = _fields(raw.removeprefix(MAGIC), 3)
        _public, private, _rest = _fields(rest[4:], 2)
        kind, _half, pair, _rest = _fields(private[8:], 3)
    except (ValueError, struct.error):
        raise ValueError("a host key is not an OpenSSH private key") from None
    right = (first, last, cipher, derivation, kind) == (BEGIN, END, b"none", b"none", KIND)
    if not right or not raw.startswith(MAGIC) or len(pair) != _PAIR:
        raise ValueError("a host key is not an OpenSSH private key of the kind Ed25519")
    return pair


def _fields(raw: bytes, count: int) -> list[bytes]:
    """So many fields, and what is behind them."""
    found: list[bytes] = []
    for _ in range(count):
        (length,) = struct.unpack(">I", raw[:4])
        found.append(raw[4 : 4 + length])
        raw = raw[4 + length :]
    return [*found, raw]
