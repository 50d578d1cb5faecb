"""The recovery key: a public key of the user that every rented host admits. Read without a library for keys."""

from __future__ import annotations

from orchestrator.errors import UserError
from orchestrator.hosts import parse_public_key
from orchestrator.task.config import Config

RECOVERY_KEY = "ssh.recovery_key"  # in the configuration


def read_recovery_key(config: Config) -> str:
    """Return the public key that every rented host admits beside its maker's, without a comment; "" for none.

    Raises:
        UserError: The setting is no public key.
    """
    given = config.text(RECOVERY_KEY)
    found = parse_public_key(given)
    if given and not found:
        private = "PRIVATE KEY" in given
        raise UserError(
            f"{RECOVERY_KEY} is not a public SSH key",
            "it is a private key, which must stay where it is" if private else f"it begins with {given[:20]!r}",
            f'orch config set {RECOVERY_KEY} "$(cat KEY.pub)"   with the file that ssh-keygen wrote beside the key',
        )
    return found
