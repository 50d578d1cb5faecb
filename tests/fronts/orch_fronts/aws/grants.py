"""What a pretend account gives to whoever calls: policies, quotas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from orch_fronts.aws.calls import ACCOUNT
from orchestrator.providers.aws.check_policy import BUCKET, HOST_ROLE, ORCH, document

USER = f"arn:aws:iam::{ACCOUNT}:user/orch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grants:
    """The documented policy by default: what orch asks beyond it is refused, and so turns a test red.

    policies: documents as IAM takes them. names: words in them that stand for something else. quotas: values by their
    codes, in all regions, before those of the scenario. profiles: instance profiles that exist, each with its role.
    roles: ARNs of roles that trust the caller, each with the external id that it asks for.
    """

    policies: tuple[Mapping[str, Any], ...] = field(default_factory=lambda: (document(ORCH),))
    quotas: Mapping[str, float] = field(default_factory=lambda: MappingProxyType[str, float]({}))
    profiles: Mapping[str, str] = field(default_factory=lambda: MappingProxyType[str, str]({HOST_ROLE: HOST_ROLE}))
    roles: Mapping[str, str] = field(default_factory=lambda: MappingProxyType[str, str]({}))
    names: Mapping[str, str] = field(default_factory=lambda: MappingProxyType[str, str]({BUCKET: "*"}))


def owner() -> Grants:
    """Of somebody who may do everything, in an account where nothing was made yet."""
    return Grants(policies=(ALL,), profiles={})


ALL: Mapping[str, Any] = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}],
}
