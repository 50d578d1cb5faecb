"""Requests to AWS, each with its parameters and the command line that sends the same. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.providers.aws.commands import command
from orchestrator.slices import Request
from orchestrator.values import Unknown


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request goes, and with whose credentials. profile: of the AWS configuration; "" is the usual one."""

    region: str
    profile: str = ""


def request(
    place: Place,
    operation: str,
    subject: str,
    parameters: Mapping[str, object],
    *,
    service: str = "ec2",
    gives: tuple[tuple[Unknown, str], ...] = (),
    why: str = "",
) -> Request:
    """operation: as the API calls it. subject: what it is about, in words of a name or an id."""
    words = command(service, operation, parameters, region=place.region, profile=place.profile)
    return Request(
        service=service,
        method=operation,
        target=f"{place.region}/{subject}",
        body=parameters,
        command=words,
        why=why,
        gives=gives,
    )
