"""Calls of EC2 in one region: reads are repeated, changes are sent once, and each error is told apart."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias, TypeVar

from orchestrator.providers.aws.faults import understood
from orchestrator.providers.aws.session import AwsSession
from orchestrator.providers.core.faults import Kind, Refused, is_refused_as
from orchestrator.retries import CLOUD_THROTTLED

Thing: TypeAlias = Mapping[str, Any]  # an instance, a group, an address ... as botocore returns it
Filters: TypeAlias = Mapping[str, Sequence[str]]

_SINGLE = frozenset({"DescribeAddresses", "DescribePlacementGroups", "DescribeRegions"})  # botocore pages no such read
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Calls:
    """sleep: between two tries of a call that was throttled. Every method may raise Refused."""

    session: AwsSession
    region: str
    sleep: Callable[[float], None] = time.sleep

    def read(self, service: str, operation: str, params: Mapping[str, Any]) -> Thing:
        client = self.session.client(service, self.region)
        return _asked(operation, lambda: getattr(client, _snake(operation))(**params))

    def change(self, operation: str, params: Mapping[str, Any], service: str = "ec2") -> Thing:
        """Sent again only when AWS says that it has not even looked at it."""
        client = self.session.client(service, self.region, once=True)

        def call() -> Thing:
            return _asked(operation, lambda: getattr(client, _snake(operation))(**params))

        return CLOUD_THROTTLED.run(call, retry=is_refused_as(Kind.THROTTLED), sleep=self.sleep)

    def every(self, operation: str, key: str, filters: Filters, **params: Any) -> list[Thing]:
        """What a Describe call lists under `key`, all pages."""
        given = {"Filters": [{"Name": name, "Values": list(values)} for name, values in filters.items()], **params}
        if not filters:  # some operations know none
            del given["Filters"]
        client = self.session.client("ec2", self.region)
        if operation in _SINGLE:
            return list(self.read("ec2", operation, given).get(key, ()))
        pages = client.get_paginator(_snake(operation)).paginate(**given)
        return _asked(operation, lambda: [one for page in pages for one in page.get(key, ())])

    def instances(self, filters: Filters) -> list[Thing]:
        return _instances(self.every("DescribeInstances", "Reservations", filters))


def read_tags(thing: Thing) -> dict[str, str]:
    return {str(tag["Key"]): str(tag["Value"]) for tag in thing.get("Tags", ())}


def _instances(reservations: Sequence[Thing]) -> list[Thing]:
    return [instance for reservation in reservations for instance in reservation.get("Instances", ())]


def _asked(operation: str, call: Callable[[], _Answer]) -> _Answer:
    try:
        return call()
    except Exception as error:
        answer = understood(error, operation)
        if answer is None:
            raise
        raise Refused(answer) from error


def _snake(operation: str) -> str:
    return str(import_module("botocore").xform_name(operation))
