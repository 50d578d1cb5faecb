"""What the questions of `orch check aws` are about."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from orchestrator.catalog.accelerators import resolve_instance
from orchestrator.catalog.ec2_regions import load_zones_by_region
from orchestrator.catalog.machines import Ec2Instance
from orchestrator.errors import UserError
from orchestrator.options import encode_options
from orchestrator.providers.aws import choices, rented
from orchestrator.providers.aws.calls import Calls
from orchestrator.providers.aws.options import AwsOptions
from orchestrator.providers.checks import Ask
from orchestrator.slices import Candidate, CapacityBlock, Market, OnDemand, Reservation, Spot
from orchestrator.storage.address import Address

USUAL_TYPE, USUAL_NODES = "p5.48xlarge", 2  # permissions are asked with these where no machine is named: they need most


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, as AWS says. arn: of a user, of a role's session, or of the account's root."""

    account: str
    arn: str

    @property
    def partition(self) -> str:
        return self.arn.split(":")[1]

    @property
    def kind(self) -> str:
        """ "user", "assumed-role", "root" or "federated-user"."""
        return self.arn.rpartition(":")[2].partition("/")[0]

    @property
    def name(self) -> str:
        """Of the user or the role."""
        words = self.arn.rpartition(":")[2].split("/")
        return words[1] if self.kind == "assumed-role" else words[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One question, in one region. instance: None where no machine is named."""

    ask: Ask
    calls: Calls
    caller: Caller
    instance: Ec2Instance | None

    @property
    def region(self) -> str:
        return self.calls.region

    @property
    def options(self) -> AwsOptions:
        return cast(AwsOptions, self.ask.options)

    @property
    def market(self) -> Market:
        return market_of(self.ask)

    @property
    def bucket(self) -> Address | None:
        """The bucket of S3 that is asked about. Raises UserError for what is no bucket URI."""
        address = Address.parse(self.ask.bucket) if self.ask.bucket else None
        return address if address is not None and address.scheme == "s3" else None

    @property
    def profile_option(self) -> str:
        """For command lines."""
        return f" --profile {self.options.profile}" if self.options.profile else ""

    def candidate(self, zone: str = "") -> Candidate:
        """As a launch would ask for it. zone: "" for the one that was asked for, or any."""
        subnets = self.options.subnets
        options = replace(self.options, subnet=subnets[0] if subnets else "")
        return Candidate(
            provider="aws",
            accelerator=self.instance.name if self.instance else USUAL_TYPE,
            hosts=self.ask.nodes if self.instance else USUAL_NODES,
            chips_per_host=self.instance.chips_per_host if self.instance else 0,
            market=self.market,
            region=self.region,
            zone=zone or self.ask.zone or ("" if subnets else usual_zone(self.region)),
            details=encode_options(options),
        )

    def elastic(self) -> int:
        """How many Elastic IPs a launch would take. Raises UserError for what cannot be launched."""
        read = choices.read(self.candidate())
        return read.access.elastic(read.hosts)


def market_of(ask: Ask) -> Market:
    """A capacity block is asked for like a reservation: which of them it is, its record tells."""
    if ask.reservation:
        return Reservation(ask.reservation)
    return Spot() if ask.spot else OnDemand()


def as_block(candidate: Candidate) -> Candidate:
    """The same, with its reservation taken for a capacity block."""
    market = candidate.market
    block = CapacityBlock(market.name) if isinstance(market, Reservation) else market
    return replace(candidate, market=block)


def instance_of(ask: Ask) -> Ec2Instance | None:
    """The machine asked for, None for none. Raises UserError for a name that is no machine of EC2."""
    if not ask.accelerator:
        return None
    found = rented.find_rented(ask.accelerator) or rented.find_unlisted(ask.accelerator)
    if found is None:
        other = resolve_instance(ask.accelerator)  # raises for a name of no cloud, with the nearest ones
        raise UserError(f"{ask.accelerator} is not a machine of EC2", "", f"orch check {other.provider}")
    return found


def region_of(ask: Ask, configured: str, instance: Ec2Instance | None) -> str:
    """The one asked for, else the configured one, else one that has the machine. configured: "" for none."""
    if ask.region:
        return ask.region
    offering = instance.regions if instance is not None else ()
    if offering and configured not in offering:
        return offering[0]
    return configured


def usual_zone(region: str) -> str:
    return next(iter(load_zones_by_region().get(region, ())), f"{region}a")
