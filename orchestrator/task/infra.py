"""Where to run: `provider[/region[/zone]]` with `*` for any, or `local:4`, or `local:v5litepod-16`, or `hosts`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from orchestrator.drivers import PlaceNames, get_driver, list_clouds, list_drivers
from orchestrator.messages import join_words
from orchestrator.task.errors import InvalidValueError, did_you_mean

# Places that are no clouds, to which task files give a meaning. The names of clouds are those of their drivers.
LOCAL = "local"
HOSTS = "hosts"
SIMULATED = "simulated"  # a rehearsal's cloud; anything that can be rented or made stands there
ANY = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Infra:
    """A place.

    Attributes:
        provider: The name of a driver, or ANY.
        region: "" for any; likewise `zone`.
        shape: What follows `local:`.
    """

    provider: str
    region: str = ""
    zone: str = ""
    shape: str = ""

    @property
    def owned(self) -> bool:
        """Return whether nothing is rented."""
        return self.provider != ANY and get_driver(self.provider).owned

    def __str__(self) -> str:
        if self.shape:
            return f"{self.provider}:{self.shape}"
        parts = [self.provider, self.region, self.zone]
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
    if colon and head.lower() == LOCAL:
        if not shape.strip():
            raise InvalidValueError(
                f"`{word}` says no shape", "", "write local:4 for four hosts, or local:v5litepod-16"
            )
        return Infra(provider=LOCAL, shape=shape.strip())
    provider_word, *rest = word.split("/")
    provider = _provider(provider_word, word)
    places = ["" if part == "*" else part.strip().lower() for part in rest]
    if len(places) > 2 or any(part == "" for part in rest):
        raise InvalidValueError(f"`{word}` is not a place", "the form is provider/region/zone", "use `*` for any part")
    region, zone = (*places, "", "")[:2]
    if places and provider != ANY and get_driver(provider).owned:
        raise InvalidValueError(f"`{word}` is not a place", f"`{provider}` has no regions", f"write {provider}")
    return _checked(provider, region, zone, word)


def infra_from_parts(cloud: str, region: str, zone: str) -> Infra:
    """Return the older keys `cloud`, `region` and `zone`; "" where one is absent."""
    return parse_infra("/".join(part or "*" for part in (cloud, region, zone)) if region or zone else cloud or "*")


_NO_KUBERNETES = "orch talks to machines over SSH and serves no Kubernetes"
_NOT_SERVED = {
    "kubernetes": _NO_KUBERNETES,
    "k8s": _NO_KUBERNETES,
    "slurm": "orch does not submit to Slurm",
    "ssh": "your own machines are called `hosts`",
}
_OTHER_CLOUDS = ("azure",)  # of the dialect, which no driver serves


def _provider(word: str, whole: str) -> str:
    lower = word.strip().lower()
    known = {spelling: driver.name for driver in list_drivers() for spelling in (driver.name, *driver.spellings)}
    known[ANY] = ANY
    if lower in known:
        return known[lower]
    clouds = [driver.name for driver in list_clouds()]
    near = did_you_mean(lower, [*clouds, *(driver.name for driver in list_drivers() if driver.owned)])
    vendors = f"orch rents from {join_words([driver.vendor for driver in list_clouds()])}"
    raise InvalidValueError(
        f"`{whole}` is not a place orch can run on" + (f", did you mean `{near}`?" if near else ""),
        vendors if lower in _OTHER_CLOUDS else _NOT_SERVED.get(lower, ""),
        f"use {', '.join(clouds)}, {LOCAL}, {LOCAL}:4, {HOSTS}, or `*` for any",
    )


def _checked(provider: str, region: str, zone: str, word: str) -> Infra:
    """Region and zone fit each other; the region is taken from the zone when only that is given."""
    names = get_driver(provider).places if provider != ANY else None
    if names is None:
        return Infra(provider=provider, region=region, zone=zone)
    of_zone = _region_of(names, zone)
    if zone and not of_zone:
        raise InvalidValueError(
            f"`{zone}` in `{word}` is not a zone of {provider}", "", f"write one like {names.example}"
        )
    if region and not re.fullmatch(names.region, region):
        meant = _region_of(names, region)
        fix = f"write {provider}/{meant}/{region}" if meant else f"write one like {names.example}"
        raise InvalidValueError(f"`{region}` in `{word}` is not a region of {provider}", "", fix)
    if region and of_zone and of_zone != region:
        fix = f"write {provider}/{of_zone}/{zone}"
        raise InvalidValueError(f"the zone `{zone}` is not in the region `{region}`", "", fix)
    return Infra(provider=provider, region=region or of_zone, zone=zone)


def _region_of(names: PlaceNames, zone: str) -> str:
    """Return the region of a zone; "" for a word that is no zone."""
    found = re.fullmatch(names.zone, zone)
    return found.group(1) if found else ""
