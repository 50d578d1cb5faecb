"""The way to port 22 of the machines: our key, and the programs that a way through Session Manager takes."""

from __future__ import annotations

import shutil

from orchestrator.exits import Exit
from orchestrator.providers.aws.access import Way
from orchestrator.providers.aws.check_asked import Asked
from orchestrator.providers.checks import Outcome, find_write_error, fix, ok

PLUGIN = "session-manager-plugin"
# "Install the Session Manager plugin for the AWS CLI" (AWS Systems Manager User Guide, read November 2026).
_PLUGIN_PAGE = (
    "https://docs.aws.amazon.com/systems-manager/latest/userguide/session-manager-working-with-install-plugin.html"
)


def way_in(asked: Asked) -> Outcome:
    """Nothing is connected to: there is no machine yet."""
    words = find_write_error(asked.ask.state)
    if words:
        return fix("ssh", f"no key can be made: {words}", "give this account that folder, or set ORCH_HOME", Exit.USAGE)
    access = asked.options.access
    if access == Way.SSM.value:
        if not shutil.which("aws"):
            return fix(
                "ssh", "access ssm needs the aws command, which is not in PATH", "pip install awscli", Exit.USAGE
            )
        if not shutil.which(PLUGIN):
            words = f"access ssm needs {PLUGIN}, which is not in PATH"
            return fix("ssh", words, f"install it: {_PLUGIN_PAGE}", Exit.USAGE)
    group = asked.options.security_group
    rule = f"{group} allows SSH, as configured" if group else "a security group is made for each cluster"
    return ok("ssh", f"access {access or 'as the machines need it'}; a key can be made; {rule}")
