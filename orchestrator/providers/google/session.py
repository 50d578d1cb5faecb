"""Who asks Google, and where: credentials, project, and clients of the services that only discovery documents describe.

`ORCH_GCP_ENDPOINT=http://127.0.0.1:PORT` leads every call to a server on this computer, with no other credentials than
`ORCH_GCP_TOKEN`. Any other address is refused: nothing may lead the user's credentials astray.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from orchestrator.clock import read_date
from orchestrator.cloud_access import (
    ANY_TOKEN,
    CLOUD_STORAGE_SERVER,
    CLOUD_STORAGE_TOKEN,
    GOOGLE_API,
    GOOGLE_API_TOKEN,
    SIMULATED,
    read_cloud_access,
)
from orchestrator.cloud_identities.service_account import impersonate
from orchestrator.distribution import install_command
from orchestrator.errors import CredentialsError, UserError

ENDPOINT = GOOGLE_API
LOCAL_PROJECT = "local-project"  # taken on the loopback when no other is configured
MOST_BYTES = 64 << 20  # of an answer; Google gives lists in pages
SCOPE = "https://www.googleapis.com/auth/cloud-platform"

# Where a server on this computer serves each service: one port for all of them.
PREFIXES: Mapping[str, str] = {
    "tpu": "/",
    "compute": "/compute/v1/",
    "cloudresourcemanager": "/crm/",
    "serviceusage": "/serviceusage/",
    "oslogin": "/oslogin/",
    "iam": "/iam/",
    "storage": "/storage/v1/",
    "cloudbilling": "/cloudbilling/",
}


@dataclass(frozen=True, slots=True)
class Session:
    """credentials: of google-auth. project: what the configuration names, or "". endpoint: "" is Google itself.

    learn: called with the time of each answer that has a Date header. impersonated: the service account as which every
    call is made, "" for the credentials' own.
    """

    credentials: Any
    project: str
    endpoint: str = ""
    learn: Callable[[float], None] | None = None
    impersonated: str = ""

    @property
    def loopback(self) -> bool:
        return bool(self.endpoint)

    def impersonate(self, account: str) -> Session:
        """The same as a service account; the same itself for "". Sends nothing."""
        if not account:
            return self
        source = self.credentials
        if self.loopback and not getattr(source, "token", ""):  # one without credentials cannot ask for any
            from google.oauth2.credentials import Credentials

            source = Credentials(ANY_TOKEN)  # type: ignore[no-untyped-call]  # google-auth has no types there
        made = impersonate(source, account, endpoint=self.endpoint)
        return replace(self, credentials=made, impersonated=account)

    def service(self, name: str, version: str, *, timeout: float = 60.0) -> Any:
        """A client made from the library's own copy of the discovery document; nothing is sent. timeout: of a call."""
        from googleapiclient import discovery  # type: ignore[import-untyped]  # the library ships no types

        library: Any = discovery
        http = self.http(timeout)
        options = {"api_endpoint": f"{self.endpoint}{PREFIXES[name]}"} if self.loopback else None
        return library.build(
            name, version, http=http, cache_discovery=False, static_discovery=True, client_options=options
        )

    def http(self, timeout: float) -> Any:
        """A connection of its own with the credentials; its answers tell the time."""
        import google_auth_httplib2  # type: ignore[import-untyped]  # the library ships no types
        import httplib2  # type: ignore[import-untyped]  # the library ships no types

        from orchestrator.conversation import make_bounded_response

        library: Any = httplib2
        response = make_bounded_response(timeout, MOST_BYTES)

        class BoundedHttp(library.Http):  # type: ignore[misc]  # the library ships no types
            def _conn_request(self, conn: Any, *arguments: Any) -> Any:
                conn.response_class = response
                return library.Http._conn_request(self, conn, *arguments)

        http: Any = BoundedHttp(timeout=timeout)
        send = http.request

        def hear(*args: Any, **options: Any) -> Any:
            response, content = send(*args, **options)
            self.hear(response.get("date", ""))
            return response, content

        http.request = hear
        return google_auth_httplib2.AuthorizedHttp(self.credentials, http=http)

    def hear(self, date: str) -> None:
        """date: a Date header, "" for none."""
        time = read_date(date)
        if time is not None and self.learn is not None:
            self.learn(time)


def open_session(learn: Callable[[float], None] | None = None) -> Session:
    """Raises CredentialsError without credentials, UserError without the library."""
    endpoint = loopback_endpoint()
    try:
        from google import auth
        from google.auth.credentials import AnonymousCredentials
        from google.auth.exceptions import DefaultCredentialsError
        from google.oauth2.credentials import Credentials
    except ImportError as error:
        raise UserError("Google's client library is not installed", str(error), install_command("google")) from error
    if endpoint:
        token = read_cloud_access(os.environ).google_token
        ready: Any = Credentials(token) if token else AnonymousCredentials()  # type: ignore[no-untyped-call]  # google-auth has no types there
        return Session(ready, _own_project() or LOCAL_PROJECT, endpoint, learn)
    library: Any = auth  # its types are incomplete
    try:
        credentials, project = library.default(scopes=[SCOPE])
    except DefaultCredentialsError as error:
        raise CredentialsError(
            "there are no Google credentials on this computer", "", "gcloud auth application-default login"
        ) from error
    return Session(credentials, _own_project() or project or "", learn=learn)


def loopback_endpoint() -> str:
    """The server on this computer that stands in for Google, "" for Google itself. Raises UserError."""
    value = read_cloud_access(os.environ).google_api
    if not value:
        return ""
    parts = urlsplit(value)
    if parts.scheme != "http" or parts.hostname not in ("127.0.0.1", "::1", "localhost") or parts.path not in ("", "/"):
        raise UserError(
            f"{ENDPOINT} is '{value}'", "only a server on this computer is allowed", f"{ENDPOINT}=http://127.0.0.1:PORT"
        )
    return value.rstrip("/")


def how_to_log_in() -> str:
    """Return the next step for a caller whose credentials were not accepted."""
    if read_cloud_access(os.environ).google_api:
        return f"export {GOOGLE_API_TOKEN} as `orch simulate gcp` prints it, or run the command inside"
    return "gcloud auth application-default login"


def variables_of_buckets() -> tuple[str, ...]:
    """Variables that lead hosts on this computer to its buckets. A token that could be a real one stays here."""
    token = read_cloud_access(os.environ).cloud_storage.token
    return (CLOUD_STORAGE_SERVER, CLOUD_STORAGE_TOKEN) if token.startswith(SIMULATED) else (CLOUD_STORAGE_SERVER,)


def _own_project() -> str:
    return os.environ.get("GOOGLE_CLOUD_PROJECT") or os.environ.get("CLOUDSDK_CORE_PROJECT") or ""
