"""OS Login: the key stands in a Google account's profile for a limited time, and IAM says who may log in. API v1.

With it a host ignores keys in its metadata, so that the user's own key is imported before the first connection and
taken out when no slice needs it: a profile holds 32 KiB (OS Login documentation, "Troubleshooting", 2025). The account
needs roles/compute.osAdminLogin, and roles/iam.serviceAccountUser on the hosts' service account.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from orchestrator.errors import AccessError, CloudError, OrchError
from orchestrator.providers.core.faults import Answer, Kind, Refused
from orchestrator.providers.google.discovery import Discovery
from orchestrator.providers.google.retries import explain
from orchestrator.providers.google.session import Session

# It includes sudo, which setup needs; roles/compute.osLogin does not (Google Cloud, "Set up OS Login", 2025).
ADMIN_ROLE = "roles/compute.osAdminLogin"
METADATA = "enable-oslogin"  # metadata entry of the hosts: TRUE or FALSE
LOCAL_ACCOUNT = "you@local-project.example"  # taken on the loopback, where nobody is logged in
_USER = re.compile(r"[a-z_][a-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True)
class Profile:
    """user: the POSIX name on every host. key: what to delete afterwards, "users/ACCOUNT/sshPublicKeys/FINGERPRINT"."""

    user: str
    key: str


class OsLogin:
    """Every method raises AccessError, CloudError or another OrchError when Google refuses or does not answer."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._api = Discovery(session, "oslogin", "v1")

    def admit(self, account: str, public_key: str, project: str, expires: float) -> Profile:
        """Put the key into the account's profile until `expires` (seconds since the epoch). Again: a new expiry.

        Raises AccessError when the profile has no user for Linux hosts, and the key is taken out again; CloudError when
        it lacks the key.
        """
        body = {"key": public_key.strip(), "expirationTimeUsec": str(round(expires * 1_000_000))}
        with _explained("OS Login for", account):
            answer = self._api.change(partial(_import, account, project, body))
        profile: dict[str, Any] = answer.get("loginProfile") or {}
        key = _key(account, public_key, profile)
        try:
            return Profile(_user(account, profile), key)
        except AccessError:
            with suppress(OrchError):  # it expires
                self.forget(Profile(account, key))
            raise

    def forget(self, profile: Profile) -> None:
        """Take the key out of the profile. What is gone already is no error."""
        with _explained("delete the key of OS Login user", profile.user):
            try:
                self._api.change(partial(_delete, profile.key))
            except Refused as refused:
                if refused.answer.kind is not Kind.NOT_FOUND:
                    raise

    def account(self) -> str:
        """The e-mail of who is logged in: that of a service account, else the user's own.

        Raises AccessError when that cannot be found out.
        """
        if self._session.loopback:
            return LOCAL_ACCOUNT
        email = str(getattr(self._session.credentials, "service_account_email", "") or "")
        if "@" in email:
            return email
        with _explained("look up", "who is logged in"):
            found = Discovery(self._session, "oauth2", "v2").read(lambda api: api.userinfo().get())
        email = str(found.get("email") or "")
        if not email:
            raise AccessError(
                "OS Login needs the e-mail of your account",
                "Google does not report it for these credentials",
                "gcloud auth application-default login   or remove oslogin",
            )
        return email


def _import(account: str, project: str, body: dict[str, str], api: Any) -> Any:
    return api.users().importSshPublicKey(parent=f"users/{account}", projectId=project or None, body=body)


def _delete(key: str, api: Any) -> Any:
    return api.users().sshPublicKeys().delete(name=key)


def _user(account: str, profile: dict[str, Any]) -> str:
    linux = [
        one
        for one in profile.get("posixAccounts") or ()
        if one.get("operatingSystemType", "LINUX") != "WINDOWS" and not one.get("systemId")
    ]
    names = [str(one.get("username", "")) for one in sorted(linux, key=lambda one: not one.get("primary"))]
    user = next((name for name in names if _USER.fullmatch(name)), "")
    if not user:
        raise AccessError(
            f"OS Login has no user for {account}",
            "its profile names no POSIX account for Linux",
            "ask the administrator of your organisation   or remove oslogin",
        )
    return user


def _key(account: str, public_key: str, profile: dict[str, Any]) -> str:
    wanted = public_key.split()[:2]
    keys: dict[str, dict[str, Any]] = profile.get("sshPublicKeys") or {}
    for fingerprint, one in keys.items():
        if str(one.get("key", "")).split()[:2] == wanted:
            return str(one.get("name") or f"users/{account}/sshPublicKeys/{fingerprint}")
    raise CloudError(
        f"OS Login did not take the key for {account}", "its profile does not have it", "run the same command again"
    )


@contextmanager
def _explained(verb: str, name: str) -> Generator[None]:
    try:
        yield
    except Refused as refused:
        raise _error(verb, name, refused.answer) from refused


def _error(verb: str, name: str, answer: Answer) -> OrchError:
    what, why = f"{verb} {name} was refused by Google", f"{answer.kind}: {answer.words}"
    match answer.kind:
        case Kind.PERMISSION:
            return AccessError(what, why, f"ask for the role {ADMIN_ROLE}, or remove oslogin")
        case Kind.API_DISABLED:
            return AccessError(what, why, "gcloud services enable oslogin.googleapis.com   then wait a minute")
        case Kind.INVALID | Kind.WRONG_STATE:
            step = "gcloud compute os-login ssh-keys list   shows the keys of your profile; old ones can be removed"
            return AccessError(what, why, step)
        case _:
            return explain(verb, name, answer)
