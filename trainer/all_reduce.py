"""The result of a measured all-reduce, and the bus bandwidth as nccl-tests defines it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduceRate:
    """One measurement.

    Attributes:
        device: Kind of the devices.
        backend: Of the collective.
        ranks: Number of members that add up.
        members: What a member is: "ranks", or "devices" where one rank drives several.
        mebibytes: Size of the tensor that every member adds.
        gigabytes_per_second: Bus bandwidth.
    """

    device: str
    backend: str
    ranks: int
    members: str = "ranks"
    mebibytes: int
    gigabytes_per_second: float


def compute_bus_bandwidth(size: int, members: int, seconds: float) -> float:
    """Return GB/s: size / time * 2 (n - 1) / n (nccl-tests, doc/PERFORMANCE.md).

    Args:
        size: Bytes that every member adds.
        members: How many add up.
        seconds: Time of one all-reduce.
    """
    return size / seconds * 2 * (members - 1) / members / 1e9
