"""The role files that `orch check gcp --print-role` prints."""

from __future__ import annotations

from orchestrator.providers.google.check_role import host_role, orch_role


def make_permission_file(purpose: str, bucket: str) -> str:
    """Return a role file; a role names no bucket.

    Args:
        purpose: "orch" or "hosts".
        bucket: Is not used.
    """
    del bucket
    return orch_role() if purpose == "orch" else host_role()
