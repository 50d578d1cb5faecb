"""Capacity blocks: machines that are bought for a future period and paid immediately; and who sells them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol, cast

from orchestrator.drivers import Driver, has_part, list_clouds, load_part
from orchestrator.errors import OrchError
from orchestrator.options import Details
from orchestrator.slices import Request
from orchestrator.values import Text

HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSearch:
    """A search for blocks.

    Attributes:
        earliest: When a block begins at the earliest, in epoch seconds; None for any time.
        latest: Likewise, at the latest.
    """

    instance_type: str
    count: int
    hours: int
    earliest: float | None = None
    latest: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Offering:
    """A block that can be bought. One that begins immediately is shorter than requested: its end is at a fixed hour.

    Attributes:
        start: Epoch seconds; likewise `end`.
        fee: The price of the whole block.
        searched_hours: The hours of the search that found it.
        taken_early: Seconds before its end from which the vendor takes its instances.
    """

    id: str
    region: str
    zone: str
    instance_type: str
    count: int
    start: float
    end: float
    fee: Decimal
    currency: str = "USD"
    searched_hours: int = 0
    taken_early: float = 0.0

    @property
    def taken_from(self) -> float:
        """When the vendor begins to take its instances (epoch seconds)."""
        return self.end - self.taken_early

    @property
    def hours(self) -> float:
        """How long it is, in hours."""
        return (self.end - self.start) / HOUR

    @property
    def per_instance_hour(self) -> Decimal:
        """The price of one instance for an hour."""
        return self.fee / self.count / Decimal(self.hours)

    @property
    def confirmation(self) -> str:
        """What has to be typed to buy it: its price, to the cent, such as `7552.00`."""
        return f"{self.fee:.2f}"

    def same_terms(self, other: Offering) -> bool:
        """Return whether it is the same machines for the same time and money, whatever the ids."""
        mine = (self.region, self.zone, self.instance_type, self.count, self.start, self.end, self.fee, self.currency)
        return mine == (
            other.region, other.zone, other.instance_type, other.count, other.start, other.end, other.fee,
            other.currency,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block that was bought.

    Attributes:
        free: Instances that can still be launched in it; None where the vendor does not report it.
        start: Epoch seconds; likewise `end`.
        taken_early: Seconds before its end from which the vendor takes its instances.
    """

    id: str
    region: str
    zone: str
    instance_type: str
    count: int
    free: int | None
    state: str
    start: float
    end: float
    taken_early: float

    @property
    def taken_from(self) -> float:
        """When the vendor begins to take its instances (epoch seconds)."""
        return self.end - self.taken_early


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of several regions: what they have, sorted, and those that could not be asked."""

    offerings: tuple[Offering, ...] = ()
    blocks: tuple[Block, ...] = ()
    problems: tuple[tuple[str, OrchError], ...] = ()


class BlockSeller(Protocol):
    """The module `blocks` of a driver whose vendor sells capacity blocks.

    `session` is what its `open_session` returned.
    """

    def name_place(self, details: Details) -> str:
        """Return the place that options of a candidate name, with the identity as which it is called."""
        ...

    def open_session(self, place: str) -> Any:
        """Return the credentials of a place: an account, a project or a profile."""
        ...

    def plan_search(
        self, name: str, count: int, hours: int, earliest: float | None = None, latest: float | None = None
    ) -> BlockSearch:
        """Return a search.

        Raises:
            UserError: The vendor sells no such block.
        """
        ...

    def regions_of(self, instance_type: str) -> tuple[str, ...]:
        """Return the regions that offer a type.

        Raises:
            UserError: They are not recorded.
        """
        ...

    def every_region(self) -> tuple[str, ...]:
        """Return the regions that can have blocks of any type."""
        ...

    def find(self, session: Any, want: BlockSearch, regions: Sequence[str]) -> Answers:
        """Return the offerings of some regions, the cheapest first."""
        ...

    def look_again(self, session: Any, offering: Offering) -> Offering:
        """Return an offering as it is now, which may have another id.

        Raises:
            CapacityError: It is not offered any more.
        """
        ...

    def purchase_request(self, offering: Offering, installation: str | Text, profile: str = "") -> Request:
        """Return the request that buys an offering."""
        ...

    def buy(self, session: Any, offering: Offering, typed: str, installation: str) -> Block:
        """Buy an offering, if `typed` is exactly its price.

        Raises:
            UserError: It is not.
            CloudError: It is not known whether it was bought.
        """
        ...

    def bought(self, session: Any, installation: str, regions: Sequence[str]) -> Answers:
        """Return the blocks of an installation, by their start."""
        ...


def find_seller() -> Driver:
    """Return the driver whose vendor sells capacity blocks; so far there is one."""
    return next(driver for driver in list_clouds() if has_part(driver.name, "blocks"))


def load_seller() -> BlockSeller:
    """Return what that driver knows of blocks."""
    return cast(BlockSeller, load_part(find_seller().name, "blocks"))
