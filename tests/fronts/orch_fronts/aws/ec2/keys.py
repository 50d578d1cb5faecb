"""Which keys the hosts of a launch have: those of its user-data, else host keys of their own.

The user-data is read as cloud-init does (its documentation, "Cloud config examples" and module "SSH", read November
2026): `ssh_authorized_keys` is admitted. The script of `bootcmd` is not run. Its line `orch_keys=` has the host keys in
base64: for each host the seed and the public half of an Ed25519 key, 32 bytes each (RFC 8032, 5.1.5).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import zlib
from dataclasses import replace
from functools import lru_cache
from typing import Any, cast

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from orchestrator.simulator.calls import Look

_PACKED = re.compile(r"^orch_keys=(\S+)$", re.MULTILINE)


def with_keys(look: Look) -> Look:
    """The look with what `bodies.keys_of` reads. Equal for equal looks; other launches have others."""
    data = str(look.extra.get("ec2", {}).get("user_data", ""))
    keys = _keys(data, f"{look.uid}/{look.created}", look.size)
    return replace(look, extra={**look.extra, "keys": keys})


@lru_cache(maxsize=64)
def _keys(data: str, seed: str, hosts: int) -> dict[str, Any]:
    user, sent = _sent(data)
    seeds = (
        sent if len(sent) == hosts else [hashlib.sha256(f"{seed}/{rank}".encode()).digest() for rank in range(hosts)]
    )
    keys = [Ed25519PrivateKey.from_private_bytes(each) for each in seeds]
    return {"user_public": user, "host_private": list(map(_private, keys)), "host_public": list(map(_public, keys))}


def _sent(data: str) -> tuple[str, list[bytes]]:
    """The keys that log in, and the seeds of the hosts' keys; nothing where the user-data is no cloud-config."""
    try:
        raw = base64.b64decode(data)
        text = (zlib.decompress(raw, 31) if raw[:2] == b"\x1f\x8b" else raw).decode()
        config: object = yaml.safe_load(text) if text.startswith("#cloud-config") else None
        if not isinstance(config, dict):
            return "", []
        found = cast(dict[str, Any], config)
        packed = _PACKED.search("\n".join(str(word) for command in found.get("bootcmd", ()) for word in command))
        pairs = base64.b64decode(packed[1], validate=True) if packed else b""
        return "\n".join(found.get("ssh_authorized_keys", ())), [pairs[at : at + 32] for at in range(0, len(pairs), 64)]
    except (ValueError, binascii.Error, zlib.error, yaml.YAMLError):
        return "", []


def _private(key: Ed25519PrivateKey) -> str:
    form = serialization.PrivateFormat.OpenSSH
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode("ascii")


def _public(key: Ed25519PrivateKey) -> str:
    form = serialization.PublicFormat.OpenSSH
    return key.public_key().public_bytes(serialization.Encoding.OpenSSH, form).decode("ascii")
