"""The tags by which everything that a slice consists of is known to be ours, and found again. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.errors import UserError
from orchestrator.slices import SliceSpec
from orchestrator.values import Text, to_text

INSTALLATION = "orch-installation"
CLUSTER = "orch-cluster"
EPOCH = "orch-epoch"  # only of what was taken over; else 1
INTENT = "orch-intent"  # the token of the slice
PROJECT = "orch-project"
MEMBER = "orch-member"
SLICE = "orch-slice"  # its name
NAME = "Name"  # what the console shows
# EC2 User Guide, "Tag restrictions", 2026.
MOST = 50
_LONGEST_KEY = 128
_LONGEST_VALUE = 256


def tags_of(spec: SliceSpec) -> dict[str, Text]:
    """The spec's labels and ours. Raises UserError for a label that cannot be a tag."""
    found = {**dict(spec.labels), INTENT: spec.token, SLICE: to_text(spec.name), NAME: to_text(spec.name)}
    if len(found) > MOST:
        raise UserError(
            f"{len(found)} labels are too many", f"EC2 allows {MOST} tags, including those of orch", "remove some"
        )
    for key, value in found.items():
        _check(key, value)
    return found


def specification(spec: SliceSpec, *kinds: str) -> list[object]:
    """TagSpecifications for resources of these kinds, the same tags for each."""
    pairs: list[object] = [{"Key": key, "Value": value} for key, value in tags_of(spec).items()]
    return [{"ResourceType": kind, "Tags": pairs} for kind in kinds]


def by_tag(key: str, value: str | Text) -> dict[str, object]:
    """A filter of the Describe operations."""
    return where(f"tag:{key}", value)


def where(name: str, *values: str | Text) -> dict[str, object]:
    listed: Sequence[str | Text] = values
    return {"Name": name, "Values": list(listed)}


def _check(key: str, value: Text) -> None:
    shown = value.preview()
    wrong = ""
    if not 1 <= len(key) <= _LONGEST_KEY or (value.is_known and len(shown) > _LONGEST_VALUE):
        wrong = f"a key has 1 to {_LONGEST_KEY} characters and a value up to {_LONGEST_VALUE}"
    elif key.lower().startswith("aws:"):
        wrong = "keys that begin with aws: are AWS's own"
    elif any(not char.isprintable() for char in key + shown):
        wrong = "it has characters that cannot be printed"
    if wrong:
        raise UserError(f"the label '{key[:60]}' cannot be a tag of EC2", wrong, "change the label")
