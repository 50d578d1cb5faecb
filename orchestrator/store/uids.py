"""The uid of a cluster, whose last digits are in the names of its slices.

These digits follow from who opens the cluster where, and from how many of its name there were before. So a preview
knows them before there is a record, and two installations of one cloud account, or two projects, get different ones.
The other digits are random: a later cluster never has the uid of an earlier one, even when a state folder was lost.
"""

from __future__ import annotations

import hashlib
import secrets

DIGITS = 16  # of a uid
END = 6  # of them derived


def derive_uid_end(computer: str, project: str, name: str, ordinal: int) -> str:
    """Return the last digits of the uid that a new cluster gets.

    Args:
        computer: Computer, person and state folder; see computer.identify_place.
        project: The cluster's project.
        name: Its name.
        ordinal: The number of clusters of this name and project that the store has, deleted ones too.
    """
    text = "\0".join((computer, project, name, str(ordinal)))
    return hashlib.sha256(text.encode()).hexdigest()[:END]


def make_uid(end: str) -> str:
    """Return a new uid with this end."""
    return secrets.token_hex((DIGITS - END) // 2) + end
