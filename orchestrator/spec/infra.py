"""Where to run: `provider[/region[/zone]]` with `*` for any, or `local:4`, or `local:v5litepod-16`, or `hosts`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.spec.errors import FormError, did_you_mean


class Where(StrEnum):
    GCP = "gcp"
    AWS = "aws"
    LOCAL = "local"
    HOSTS = "hosts"
    SIMULATED = "simulated"  # a rehearsal's cloud; anything that can be rented or made stands there
    ANY = "*"


@dataclass(frozen=True, slots=True)
class Infra:
    """region and zone: "" for any. shape: what follows `local:`, "" otherwise."""

    provider: Where
    region: str = ""
    zone: str = ""
    shape: str = ""

    @property
    def owned(self) -> bool:
        """Whether nothing is rented."""
        return self.provider in (Where.LOCAL, Where.HOSTS)

    def __str__(self) -> str:
        if self.shape:
            return f"{self.provider}:{self.shape}"
        parts = [str(self.provider), self.region, self.zone]
        while parts[-1] == "":
            parts.pop()
        return "/".join(part or "*" for part in parts)


def parse_infra(text: str) -> Infra:
    """Raises FormError with what is allowed. `local:` shapes are resolved later, with the accelerators."""
    word = text.strip()
    head, colon, shape = word.partition(":")
    if colon and head.lower() == Where.LOCAL:
        if not shape.strip():
            raise FormError(f"`{word}` says no shape", "", "write local:4 for four hosts, or local:v5litepod-16")
        return Infra(Where.LOCAL, shape=shape.strip())
    provider_word, *rest = word.split("/")
    provider = _provider(provider_word, word)
    places = ["" if part == "*" else part.strip().lower() for part in rest]
    if len(places) > 2 or any(part == "" for part in rest):
        raise FormError(f"`{word}` is not a place", "the form is provider/region/zone", "use `*` for any part")
    region, zone = (*places, "", "")[:2]
    if provider in (Where.LOCAL, Where.HOSTS) and places:
        raise FormError(f"`{word}` is not a place", f"`{provider}` has no regions", f"write {provider}")
    return _checked(provider, region, zone, word)


def from_parts(cloud: str, region: str, zone: str) -> Infra:
    """The older keys `cloud`, `region` and `zone`; "" where one is absent."""
    return parse_infra("/".join(part or "*" for part in (cloud, region, zone)) if region or zone else cloud or "*")


_REGION = {Where.GCP: re.compile(r"[a-z]+(?:-[a-z]+)+[0-9]+"), Where.AWS: re.compile(r"[a-z]{2,4}(?:-[a-z]+)+-[0-9]+")}
_ZONE = {
    Where.GCP: re.compile(r"([a-z]+(?:-[a-z]+)+[0-9]+)-[a-z]"),
    Where.AWS: re.compile(r"([a-z]{2,4}(?:-[a-z]+)+-[0-9]+)[a-z]"),
}
_NOT_SERVED = {
    "kubernetes": "orch talks to machines over SSH and serves no Kubernetes",
    "k8s": "orch talks to machines over SSH and serves no Kubernetes",
    "slurm": "orch does not submit to Slurm",
    "azure": "orch rents from Google and AWS",
    "ssh": "machines of your own are called `hosts`",
}
_OTHER_SPELLINGS = {"google": Where.GCP, "amazon": Where.AWS, "ec2": Where.AWS, "": Where.ANY}


def _provider(word: str, whole: str) -> Where:
    lower = word.strip().lower()
    known = {str(where): where for where in Where} | _OTHER_SPELLINGS
    if lower in known and word.strip():
        return known[lower]
    near = did_you_mean(lower, [str(where) for where in Where if where not in (Where.ANY, Where.SIMULATED)])
    raise FormError(
        f"`{whole}` is not a place orch can run on" + (f", did you mean `{near}`?" if near else ""),
        _NOT_SERVED.get(lower, ""),
        "use gcp, aws, local, local:4, hosts, or `*` for any",
    )


def _checked(provider: Where, region: str, zone: str, word: str) -> Infra:
    """Region and zone fit each other; the region is taken from the zone when only that is given."""
    if provider not in _REGION:
        return Infra(provider, region, zone)
    zone_match = _ZONE[provider].fullmatch(zone)
    if zone and not zone_match:
        raise FormError(f"`{zone}` in `{word}` is not a zone of {provider}", "", f"write one like {_EXAMPLE[provider]}")
    if region and not _REGION[provider].fullmatch(region):
        looks = _ZONE[provider].fullmatch(region)
        fix = f"write {provider}/{looks.group(1)}/{region}" if looks else f"write one like {_EXAMPLE[provider]}"
        raise FormError(f"`{region}` in `{word}` is not a region of {provider}", "", fix)
    of_zone = zone_match.group(1) if zone_match else ""
    if region and of_zone and of_zone != region:
        fix = f"write {provider}/{of_zone}/{zone}"
        raise FormError(f"the zone `{zone}` is not in the region `{region}`", "", fix)
    return Infra(provider, region or of_zone, zone)


_EXAMPLE = {Where.GCP: "gcp/us-west4/us-west4-a", Where.AWS: "aws/us-east-1/us-east-1a"}
