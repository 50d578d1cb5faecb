"""Which keys the hosts of a launch have: those of its user-data where they are ours, else keys of their own."""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib
from dataclasses import replace
from functools import lru_cache
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from orchestrator.providers.aws.userdata import unpack
from orchestrator.simulator.calls import Look


def with_keys(look: Look) -> Look:
    """The look with what `bodies.keys_of` reads. Equal for equal looks; other launches have others."""
    data = str(look.extra.get("ec2", {}).get("user_data", ""))
    keys = _keys(data, f"{look.uid}/{look.created}", look.size)
    return replace(look, extra={**look.extra, "keys": keys})


@lru_cache(maxsize=64)
def _keys(data: str, seed: str, hosts: int) -> dict[str, Any]:
    user, sent = _sent(data)
    private = list(sent) if len(sent) == hosts else [_own(f"{seed}/{rank}") for rank in range(hosts)]
    return {"user_public": user, "host_private": private, "host_public": [_public(each) for each in private]}


def _sent(data: str) -> tuple[str, tuple[str, ...]]:
    """The user's key and the hosts' in the user-data, which is base64; nothing where somebody else wrote it."""
    try:
        raw = base64.b64decode(data)
        text = (zlib.decompress(raw, 31) if raw[:2] == b"\x1f\x8b" else raw).decode()
        return unpack(text)
    except (ValueError, binascii.Error, zlib.error):
        return "", ()


def _own(seed: str) -> str:
    key = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(seed.encode()).digest())
    form = serialization.PrivateFormat.OpenSSH
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode("ascii")


def _public(private: str) -> str:
    key = serialization.load_ssh_private_key(private.encode(), None).public_key()
    form = serialization.PublicFormat.OpenSSH
    return key.public_bytes(serialization.Encoding.OpenSSH, form).decode("ascii")
