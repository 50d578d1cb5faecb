"""Where to run: `provider[/region[/zone]]` with `*` for any, or `local:4`, or `local:v5litepod-16`, or `hosts`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.task.errors import InvalidValueError, did_you_mean


class InfraProvider(StrEnum):
    """The providers that a task can name in `infra`."""

    GCP = "gcp"
    AWS = "aws"
    LOCAL = "local"
    HOSTS = "hosts"
    SIMULATED = "simulated"  # a rehearsal's cloud; anything that can be rented or made stands there
    ANY = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Infra:
    """A place; `region` and `zone` are "" for any, `shape` is what follows `local:`."""

    provider: InfraProvider
    region: str = ""
    zone: str = ""
    shape: str = ""

    @property
    def owned(self) -> bool:
        """Return whether nothing is rented."""
        return self.provider in (InfraProvider.LOCAL, InfraProvider.HOSTS)

    def __str__(self) -> str:
        if self.shape:
            return f"{self.provider}:{self.shape}"
        parts = [str(self.provider), self.region, self.zone]
        while parts[-1] == "":
            parts.pop()
        return "/".join(part or "*" for part in parts)


def parse_infra(text: str) -> Infra:
    """Return the place that a text names; `local:` shapes are resolved later, with the accelerators.

    Raises:
        InvalidValueError: It names none, with what is allowed.
    """
    word = text.strip()
    head, colon, shape = word.partition(":")
    if colon and head.lower() == InfraProvider.LOCAL:
        if not shape.strip():
            raise InvalidValueError(
                f"`{word}` says no shape", "", "write local:4 for four hosts, or local:v5litepod-16"
            )
        return Infra(provider=InfraProvider.LOCAL, shape=shape.strip())
    provider_word, *rest = word.split("/")
    provider = _provider(provider_word, word)
    places = ["" if part == "*" else part.strip().lower() for part in rest]
    if len(places) > 2 or any(part == "" for part in rest):
        raise InvalidValueError(f"`{word}` is not a place", "the form is provider/region/zone", "use `*` for any part")
    region, zone = (*places, "", "")[:2]
    if provider in (InfraProvider.LOCAL, InfraProvider.HOSTS) and places:
        raise InvalidValueError(f"`{word}` is not a place", f"`{provider}` has no regions", f"write {provider}")
    return _checked(provider, region, zone, word)


def infra_from_parts(cloud: str, region: str, zone: str) -> Infra:
    """Return the older keys `cloud`, `region` and `zone`; "" where one is absent."""
    return parse_infra("/".join(part or "*" for part in (cloud, region, zone)) if region or zone else cloud or "*")


_REGION = {
    InfraProvider.GCP: re.compile(r"[a-z]+(?:-[a-z]+)+[0-9]+"),
    InfraProvider.AWS: re.compile(r"[a-z]{2,4}(?:-[a-z]+)+-[0-9]+"),
}
_ZONE = {
    InfraProvider.GCP: re.compile(r"([a-z]+(?:-[a-z]+)+[0-9]+)-[a-z]"),
    InfraProvider.AWS: re.compile(r"([a-z]{2,4}(?:-[a-z]+)+-[0-9]+)[a-z]"),
}
_NOT_SERVED = {
    "kubernetes": "orch talks to machines over SSH and serves no Kubernetes",
    "k8s": "orch talks to machines over SSH and serves no Kubernetes",
    "slurm": "orch does not submit to Slurm",
    "azure": "orch rents from Google and AWS",
    "ssh": "your own machines are called `hosts`",
}
_OTHER_SPELLINGS = {
    "google": InfraProvider.GCP,
    "amazon": InfraProvider.AWS,
    "ec2": InfraProvider.AWS,
    "": InfraProvider.ANY,
}


def _provider(word: str, whole: str) -> InfraProvider:
    lower = word.strip().lower()
    known = {str(where): where for where in InfraProvider} | _OTHER_SPELLINGS
    if lower in known and word.strip():
        return known[lower]
    near = did_you_mean(
        lower, [str(where) for where in InfraProvider if where not in (InfraProvider.ANY, InfraProvider.SIMULATED)]
    )
    raise InvalidValueError(
        f"`{whole}` is not a place orch can run on" + (f", did you mean `{near}`?" if near else ""),
        _NOT_SERVED.get(lower, ""),
        "use gcp, aws, local, local:4, hosts, or `*` for any",
    )


def _checked(provider: InfraProvider, region: str, zone: str, word: str) -> Infra:
    """Region and zone fit each other; the region is taken from the zone when only that is given."""
    if provider not in _REGION:
        return Infra(provider=provider, region=region, zone=zone)
    zone_match = _ZONE[provider].fullmatch(zone)
    if zone and not zone_match:
        raise InvalidValueError(
            f"`{zone}` in `{word}` is not a zone of {provider}", "", f"write one like {_EXAMPLE[provider]}"
        )
    if region and not _REGION[provider].fullmatch(region):
        looks = _ZONE[provider].fullmatch(region)
        fix = f"write {provider}/{looks.group(1)}/{region}" if looks else f"write one like {_EXAMPLE[provider]}"
        raise InvalidValueError(f"`{region}` in `{word}` is not a region of {provider}", "", fix)
    of_zone = zone_match.group(1) if zone_match else ""
    if region and of_zone and of_zone != region:
        fix = f"write {provider}/{of_zone}/{zone}"
        raise InvalidValueError(f"the zone `{zone}` is not in the region `{region}`", "", fix)
    return Infra(provider=provider, region=region or of_zone, zone=zone)


_EXAMPLE = {InfraProvider.GCP: "gcp/us-west4/us-west4-a", InfraProvider.AWS: "aws/us-east-1/us-east-1a"}
