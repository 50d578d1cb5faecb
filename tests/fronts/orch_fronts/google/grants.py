"""What a simulated project gives to whoever calls: permissions, enabled APIs, quotas, buckets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from orch_fronts.google.permissions import OBJECT_USER
from orchestrator.providers.google.check_role import role_permissions

ANY_ACCOUNT = "*"
APIS = frozenset(
    f"{name}.googleapis.com"
    for name in (
        *("cloudbilling", "cloudresourcemanager", "compute", "iam", "iamcredentials", "oslogin"),
        *("serviceusage", "storage", "tpu"),
    )
)


@dataclass(frozen=True, slots=True)
class Bucket:
    """location: as Cloud Storage writes it, "US-WEST4" or "EU". granted: permissions that the caller has on it."""

    location: str
    granted: frozenset[str] = frozenset({*OBJECT_USER, "storage.buckets.get"})


@dataclass(frozen=True, slots=True)
class Limit:
    """A quota. metric: below the service. where: zone or region, "" for all of them. value: -1 for no limit."""

    metric: str
    value: int
    where: str = ""
    service: str = "tpu.googleapis.com"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grants:
    """The documented role by default: what orch asks beyond it is refused, and so turns a test red.

    acts_as: service accounts that the caller may give to hosts. accounts: those that exist, all by default.
    impersonates: service accounts as which the caller may act.
    """

    permissions: frozenset[str] = frozenset(role_permissions())
    apis: frozenset[str] = APIS
    acts_as: frozenset[str] = frozenset({ANY_ACCOUNT})
    accounts: frozenset[str] = frozenset({ANY_ACCOUNT})
    impersonates: frozenset[str] = frozenset()
    limits: tuple[Limit, ...] = ()
    buckets: Mapping[str, Bucket] = field(default_factory=lambda: MappingProxyType[str, Bucket]({}))
    number: int = 123456789012  # of the project

    def may_act_as(self, account: str) -> bool:
        return ANY_ACCOUNT in self.acts_as or account in self.acts_as

    def has_account(self, account: str) -> bool:
        return ANY_ACCOUNT in self.accounts or account in self.accounts
