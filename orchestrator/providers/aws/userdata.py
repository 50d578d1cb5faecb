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
from orchestrator.render.templates import render_template

LARGEST = 16_384  # bytes, before base64
USER = "ubuntu"  # the login name of Ubuntu's images, which cloud-init gives our key without being told
GRACE_SECONDS = 600  # beyond max_hours: the timer that orch sets comes first
MOST_HOSTS = 144  # their keys fit, beside an Ed25519 key of the user's
_BEGIN = "-----BEGIN OPENSSH PRIVATE KEY-----"
_END = "-----END OPENSSH PRIVATE KEY-----"
_MAGIC = b"openssh-key-v1\0"
_KIND = b"ssh-ed25519"
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
_PACKED_KEYS = re.compile(r"^ *orch_keys=(\S*)$", re.MULTILINE)
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
    raw = base64.b64decode(packed[1], validate=True)
    if len(raw) % _PAIR:
        raise ValueError("the host keys are incomplete")
    return "\n".join(json.loads(keys[1])), tuple(
        private_file(raw[start : start + _PAIR]) for start in range(0, len(raw), _PAIR)
    )


def private_file(pair: bytes) -> str:
    """The OpenSSH file that a host makes of its 64 bytes."""
    public = _field(_KIND) + _field(pair[32:])
    private = bytes(8) + public + _field(pair) + _field(b"") + bytes(range(1, 6))
    whole = _MAGIC + _field(b"none") * 2 + _field(b"") + struct.pack(">I", 1) + _field(public) + _field(private)
    line = base64.b64encode(whole).decode()
    rows = [line[start : start + 70] for start in range(0, len(line), 70)]
    return "\n".join([_BEGIN, *rows, _END, ""])


def _pair(key: str) -> bytes:
    """Seed and public half. Raises ValueError for what is no OpenSSH file of an Ed25519 key without a passphrase."""
    try:
        first, *middle, last = key.strip().splitlines()
        raw = base64.b64decode("".join(middle), validate=True)
        cipher, derivation, _options, rest = _fields(raw.removeprefix(_MAGIC), 3)
        _public, private, _rest = _fields(rest[4:], 2)
        kind, _half, pair, _rest = _fields(private[8:], 3)
    except (ValueError, struct.error):
        raise ValueError("a host key is not an OpenSSH private key") from None
    right = (first, last, cipher, derivation, kind) == (_BEGIN, _END, b"none", b"none", _KIND)
    if not right or not raw.startswith(_MAGIC) or len(pair) != _PAIR:
        raise ValueError("a host key is not an OpenSSH private key of the kind Ed25519")
    return pair


def _field(value: bytes) -> bytes:
    return struct.pack(">I", len(value)) + value


def _fields(raw: bytes, count: int) -> list[bytes]:
    """So many fields, and what is behind them."""
    found: list[bytes] = []
    for _ in range(count):
        (length,) = struct.unpack(">I", raw[:4])
        found.append(raw[4 : 4 + length])
        raw = raw[4 + length :]
    return [*found, raw]
