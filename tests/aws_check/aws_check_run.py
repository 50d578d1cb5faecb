"""One run through everything that orch asks of AWS, so that what it asks for can be compared with its policy.

A new kind of slice is a line in RUNS; a new service is a function in STEPS.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from aws_check_support import INSTALLATION, REGION, RESERVED, ZONE, Account

from orch_fronts.aws.calls import AwsAnswer, AwsCall, AwsRefusal
from orchestrator.catalog.ec2 import load_instances
from orchestrator.errors import CloudError
from orchestrator.providers.aws import blocks
from orchestrator.providers.aws.auxiliary_resources import AuxiliaryResources
from orchestrator.providers.aws.buckets import place_of
from orchestrator.providers.aws.calls import Calls
from orchestrator.providers.aws.prices import read_prices
from orchestrator.providers.aws.provider import AwsProvider
from orchestrator.providers.price_refresh import PriceRequest, Progress
from orchestrator.remote.keys import make_host_key
from orchestrator.slices import (
    Candidate,
    CapacityBlock,
    Market,
    OnDemand,
    Reservation,
    SliceKeys,
    SliceSpec,
    SliceState,
    Spot,
)
from orchestrator.storage.bucket import Bucket
from orchestrator.storage.cloud import PART
from orchestrator.values import Text

SECONDS = 900.0  # in which a simulated slice is made, or ended
DAY = 24 * 3600.0


def candidate(
    instance_type: str = "trn1.2xlarge", market: Market | None = None, hosts: int = 1, **details: str
) -> Candidate:
    chips = load_instances()[instance_type].chips_per_host
    return Candidate(
        provider="aws",
        accelerator=instance_type,
        hosts=hosts,
        chips_per_host=chips,
        market=market or OnDemand(),
        region=REGION,
        zone=ZONE,
        details=tuple(details.items()),
    )


RUNS = {
    "one machine, with a role": candidate(instance_profile="orch-host"),
    "two close together, with an Elastic IP": candidate("p4d.24xlarge", hosts=2),
    "spot": candidate(market=Spot()),
    "an image of one SDK": candidate("trn1.32xlarge", network="best"),
    "reserved": candidate("p5.48xlarge", Reservation(RESERVED.name), hosts=2),
}


def slices(account: Account, folder: Path) -> None:
    """Create, look, stop and start where that can be, change addresses, list, end: each kind of slice."""
    provider = provider_of(account, folder)
    for index, one in enumerate(RUNS.values()):
        name = f"run-{index}"
        provider.create(spec(name, one), keys(one.hosts, folder))
        until(account, provider, name, SliceState.READY)
        if index == 0:
            assert provider.diagnose_hosts(name, "", [0]) == {0: "EC2: its status checks pass"}
            provider.stop(name)
            until(account, provider, name, SliceState.STOPPED)
            provider.start(name)
            until(account, provider, name, SliceState.READY)
            provider.change_addresses(name, spec(name, one).token.reveal(), one, {"192.0.2.1/32": "c"}, ())
            provider.change_addresses(
                name, spec(name, one).token.reveal(), one, {"192.0.2.2/32": "c"}, ("192.0.2.1/32",)
            )
        assert [one.name for one in provider.owned(INSTALLATION)] == [name]
        provider.end(name)
        until(account, provider, name, SliceState.ABSENT)


def elsewhere(account: Account, folder: Path) -> None:
    """A slice whose record is on another computer is found and ended, too."""
    provider_of(account, folder).create(spec("moved", RUNS["spot"]), keys(1, folder))
    until(account, provider_of(account, folder), "moved", SliceState.READY)
    shutil.rmtree(folder / "aws")
    other = provider_of(account, folder / "other")
    other.end("moved")
    account.clock.advance(120)
    other.end("moved")  # what was kept beside the machines goes when these are gone
    until(account, other, "moved", SliceState.ABSENT)


def answer_lost(account: Account, folder: Path) -> None:
    """A create whose answer was lost is repeated by another computer: the host keys that EC2 holds are read from it."""
    one, second = spec("unheard", RUNS["spot"]), folder / "second"

    def lose(call: AwsCall) -> AwsAnswer:
        account.server.ec2.handle(call)
        raise AwsRefusal("ServiceUnavailable", "the machines are made, and the answer is lost", 503)

    def hide(call: AwsCall) -> AwsAnswer:
        raise AwsRefusal("InternalError", "they cannot be looked for either", 500)

    account.answers["ec2", "RunInstances"] = lose
    account.answers["ec2", "DescribeInstances"] = hide
    with pytest.raises(CloudError):
        provider_of(account, folder).create(one, keys(1, folder))
    account.answers.clear()
    shutil.copytree(folder / "aws", second / "aws")
    provider_of(account, second).create(one, keys(1, folder))
    until(account, provider_of(account, second), "unheard", SliceState.READY)
    reservations = Calls(account.session, REGION).every(
        "DescribeInstances", "Reservations", {"instance-state-name": ["running"]}
    )
    assert len(reservations) == len(reservations[0]["Instances"]) == 1, "the second create made nothing"
    provider_of(account, second).end("unheard")
    until(account, provider_of(account, second), "unheard", SliceState.ABSENT)
    shutil.rmtree(second)


def lingering(account: Account, folder: Path) -> None:
    """A spot request that is still open when its machines are cleaned up after: it is cancelled."""
    provider = provider_of(account, folder)
    one = spec("lingering", RUNS["spot"])
    provider.create(one, keys(1, folder))
    until(account, provider, "lingering", SliceState.READY)
    left = AuxiliaryResources(Calls(account.session, REGION), "lingering", one.token.reveal())
    assert left.spot_requests() and left.remove() == ["security group orch-lingering"]
    assert not left.spot_requests()
    provider.end("lingering")
    until(account, provider, "lingering", SliceState.ABSENT)


def bought(account: Account, folder: Path) -> None:
    """A capacity block: found, bought, listed, launched into when it begins."""
    want = blocks.plan_search("p4d.24xlarge", 1, 24)
    offering = blocks.find(account.session, want, (REGION,)).offerings[0]
    block = blocks.buy(account.session, offering, offering.confirmation, INSTALLATION)
    account.clock.advance(max(0.0, offering.start - account.clock.now()) + 120)
    assert [one.id for one in blocks.bought(account.session, INSTALLATION, (REGION,)).blocks] == [block.id]
    one = candidate("p4d.24xlarge", CapacityBlock(block.id))
    one = Candidate(
        provider=one.provider,
        accelerator=one.accelerator,
        hosts=1,
        chips_per_host=8,
        market=one.market,
        region=REGION,
        zone=block.zone,
    )
    provider = provider_of(account, folder)
    provider.create(spec("block", one), keys(1, folder))
    until(account, provider, "block", SliceState.READY)
    provider.end("block")
    until(account, provider, "block", SliceState.ABSENT)


def stored(account: Account, folder: Path) -> None:
    """Objects in the bucket; an upload that breaks off."""
    assert place_of("runs", account.session).location == REGION
    bucket = Bucket.open("s3://runs/exp")
    bucket.check_access(write=True)
    bucket.put_if_absent("a/1", b"one")
    assert bucket.get("a/1") == b"one" and bucket.exists("a/1")
    assert [one.path for one in bucket.list("a")] == ["a/1"]
    large = folder / "large"
    large.write_bytes(bytes(PART * 2))
    bucket.upload_file(large, "large")

    def stop(count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(BaseException):  # noqa: B017 - obstore makes its own of it
        bucket.upload_file(large, "broken", stop)
    bucket.delete_all(["a/1", "large"])


def priced(account: Account, folder: Path) -> None:
    """Prices of one region, as `orch catalog refresh aws` reads them."""
    found = read_prices(PriceRequest(now=account.clock.now(), today="2026-11-26", regions=(REGION,)), Progress(_quiet))
    assert found.unread == () and {one.market for one in found.rows} >= {"spot", "on-demand"}


def _quiet(what: str, done: int, total: int) -> None:
    del what, done, total


STEPS: tuple[Callable[[Account, Path], None], ...] = (slices, elsewhere, answer_lost, lingering, bought, stored, priced)


def provider_of(account: Account, folder: Path) -> AwsProvider:
    return AwsProvider(lambda _: account.session, folder / "aws", account.clock.now, account.clock.sleep)


def spec(name: str, one: Candidate) -> SliceSpec:
    token = f"5f0c91aa-{name}"
    words = {"orch-installation": INSTALLATION, "orch-cluster": "demo", "orch-intent": token}
    return SliceSpec(
        cluster="demo",
        name=name,
        token=Text.of(token),
        candidate=one,
        labels=tuple((key, Text.of(value)) for key, value in words.items()),
    )


def keys(hosts: int, folder: Path) -> SliceKeys:
    pairs = [make_host_key() for _ in range(hosts)]
    return SliceKeys(
        user_public=pairs[0][1],
        identity_file=str(folder / "id"),
        known_hosts=str(folder / "known_hosts"),
        host_private=tuple(private for private, _ in pairs),
        host_public=tuple(public for _, public in pairs),
    )


def until(account: Account, provider: AwsProvider, name: str, state: SliceState) -> None:
    end = account.clock.now() + SECONDS
    while (view := provider.finish(name)).state is not state:
        assert account.clock.now() < end, view
        account.clock.advance(5)
