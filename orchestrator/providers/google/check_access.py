"""APIs that must be enabled, permissions that must be granted, and the hosts' service account."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.catalog.machines import TpuSlice
from orchestrator.exits import Exit
from orchestrator.messages import join_some
from orchestrator.providers.checks import Ask, Outcome, finding_from_error, fix, ok, unknown
from orchestrator.providers.core.faults import Kind, Refused
from orchestrator.providers.google.check_asked import machine_of, needs_tpu_api
from orchestrator.providers.google.check_calls import Calls
from orchestrator.providers.google.check_role import (
    ACT_AS,
    FIREWALL,
    INSTANCES,
    NEEDS,
    PLACES,
    PRICES,
    TAKE_OVER,
    TPU,
    Need,
    role_permissions,
)
from orchestrator.providers.google.retries import explain

APIS = ("tpu.googleapis.com", "compute.googleapis.com")  # what the hosts are rented with, their network and firewall


def apis(calls: Calls, ask: Ask) -> Outcome:
    """By services.batchGet (Service Usage v1, read November 2026). Raises UserError for no machine of Google."""
    project, needed = calls.project, APIS if needs_tpu_api(ask) else APIS[1:]
    asked = {"parent": f"projects/{project}", "names": [f"projects/{project}/services/{api}" for api in needed]}
    try:
        found = calls.ask("serviceusage", "v1", lambda service: service.services().batchGet(**asked))
    except Refused as refused:
        return not_asked("apis", "which APIs are enabled", "serviceusage.services.get", refused, project)
    enabled = {str(one["name"]).rpartition("/")[2] for one in found.get("services", ()) if one["state"] == "ENABLED"}
    missing = [api for api in needed if api not in enabled]
    if missing:
        mend = f"gcloud services enable {' '.join(missing)} --project={project}   then wait some minutes"
        return fix("apis", f"not enabled: {', '.join(missing)}", mend, Exit.PERMISSION)
    return ok("apis", f"enabled: {', '.join(needed)}")


def permissions(calls: Calls, ask: Ask, member: str) -> Outcome:
    """By projects.testIamPermissions (Cloud Resource Manager v1): exactly those of the role that orch documents.

    What only Compute Engine's hosts need, or only a firewall rule, may be missing where neither is wanted; what only an
    take-over or a refresh of prices needs may always be.
    """
    project = calls.project
    asked = role_permissions()
    try:
        missing = frozenset(lacking(calls, asked))
    except Refused as refused:
        return finding_from_error("permissions", explain("test the permissions of", project, refused.answer, project))
    if not missing:
        return ok("permissions", f"all {len(asked)} of the role that orch needs")
    stopped = [need for need in NEEDS if missing & set(need.permissions)]
    wanted = [need for need in stopped if need not in _not_wanted(ask)]
    if not wanted:
        return ok("permissions", f"enough for this; not granted: to {'; '.join(need.purpose for need in stopped)}")
    needed = [one for need in wanted for one in need.permissions if one in missing]
    words = f"missing: {join_some(needed)}; without them no way to {wanted[0].purpose}"
    mend = (
        "orch check gcp --print-role orch > role.yaml"
        f" && gcloud iam roles create orch --project={project} --file=role.yaml"
        f" && gcloud projects add-iam-policy-binding {project} --member={member} --role=projects/{project}/roles/orch"
    )
    return fix("permissions", words, mend, Exit.PERMISSION)


def _not_wanted(ask: Ask) -> tuple[Need, ...]:
    """Raises UserError for a name that is not a machine of Google."""
    machine, plain = machine_of(ask), not needs_tpu_api(ask)
    of_compute = plain or (isinstance(machine, TpuSlice) and not machine.in_tpu_api)
    others = (TPU, PLACES) if plain else () if of_compute else (INSTANCES,)
    return (TAKE_OVER, PRICES, *others, *(() if ask.options.firewall else (FIREWALL,)))


def lacking(calls: Calls, asked: Sequence[str]) -> tuple[str, ...]:
    """Those of `asked` that the caller does not have in the project. Raises Refused."""
    given = {"resource": calls.project, "body": {"permissions": list(asked)}}
    found = calls.ask("cloudresourcemanager", "v1", lambda service: service.projects().testIamPermissions(**given))
    granted = set(found.get("permissions", ()))
    return tuple(one for one in asked if one not in granted)


def may_act_as(calls: Calls, account: str, member: str) -> Outcome:
    """Whether hosts may be given `account`: only the account itself tells (IAM v1, serviceAccounts)."""
    given = {"resource": f"projects/-/serviceAccounts/{account}", "body": {"permissions": [ACT_AS]}}
    try:
        found = calls.ask("iam", "v1", lambda service: service.projects().serviceAccounts().testIamPermissions(**given))
    except Refused as refused:
        if refused.answer.kind is Kind.NOT_FOUND:
            mend = "name one that is there: --service-account EMAIL, and gcp.service_account in the configuration"
            return fix("act-as", f"there is no service account {account}", mend, Exit.NOT_FOUND)
        return not_asked("act-as", f"whether hosts may run as {account}", "", refused, calls.project)
    if ACT_AS not in found.get("permissions", ()):
        mend = (
            f"gcloud iam service-accounts add-iam-policy-binding {account} --member={member}"
            f" --role=roles/iam.serviceAccountUser --project={calls.project}"
        )
        return fix("act-as", f"hosts may not be given the service account {account}", mend, Exit.PERMISSION)
    return ok("act-as", f"hosts may run as {account}")


def not_asked(check: str, what: str, permission: str, refused: Refused, project: str) -> Outcome:
    """A question that only orch check asks: without an answer nothing is broken, but nothing is known either."""
    match refused.answer.kind:
        case Kind.API_DISABLED:
            api = "iam.googleapis.com" if check == "act-as" else "serviceusage.googleapis.com"
            mend = f"gcloud services enable {api} --project={project}"
            return unknown(check, f"{what} cannot be read: {api} is not enabled", mend, Exit.PERMISSION)
        case Kind.PERMISSION:
            mend = f"ask the owner of {project} for {permission}" if permission else f"ask the owner of {project}"
            return unknown(check, f"this account may not read {what}", mend, Exit.PERMISSION)
        case _:
            return finding_from_error(check, explain("ask", what, refused.answer, project))
