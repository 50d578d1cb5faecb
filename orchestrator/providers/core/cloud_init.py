"""User data for cloud-init: one machine's own host key and the keys that log in to the default account of its image.

Keys under `ssh_keys` are written and no others are generated; `ssh_deletekeys` removes those of the image before
(canonical/cloud-init, cloudinit/config/cc_ssh.py at 00ecc100a0dd, read 2026-11-26).
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from orchestrator.values import Unknown


def user_data_of(rank: int) -> Unknown:
    """Return the unknown that stands for the user data of a host, which is made at create."""
    return Unknown(f"user data of host {rank}, with its host key")


def render_user_data(login_keys: Sequence[str], host_private: str, host_public: str) -> str:
    """Return a cloud-config; JSON is YAML, so every value is quoted by the standard library."""
    config = {
        "ssh_deletekeys": True,
        "ssh_keys": {"ed25519_private": host_private, "ed25519_public": host_public},
        "ssh_authorized_keys": list(login_keys),
    }
    return f"#cloud-config\n{json.dumps(config, indent=1)}\n"
