"""Through Identity-Aware Proxy to a host without an external address: gcloud holds the tunnel, SSH goes through. Pure.

A worker of a TPU is named to IAP by its instance name, which is neither the node's name nor in the node: the worker
says it in its guest attributes, and gcloud's own `tpu-vm ssh --tunnel-through-iap` takes it from there (gcloud 528,
source).
Needed: the role roles/iap.tunnelResourceAccessor, gcloud and its login on this computer (IAP documentation, 2025).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

HOSTNAME = "hostname"  # key of the guest attribute
_INSTANCE = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")


def proxy_command(instance: str, project: str, zone: str, account: str = "") -> tuple[str, ...]:
    """For HostAddress.proxy. Raises ValueError for what is no name: it comes from the host, and goes on a command line.

    gcloud asks Compute Engine about the instance only when a connection has failed (gcloud 528, source). account: the
    service account that gcloud impersonates, "" for none (`gcloud topic` of its global flags, November 2026).
    """
    for word in (instance, project.replace(":", ""), zone, *filter(None, (account.replace("@", "."),))):
        if not _INSTANCE.fullmatch(word):
            raise ValueError(f"IAP does not accept the name '{word}'")
    return (
        *("gcloud", "compute", "start-iap-tunnel", instance, "%p", "--listen-on-stdin"),
        *(f"--project={project}", f"--zone={zone}", "--verbosity=error"),
        *((f"--impersonate-service-account={account}",) if account else ()),
    )


def instance_names(workers: Iterable[Any]) -> tuple[str, ...]:
    """Each worker's instance name, in worker order, "" for one that does not say it.

    workers: `guest_attributes` of an answer to GetGuestAttributes (TPU API v2).
    """
    return tuple(
        next((str(item.value) for item in worker.query_value.items if item.key == HOSTNAME), "") for worker in workers
    )
