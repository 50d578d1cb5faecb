"""Which keys the hosts of a node have: from its metadata, where it says so, else keys of their own.

Read from metadata: `ssh-keys` (lines of user:key); host keys from the items `orch-host-keys-0`, `-1`, ... (words
RANK:BASE64 with commas between, the base64 being what stands inside an OpenSSH key file), or else whole OpenSSH private
keys in any item, in worker order. A node of a multislice request whose items hold the keys of all slices takes its own
share.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from orchestrator.simulator.calls import Look

ITEM = "orch-host-keys-"
_BEGIN, _END = "-----BEGIN OPENSSH PRIVATE KEY-----", "-----END OPENSSH PRIVATE KEY-----"
_PEM = re.compile(rf"{_BEGIN}\s.*?{_END}", re.DOTALL)
_WORD = re.compile(r"([0-9]+):([A-Za-z0-9+/=]+)")


def with_keys(look: Look) -> Look:
    """The look with what `bodies.keys_of` reads. Equal for equal looks; two lives of one name have different keys."""
    metadata: Mapping[str, Any] = look.extra.get("node", {}).get("metadata", {})
    sent = _share(_sent(metadata), look) or [""] * look.size
    private = [key if _public(key) else _own(look, rank) for rank, key in enumerate(sent)]
    keys = {
        "user_public": "\n".join(_user_keys(str(metadata.get("ssh-keys", "")))),
        "host_private": private,
        "host_public": [_public(each) for each in private],
    }
    return replace(look, extra={**look.extra, "keys": keys})


def _user_keys(item: str) -> list[str]:
    return [line.partition(":")[2].strip() for line in item.splitlines() if ":" in line]


def _sent(metadata: Mapping[str, Any]) -> list[str]:
    """Private host keys in the metadata, in worker order, each once."""
    packed = {
        int(word.group(1)): f"{_BEGIN}\n{word.group(2)}\n{_END}\n"
        for key, value in metadata.items()
        if key.startswith(ITEM)
        for word in _WORD.finditer(str(value))
    }
    if packed:
        return [packed[rank] for rank in sorted(packed)]
    found = [block + "\n" for value in metadata.values() for block in _PEM.findall(str(value))]
    return list(dict.fromkeys(found))


def _share(keys: list[str], look: Look) -> list[str]:
    """Those of this node's workers; none where the number does not fit."""
    if len(keys) == look.size:
        return keys
    index = int(look.extra.get("slice", 0))
    mine = keys[index * look.size : (index + 1) * look.size]
    return mine if len(mine) == look.size else []


def image_key(look: Look, rank: int) -> str:
    """The key that the host's image has made, before any start-up script."""
    return _own(look, rank, "image ")


def _own(look: Look, rank: int, kind: str = "") -> str:
    seed = hashlib.sha256(f"{kind}{look.zone}/{look.name}/{look.uid}/{look.created}/{rank}".encode()).digest()
    return _text(Ed25519PrivateKey.from_private_bytes(seed))


def _text(key: Ed25519PrivateKey) -> str:
    form = serialization.PrivateFormat.OpenSSH
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode("ascii")


def _public(private: str) -> str:
    """ "" for what is no key: a host that cannot read it keeps its own."""
    try:
        key = serialization.load_ssh_private_key(private.encode(), None).public_key()
    except ValueError:
        return ""
    form = serialization.PublicFormat.OpenSSH
    return key.public_bytes(serialization.Encoding.OpenSSH, form).decode("ascii")
