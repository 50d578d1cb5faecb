"""The records of what lets keys and addresses in to hosts, and of who has slices that changed hands."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.slices import Candidate
from orchestrator.store.records import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceOwner:
    """Who has a slice that changed hands.

    Attributes:
        token: Of its intent.
        epoch: What our commands present to its hosts (hosts.Fence).
        holder: Who has taken it over from here, in words; "" when it is ours.
    """

    token: str
    epoch: int
    holder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSliceRecord:
    """The record of machines that are taken over.

    Attributes:
        cluster: The name that they get here.
        summary: Of the cluster.
        generation: These and the token are what the provider's labels say.
        created: When the machines were created, in epoch seconds; 0 where not known.
        installation: Whose label they had.
        epoch: The new one.
    """

    cluster: str
    summary: str
    generation: int
    name: str
    token: str
    candidate: Candidate
    account: str
    created: float
    installation: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRecord:
    """What lets a computer, or a member, in to the hosts of one slice.

    Attributes:
        computer: The id of the computer, or the uid of the member's grant.
        address: What its firewall admits, as CIDR; "" for the key on the hosts.
        at: When it was written, or last renewed, in epoch seconds.
        until: When it ends; 0 for as long as the machines exist.
        confirmed: When the change took effect; 0 when that is not known.
    """

    cluster_uid: str
    generation: int
    computer: str
    address: str
    at: float
    until: float
    confirmed: float


def admission_from_row(row: Row) -> AdmissionRecord:
    """Return a row of `admissions`, whose columns are named as the fields."""
    return AdmissionRecord(**{name: row[name] for name in AdmissionRecord.__dataclass_fields__})


def slice_owner_from_row(row: Row) -> SliceOwner:
    """Return a row of `slice_owners`."""
    return SliceOwner(token=row["token"], epoch=row["epoch"], holder=row["holder"])
