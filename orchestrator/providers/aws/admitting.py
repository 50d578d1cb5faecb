"""The addresses that a slice's security group admits, changed one by one while the slice exists.

AuthorizeSecurityGroupIngress refuses a whole request when one of its rules exists (EC2 API Reference, error
InvalidPermission.Duplicate, read November 2026), so each address has one request. A rule is revoked by its
values, without its description; one that is absent is InvalidPermission.NotFound outside of a default VPC (EC2 API
Reference, RevokeSecurityGroupIngress, read November 2026).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from orchestrator.providers.aws.auxiliary_resources import AuxiliaryResources
from orchestrator.providers.aws.calls import Calls, Thing
from orchestrator.providers.aws.groups import OPENED, SSH
from orchestrator.providers.core.faults import Kind, Refused


def change_addresses(
    calls: Calls, name: str, token: str, admitted: Mapping[str, str], withdrawn: Collection[str]
) -> None:
    """Let the groups of a slice admit addresses, each of the computer that its description names, and no longer others.

    Raises:
        Refused: EC2 refused a request, or could not be asked.
    """
    for group in AuxiliaryResources(calls, name, token).groups():
        shown = _shown(group)
        for address, computer in admitted.items():
            if address not in shown:
                _change(calls, "Authorize", group, address, f"{OPENED}, computer {computer}", done=Kind.TAKEN)
        for address in withdrawn:
            if shown.get(address, "").startswith(OPENED):
                _change(calls, "Revoke", group, address, "", done=Kind.NOT_FOUND)


def _shown(group: Thing) -> dict[str, str]:
    """Return the descriptions of the rules for SSH by their sources."""
    return {
        str(source["CidrIp"]): str(source.get("Description", ""))
        for rule in group.get("IpPermissions", ())
        if rule.get("IpProtocol") == "tcp" and (rule.get("FromPort"), rule.get("ToPort")) == (SSH, SSH)
        for source in rule.get("IpRanges", ())
    }


def _change(calls: Calls, verb: str, group: Thing, address: str, description: str, *, done: Kind) -> None:
    """Send one rule; an answer of the kind `done` means that it is so already."""
    source = {"CidrIp": address} | ({"Description": description} if description else {})
    rule = {"IpProtocol": "tcp", "FromPort": SSH, "ToPort": SSH, "IpRanges": [source]}
    try:
        calls.change(f"{verb}SecurityGroupIngress", {"GroupId": group["GroupId"], "IpPermissions": [rule]})
    except Refused as refused:
        if refused.answer.kind is not done:
            raise
