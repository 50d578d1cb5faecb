"""Which APIs a project has enabled, and its quotas: Service Usage v1 and v1beta1; and its buckets: Cloud Storage v1.

Sources: the reference pages of services.batchGet (v1), services.consumerQuotaMetrics.list (v1beta1), buckets.get and
buckets.testIamPermissions, read November 2026; what a body may hold, by the discovery documents.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from orch_fronts.google.billing import BillingFront
from orch_fronts.google.grants import Bucket, Grants
from orch_fronts.google.iam import IamFront, ResourceManagerFront
from orch_fronts.google.methods import PREFIXES, Called, called
from orch_fronts.google.quotas import quota_metrics
from orch_fronts.google.status import INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED, Refusal

if TYPE_CHECKING:  # the server itself mounts these
    from orch_fronts.google.server import Front

MOST_SERVICES = 30  # in one batch (services.batchGet)


def project_fronts(project: str, grants: Grants) -> Mapping[str, Front]:
    """The services that tell of a project, by the prefix that each is served under."""
    return {
        PREFIXES["cloudresourcemanager"]: ResourceManagerFront(project, grants),
        PREFIXES["serviceusage"]: ServiceUsageFront(project, grants),
        PREFIXES["iam"]: IamFront(grants),
        PREFIXES["storage"]: BucketsFront(grants),
        PREFIXES["cloudbilling"]: BillingFront(),
    }


class ServiceUsageFront:
    def __init__(self, project: str, grants: Grants) -> None:
        self._project = project
        self._grants = grants

    def handle(self, method: str, target: str, body: bytes = b"") -> dict[str, Any]:
        del body
        call = called(method, target)
        if call.path_values[:2] != ("projects", self._project):
            raise Refusal(PERMISSION_DENIED, f"Not found or permission denied for service(s): {call.path}.")
        if call.id == "serviceusage.services.batchGet":
            return {"services": [self._service(name) for name in self._names(call)]}
        return quota_metrics(self._project, call, self._grants)

    def _names(self, call: Called) -> tuple[str, ...]:
        names = call.query.get("names", ())
        if not 1 <= len(names) <= MOST_SERVICES:
            raise Refusal(INVALID_ARGUMENT, f"names: 1 to {MOST_SERVICES} are allowed, there are {len(names)}")
        return names

    def _service(self, name: str) -> dict[str, Any]:
        beginning = f"projects/{self._project}/services/"
        if not name.startswith(beginning):
            raise Refusal(INVALID_ARGUMENT, f"{name} is no service of projects/{self._project}")
        enabled = name.removeprefix(beginning) in self._grants.apis
        return {
            "name": f"projects/{self._grants.number}/services/{name.removeprefix(beginning)}",
            "parent": f"projects/{self._grants.number}",
            "state": "ENABLED" if enabled else "DISABLED",
        }


class BucketsFront:
    def __init__(self, grants: Grants) -> None:
        self._buckets: Mapping[str, Bucket] = grants.buckets

    def handle(self, method: str, target: str, body: bytes = b"") -> dict[str, Any]:
        del body
        call = called(method, target)
        name = call.path_values[0]
        bucket = self._buckets.get(name)
        if bucket is None:
            raise Refusal(NOT_FOUND, "The specified bucket does not exist.")
        if call.id == "storage.buckets.testIamPermissions":
            asked = call.query.get("permissions", ())
            return {
                "kind": "storage#testIamPermissionsResponse",
                "permissions": [one for one in asked if one in bucket.granted],
            }
        if "storage.buckets.get" not in bucket.granted:
            words = "The caller does not have storage.buckets.get access to the Google Cloud Storage bucket."
            raise Refusal(PERMISSION_DENIED, words)
        kind = "multi-region" if "-" not in bucket.location else "region"
        return {"kind": "storage#bucket", "name": name, "location": bucket.location, "locationType": kind}
