"""Buckets of one cloud and machines of another: who can open them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from orchestrator.drivers import Driver, get_driver, list_clouds
from orchestrator.errors import AccessError


def foreign_bucket_reason(
    provider: str, buckets: Iterable[str], given: Collection[str], targets: Iterable[str]
) -> AccessError | None:
    """Return why machines could not open one of the buckets, or None.

    Rented machines have a role of the same cloud at most, and orch copies no credentials to them.

    Args:
        provider: The name of the driver of the machines.
        buckets: Addresses; those that are none are ignored.
        given: Names of the variables that programs on the machines have.
        targets: Where files are mounted on the machines.
    """
    here = get_driver(provider)
    if not here.vendor:
        return None
    mounted = [f"{target}/" for target in targets]
    for uri in buckets:
        of = _find_cloud(uri)
        if of is None or of is here or not set(of.bucket_credentials).isdisjoint(given):
            continue
        if any(target.startswith(f"{of.bucket_login}/") for target in mounted):
            continue
        return AccessError(
            f"{here.rents} could not open {uri}",
            f"they have no credentials for {of.vendor}, and orch copies none of yours",
            f"give them: {of.bucket_credentials[0]}, ... in secrets, or mount {of.bucket_login}"
            f"; or use a bucket of {here.vendor}",
        )
    return None


def _find_cloud(uri: str) -> Driver | None:
    """Return the cloud of a bucket's address; None for other places."""
    scheme, separator, _ = uri.partition("://")
    return next((one for one in list_clouds() if separator and one.bucket_scheme == scheme), None)
