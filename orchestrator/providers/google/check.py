"""`orch check gcp`: credentials first, then the project, then all the rest at once. Only reads are sent."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from orchestrator.errors import AccessError, CredentialsError, UserError
from orchestrator.exits import Exit
from orchestrator.providers.checks import Ask, Check, Finding, Outcome, Verdict, finding_from_error, fix, ok
from orchestrator.providers.core.faults import Kind, Refused
from orchestrator.providers.google import (
    check_access,
    check_bucket,
    check_compute,
    check_places,
    check_quota,
    check_ssh,
)
from orchestrator.providers.google.check_asked import machine_of
from orchestrator.providers.google.check_calls import Calls
from orchestrator.providers.google.retries import explain
from orchestrator.providers.google.session import Session, loopback_endpoint, open_session

LOGIN = "gcloud auth application-default login"


def checks(ask: Ask) -> tuple[Check, ...]:
    return (Check("credentials", partial(_credentials, ask)),)


def _credentials(ask: Ask) -> Outcome:
    """The library, the credentials, and that Google still takes them. Raises AccessError, UserError.

    Somebody who does not use Google, and did not ask for it by name, has nothing to mend.
    """
    loopback_endpoint()  # one that is wrong is to be mended, whoever asks
    try:
        session = open_session()
    except (AccessError, UserError) as error:
        if ask.named:
            raise
        return Outcome((Finding(check="credentials", verdict=Verdict.UNUSED, words=error.what, fix=error.next_step),))
    session = replace(session, project=ask.options.project or session.project)
    if session.loopback:
        outcome = ok("credentials", f"none needed: {session.endpoint} is used instead of Google")
    else:
        refused = _refresh(session.credentials)
        if refused:
            return fix("credentials", f"Google does not accept them: {refused}", LOGIN, Exit.PERMISSION)
        outcome = ok("credentials", _whose(session.credentials))
    if ask.options.impersonate:
        return replace(outcome, then=(Check("impersonate", partial(_impersonate, ask, session)),))
    return replace(outcome, then=(Check("project", partial(_project, ask, session)),))


def _impersonate(ask: Ask, session: Session) -> Outcome:
    """Whether these credentials may act as the service account as which all else is asked. Nothing is changed by it."""
    account = ask.options.impersonate
    acting = session.impersonate(account)
    try:
        refused = _refresh(acting.credentials)
    except CredentialsError as error:  # with the binding that is missing
        return finding_from_error("impersonate", error)
    if refused:
        return fix("impersonate", f"Google does not accept the credentials: {refused}", LOGIN, Exit.PERMISSION)
    outcome = ok("impersonate", f"{account}; all that follows is asked as it")
    return replace(outcome, then=(Check("project", partial(_project, ask, acting)),))


def _refresh(credentials: Any) -> str:
    """Why Google refuses them, "" when it does not. Renewing makes a token in memory and changes nothing."""
    from google.auth.exceptions import RefreshError
    from google.auth.transport.requests import Request

    transport: Any = Request
    try:
        credentials.refresh(transport())
    except RefreshError as error:
        return " ".join(str(error.args[0] if error.args else error).split())[:200]
    return ""


def _whose(credentials: Any) -> str:
    account = account_of(credentials)
    kind = "service account" if getattr(credentials, "service_account_email", "") else "user"
    return f"of the {kind} {account}" if account else f"of a {kind} that they do not name"


def account_of(credentials: Any) -> str:
    """The e-mail, "" when the credentials do not say: those of a user often do not."""
    return str(getattr(credentials, "service_account_email", "") or getattr(credentials, "account", "") or "")


def member_of(credentials: Any) -> str:
    """As a role binding names it."""
    account = account_of(credentials)
    kind = "serviceAccount" if getattr(credentials, "service_account_email", "") else "user"
    return f"{kind}:{account or 'YOUR-EMAIL'}"


def _project(ask: Ask, session: Session) -> Outcome:
    """Only what this project answers makes the other questions worth asking."""
    project = session.project
    if not project:
        words = "no project is named, neither here nor in the gcloud configuration"
        return fix("project", words, "gcloud config set project PROJECT   or: --project PROJECT", Exit.USAGE)
    calls = Calls(session)
    rest = _rest(ask, session, calls)
    try:
        found = calls.ask("cloudresourcemanager", "v1", lambda service: service.projects().get(projectId=project))
    except Refused as refused:
        return _no_project(refused, project, rest)
    state = str(found.get("lifecycleState", "ACTIVE"))
    if state != "ACTIVE":
        return fix("project", f"{project} is {state}", f"gcloud projects undelete {project}", Exit.NOT_FOUND)
    account = ask.options.service_account or f"{found.get('projectNumber', '')}-compute@developer.gserviceaccount.com"
    acting = Check("act-as", partial(check_access.may_act_as, calls, account, member_of(session.credentials)))
    return Outcome(ok("project", project).findings, (*rest, acting))


def _no_project(refused: Refused, project: str, rest: tuple[Check, ...]) -> Outcome:
    """Google does not tell a project that is not there from one that may not be seen."""
    match refused.answer.kind:
        case Kind.API_DISABLED:
            words = "cannot be read: the Cloud Resource Manager API is not enabled"
            mend = f"gcloud services enable cloudresourcemanager.googleapis.com --project={project}"
            return replace(fix("project", words, mend, Exit.PERMISSION), then=rest)
        case Kind.PERMISSION | Kind.NOT_FOUND:
            words = f"{project} is not there, or may not be seen by this account"
            mend = "gcloud projects list   shows what it may see; then: --project PROJECT"
            return fix("project", words, mend, Exit.PERMISSION)
        case _:
            return finding_from_error("project", explain("read", project, refused.answer, project))


def _rest(ask: Ask, session: Session, calls: Calls) -> tuple[Check, ...]:
    """What does not depend on each other."""
    try:
        machine_of(ask)
    except UserError as error:  # every question is about this machine
        outcome = finding_from_error("accelerators", error)
        return (Check("accelerators", lambda: outcome),)
    member = member_of(session.credentials)
    found = [
        Check("apis", partial(check_access.apis, calls, ask)),
        Check("permissions", partial(check_access.permissions, calls, ask, member)),
        Check("zones", partial(check_places.zones, calls, ask)),
        Check("quota", partial(check_quota.quota, calls, ask)),
        Check("addresses", partial(check_compute.check_addresses, calls, ask)),
        Check("ssh", partial(check_ssh.way_in, calls, ask)),
    ]
    if ask.bucket:
        found.append(Check("bucket", partial(check_bucket.bucket, calls, ask, member)))
    return tuple(found)
