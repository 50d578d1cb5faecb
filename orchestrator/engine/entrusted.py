"""Secrets of jobs that are left to an engine. Their values are in the engine's environment and nowhere on disk.

The record keeps four hexadecimal digits, made with a salt: enough to see that an engine has another value than the job
was launched with (but for 1 in 65,536), too little to find the value or to confirm a guess.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from orchestrator.errors import UserError
from orchestrator.spec.task import Task

DIGITS = 4


def trace_of(salt: str, secrets: Mapping[str, str]) -> str:
    """The digits for these values; "" when there are none."""
    if not secrets:
        return ""
    content = json.dumps([salt, sorted(secrets.items())])
    return hashlib.sha256(content.encode()).hexdigest()[:DIGITS]


def lack(task: str, salt: str, trace: str, environ: Mapping[str, str]) -> UserError | None:
    """Why this process cannot give the task its secrets; None when it can, or when there are none.

    trace: what was kept at the launch; "" is not compared.
    """
    names = Task.from_json(task).secret_names if task else ()
    missing = [name for name in names if name not in environ]
    if missing:
        return UserError(f"secret {missing[0]} has no value in this engine")
    if trace and trace_of(salt, {name: environ[name] for name in names}) != trace:
        return UserError(f"secret {', '.join(names)}: another value in this engine than at the launch")
    return None


def has_secrets(task: str) -> bool:
    return bool(task) and bool(Task.from_json(task).secret_names)
