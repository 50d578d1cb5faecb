"""Tags: those of the creating call, and what CreateTags and DeleteTags have made of them.

Source: "Tag your Amazon EC2 resources" (EC2 User Guide, read November 2026): at most 50, keys up to 128 and values up
to 256 characters, no key begins with aws: .
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from orch_fronts.aws.calls import AwsRefusal
from orch_fronts.aws.ec2.visit import Visit
from orch_fronts.aws.ec2.words import wrong_value

MOST = 50


def sent(visit: Visit, *kinds: str) -> dict[str, dict[str, str]]:
    """The tags of TagSpecifications by kind of resource. kinds: which the call may name. Raises AwsRefusal."""
    found: dict[str, dict[str, str]] = {}
    for spec in visit.params.get("TagSpecifications", ()):
        kind = str(spec.get("ResourceType", ""))
        if kind not in kinds:
            raise wrong_value(f"'{kind}' is not a valid taggable resource type for this operation.")
        if kind in found:
            raise wrong_value(f"The resource type '{kind}' is specified more than once.")
        found[kind] = read(spec.get("Tags", ()))
    return found


def read(pairs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Raises AwsRefusal."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, value = str(pair.get("Key", "")), str(pair.get("Value", ""))
        if not 1 <= len(key) <= 128:
            raise wrong_value(f"Tag key '{key}' must have between 1 and 128 characters")
        if len(value) > 256:
            raise wrong_value(f"Tag value exceeds the maximum length of 256 characters. Tag key: {key}")
        if key.lower().startswith("aws:"):
            raise wrong_value(f"Tag keys starting with 'aws:' are reserved for internal use: {key}")
        if key in found:
            raise wrong_value(f"Duplicate tag key '{key}' specified.")
        found[key] = value
    if len(found) > MOST:
        raise AwsRefusal("TagLimitExceeded", f"The maximum number of Tags for a resource has been reached: {MOST}")
    return found


def now_of(visit: Visit, name: str, made_with: Mapping[str, str]) -> dict[str, str]:
    """The tags that a resource has now. name: its id."""
    later = cast(Mapping[str, str | None], visit.kept("tags").get(name))
    if not later:
        return dict(made_with)
    return {key: value for key, value in {**made_with, **later}.items() if value is not None}


def change(visit: Visit, name: str, pairs: Sequence[Mapping[str, Any]], *, remove: bool) -> None:
    """remove: a pair without a value takes the key whatever its value is."""
    later: dict[str, str | None] = visit.kept("tags").setdefault(name, {})
    for pair in pairs:
        later[str(pair["Key"])] = None if remove else str(pair.get("Value", ""))
