"""Resource names, and which ids, labels and metadata the API takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from orch_fronts.google.status import invalid

MAX_LABELS = 64
MAX_VALUE = 256 * 1024  # bytes of one metadata value
MAX_METADATA = 512 * 1024  # bytes of all of them

_ID = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
_LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")


def place(project: str, zone: str) -> str:
    return f"projects/{project}/locations/{zone}"


def node_name(project: str, zone: str, name: str) -> str:
    return f"{place(project, zone)}/nodes/{name}"


def queued_name(project: str, zone: str, name: str) -> str:
    return f"{place(project, zone)}/queuedResources/{name}"


def check_id(field: str, value: str) -> None:
    """Rule node_id_is_a_name_of_compute_engine. Raises Refusal."""
    if not _ID.fullmatch(value):
        raise invalid(field, f"Invalid {field} {value!r}: it must match {_ID.pattern}")


def check_labels(labels: Mapping[str, str]) -> None:
    """Rule labels_are_lower_case; letters of other alphabets, which Google takes, are refused. Raises Refusal."""
    if len(labels) > MAX_LABELS:
        raise invalid("node.labels", f"There are {len(labels)} labels; at most {MAX_LABELS} are allowed")
    for key, value in labels.items():
        if not _LABEL_KEY.fullmatch(key):
            raise invalid("node.labels", f"Invalid label key {key!r}: it must match {_LABEL_KEY.pattern}")
        if not _LABEL_VALUE.fullmatch(value):
            raise invalid(
                "node.labels", f"Invalid value {value!r} of label {key}: it must match {_LABEL_VALUE.pattern}"
            )


def check_metadata(metadata: Mapping[str, Any]) -> None:
    """Rule metadata_has_a_limit. Raises Refusal."""
    sizes = {key: len(str(value).encode()) for key, value in metadata.items()}
    for key, size in sizes.items():
        if size > MAX_VALUE:
            raise invalid("node.metadata", f"Metadata value {key} has {size} bytes; at most {MAX_VALUE} are allowed")
    if sum(sizes.values()) > MAX_METADATA:
        raise invalid("node.metadata", f"Metadata has {sum(sizes.values())} bytes; at most {MAX_METADATA} are allowed")
