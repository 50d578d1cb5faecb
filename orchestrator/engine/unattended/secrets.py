"""Secrets of jobs that are handed to an engine. Their values are in the engine's environment and nowhere on disk.

The record keeps four hexadecimal digits of a salted hash: enough to see that an engine has another value than at the
launch (except for 1 in 65,536), too little to find the value or to confirm a guess.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from orchestrator.errors import UserError
from orchestrator.task.model import Task

DIGITS = 4
_RESTART = "start the engine with that secret: NAME=VALUE orch serve --engine-only"


def secrets_fingerprint(salt: str, secrets: Mapping[str, str]) -> str:
    """Return the digits for these values; "" when there are none."""
    if not secrets:
        return ""
    content = json.dumps([salt, sorted(secrets.items())])
    return hashlib.sha256(content.encode()).hexdigest()[:DIGITS]


def missing_secret_error(task: str, salt: str, fingerprint: str, environ: Mapping[str, str]) -> UserError | None:
    """Return why this process cannot give the task its secrets, or None.

    Args:
        task: The task as JSON.
        salt: The salt of the fingerprint.
        fingerprint: What was kept at the launch; "" is not compared.
        environ: This process's environment.
    """
    names = Task.from_json(task).secret_names if task else ()
    missing = [name for name in names if name not in environ]
    if missing:
        return UserError(f"secret {missing[0]} has no value in this engine", next_step=_RESTART)
    if fingerprint and secrets_fingerprint(salt, {name: environ[name] for name in names}) != fingerprint:
        return UserError(
            f"secret {', '.join(names)}: another value in this engine than at the launch", next_step=_RESTART
        )
    return None


def has_secrets(task: str) -> bool:
    """Return whether the task, given as JSON, names secrets."""
    return bool(task) and bool(Task.from_json(task).secret_names)
