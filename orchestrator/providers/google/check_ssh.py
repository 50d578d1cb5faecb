"""The way to port 22 of the hosts: our key, the firewall, and gcloud where a tunnel is wanted."""

from __future__ import annotations

import shutil

from orchestrator.exits import Exit
from orchestrator.providers.checks import Ask, Outcome, find_write_error, finding_from_error, fix, ok
from orchestrator.providers.core.faults import Refused
from orchestrator.providers.google.check_access import lacking
from orchestrator.providers.google.check_calls import Calls
from orchestrator.providers.google.check_role import FIREWALL
from orchestrator.providers.google.retries import explain

IAP_ROLE = "roles/iap.tunnelResourceAccessor"  # "Using IAP for TCP forwarding", read November 2026


def way_in(calls: Calls, ask: Ask) -> Outcome:
    """Nothing is connected to: there is no host yet."""
    words = find_write_error(ask.state)
    if words:
        return fix("ssh", f"no key can be made: {words}", "give this account that folder, or set ORCH_HOME", Exit.USAGE)
    access = ask.options.access or ("internal" if ask.options.internal_ips else "external")
    if access == "iap" and not shutil.which("gcloud"):
        mend = f"install the Google Cloud CLI; its user needs {IAP_ROLE}"
        return fix("ssh", "access by a tunnel (iap) needs gcloud, which is not in PATH", mend, Exit.USAGE)
    if not ask.options.firewall:
        return ok("ssh", f"access {access}; a key can be made; orch makes no firewall rule, as configured")
    try:
        missing = lacking(calls, FIREWALL.permissions)
    except Refused as refused:
        project = calls.project
        return finding_from_error("ssh", explain("test the permissions of", project, refused.answer, project))
    if missing:
        words = f"orch may not make the firewall rule that lets you in: {', '.join(missing)}"
        mend = "take the role above; or open port 22 yourself and set gcp.firewall to false"
        return fix("ssh", words, mend, Exit.PERMISSION)
    return ok("ssh", f"access {access}; a key can be made, and a firewall rule")
