"""The way to a host put into its address: through IAP, through jump hosts, or straight."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.hosts import HostAddress
from orchestrator.providers.google.access import Access, Way
from orchestrator.providers.google.iap import proxy_command
from orchestrator.providers.ssh_config import add_jump_hosts


def reached(
    address: HostAddress, access: Access, *, name: str, instance: str, project: str, zone: str, account: str = ""
) -> HostAddress:
    """The same host with its way. name: of the slice. instance: what its worker says it is called, for IAP only.
    account: the service account that is impersonated, for IAP only.

    Raises ValueError for an instance that cannot be named, UserError for a jump host that cannot be read.
    """
    match access.way:
        case Way.IAP:
            return replace(address, host=address.internal_ip, proxy=proxy_command(instance, project, zone, account))
        case Way.JUMP:
            return add_jump_hosts(replace(address, host=address.internal_ip), access.jump, name=name)
        case Way.INTERNAL:
            return replace(address, host=address.internal_ip)
        case Way.EXTERNAL:
            return address
