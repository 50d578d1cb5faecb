"""How a job of CI enters a service without a stored secret: the token that the CI gives to the job. Light.

GitHub gives another one at each request, so every command asks for its own: nothing has to be kept, and a command that
waits for hours for a run asks again. GitLab and others give one to a job, and a service exchanges each once: there
`orch login --ci` prints the token for the variable ORCH_TOKEN.

Sources: docs.github.com/en/actions/reference/security/oidc; docs.gitlab.com/ci/secrets/id_token_authentication (both
November 2026).
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from orchestrator.conversation import make_bounded_response
from orchestrator.errors import AccessError, CloudError, UserError

TOKEN, ID_TOKEN = "ORCH_TOKEN", "ORCH_ID_TOKEN"  # names of variables
_REQUEST_URL, _REQUEST_TOKEN = "ACTIONS_ID_TOKEN_REQUEST_URL", "ACTIONS_ID_TOKEN_REQUEST_TOKEN"  # the same
_SECONDS = 30.0
_MOST_BYTES = 100_000


def can_request_id_token(environ: Mapping[str, str]) -> bool:
    """Whether this is a job of GitHub Actions with the permission `id-token: write`."""
    return bool(environ.get(_REQUEST_URL) and environ.get(_REQUEST_TOKEN))


def request_id_token(environ: Mapping[str, str], audience: str) -> str:
    """Return a new token of GitHub Actions for this job, which only one service accepts.

    Args:
        environ: The environment.
        audience: The address of that service.

    Raises:
        CloudError: GitHub does not give one.
    """
    url = environ[_REQUEST_URL]
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        raise UserError(f"{_REQUEST_URL} has no https", url[:100], f"unset {_REQUEST_URL}")
    path = f"{parts.path}?{parts.query}{'&' if parts.query else ''}audience={quote(audience, safe='')}"
    connection = http.client.HTTPSConnection(
        parts.hostname, parts.port, timeout=_SECONDS, context=ssl.create_default_context()
    )
    connection.response_class = make_bounded_response(_SECONDS, _MOST_BYTES)
    try:
        headers = {"Authorization": f"Bearer {environ[_REQUEST_TOKEN]}", "Accept": "application/json"}
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        content = answer.read(_MOST_BYTES)
        if answer.status != http.client.OK:
            raise ValueError(f"HTTP {answer.status}")
        found: dict[str, Any] = json.loads(content)
        return str(found["value"])
    except (OSError, http.client.HTTPException, ValueError, TypeError, LookupError, RecursionError) as error:
        step = "give the job the permission id-token: write"
        raise CloudError(
            "GitHub gives this job no token", f"{type(error).__name__}: {str(error)[:200]}", step
        ) from error
    finally:
        connection.close()


def read_id_token(environ: Mapping[str, str], audience: str, variable: str, file: Path | None) -> str:
    """Return the token of this job: of the file, of the variable, or a new one of GitHub.

    Raises:
        AccessError: There is none.
    """
    if file is not None:
        try:
            token = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeError) as error:
            raise UserError(f"the token in {file} cannot be read", str(error), f"ls -l {file}") from error
    elif not (token := environ.get(variable, "").strip()) and can_request_id_token(environ):
        token = request_id_token(environ, audience)
    if not token or not token.isascii():
        why = f"there is no variable {variable}, and GitHub Actions gives none"
        step = "GitHub: permissions: id-token: write; GitLab: id_tokens (docs/service.md)"
        raise AccessError("this job has no token of its CI", why if file is None else f"{file} has none", step)
    return token
