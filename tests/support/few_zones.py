"""Scenarios of simulated clouds with few zones: a sweep asks every region of an account, which takes its time."""

from __future__ import annotations

_ZONES = {"aws": {"us-east-1a": "us-east-1", "us-west-2a": "us-west-2"}, "gcp": {"us-west4-a": "us-west4"}}


def few_zones(provider: str) -> str:
    """Return the lines of a scenario file that name the zones of the cloud `aws` or `gcp`."""
    return "".join(f'[[zone]]\nname = "{zone}"\nregion = "{region}"\n' for zone, region in _ZONES[provider].items())
