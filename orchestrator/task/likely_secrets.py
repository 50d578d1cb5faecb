"""Recognise variables of `envs` that are secrets by their name or the form of their value, so that no plan shows them.

No rule knows all of them, and none that it misses is lost: a value is hidden for certain below `secrets` only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from orchestrator.values import MASK, Secret, Text, to_text

_NAME = re.compile(
    r".*(TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|AUTHORIZATION|COOKIE"
    r"|(API|ACCESS|PRIVATE|SECRET|AUTH|ENCRYPTION|SIGNING|ACCOUNT)[_-]?KEYS?|(^|_)PASS|_PWD|_PAT)"
    r"(_?\d+|_(READ|WRITE|RO|RW))?",
    re.IGNORECASE,
)
# Words of a tokenizer, and paths of files: https://cloud.google.com/docs/authentication/application-default-credentials
_HARMLESS = re.compile(
    r"(.*_)?(PAD|BOS|EOS|UNK|SEP|CLS|MASK|START|END|STOP|PER|SPECIAL|IMAGE)_TOKEN|GOOGLE_APPLICATION_CREDENTIALS",
    re.IGNORECASE,
)
# Prefixes as in https://github.com/gitleaks/gitleaks, config/gitleaks.toml (2026-11), and lengths somewhat shorter.
# Repetitions are bounded: the value may come from a bucket, and is read in linear time.
_VALUE = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----"  # PEM, RFC 7468 and RFC 5958
    r"|://[^/\s:@]*:[^/\s@]+@"  # a password in an address, RFC 3986, 3.2.1
    r"|https?://[^/\s:@]{16,}@"  # a token in place of the user
    r"|https://hooks\.slack\.com/services/\w"
    r"|[?&](?i:access_token|token|sig|signature|x-amz-signature|api_?key|password)=[^&\s]{8}"  # a signed address
    r"|\b(Bearer|Basic) [\w.~+/-]{16}"  # RFC 9110, 11.4
    r"|AccountKey=[\w+/]{16}"  # a connection string of Azure Storage
    r"|(?<![A-Za-z0-9])("
    r"hf_[A-Za-z0-9]{16,}"  # Hugging Face
    r"|gh[opsur]_[A-Za-z0-9]{16,}|github_pat_\w{16,}"
    r"|A[KS]IA[A-Z0-9]{16}"  # access keys of AWS
    r"|sk-(?=[\w-]{0,99}\d)[\w-]{16}"  # OpenAI, Anthropic
    r"|glpat-[\w-]{16,}|xox[abeprs]-[\w-]{10,}|AIza[\w-]{35}"  # GitLab, Slack, Google
    r"|eyJ[\w-]{8,300}\.eyJ[\w-]{8}"  # a JSON Web Token, RFC 7519
    r")"
)


def is_likely_secret(name: str, value: str) -> bool:
    """Return whether a variable with this name or value is likely a secret."""
    named = _NAME.fullmatch(name) is not None and _HARMLESS.fullmatch(name) is None
    return bool(value) and (named or _VALUE.search(value) is not None)


def hide_likely_secret(name: str, value: str) -> Text:
    """Return the value of a variable, as a secret if it is likely one."""
    return to_text(Secret(name, value) if is_likely_secret(name, value) else value)


def mask_likely_secrets(task: str) -> str:
    """Return a task, as `Task.to_json` wrote it, with its likely secrets masked."""
    document: dict[str, Any] = json.loads(task) if task else {}
    envs: dict[str, str] = document.get("envs", {})
    hidden = {name: MASK for name, value in envs.items() if is_likely_secret(name, value)}
    return json.dumps({**document, "envs": {**envs, **hidden}}, indent=2, ensure_ascii=False) + "\n" if hidden else task


def likely_secrets_note(envs: Iterable[tuple[str, str]]) -> str:
    """Return the note that proposes `secrets` for the variables that are likely secrets; "" when there are none."""
    names = [name for name, value in envs if is_likely_secret(name, value)]
    if not names:
        return ""
    subject = f"{', '.join(names)} in envs {'look like secrets' if len(names) > 1 else 'looks like a secret'}"
    return (
        f"{subject}: plans mask such values, but the store and the bucket keep them. Write instead\n"
        f"  secrets: {{{', '.join(f'{name}: null' for name in names)}}}\n"
        f"and give the value by the shell (export {names[0]}=...), or with --secret {names[0]}=..."
    )
