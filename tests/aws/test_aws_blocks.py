"""Capacity Blocks by real boto3 over a real socket: found everywhere, sorted, bought only by their exact price."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from support.block_shop import DAY, FIRST, BlockShop, offering, open_shop

from orch_fronts.aws.cloud import aws_scenario
from orch_fronts.aws.server import AwsServer
from orchestrator.errors import AccessError, CapacityError, CloudError, UserError
from orchestrator.providers.aws import blocks
from orchestrator.providers.aws.session import AwsSession
from orchestrator.providers.block_market import BlockSearch
from orchestrator.providers.offerings import recall, remember
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.scenario import Scenario
from orchestrator.values import Unknown

WANT = BlockSearch(instance_type="p5.48xlarge", count=4, hours=48)
REGIONS = ("us-east-1", "us-west-2")


@pytest.fixture
def shop() -> BlockShop:
    return BlockShop(
        {
            "us-east-1": [
                offering("cb-2", "7552.0000", days_later=1),
                offering("cb-1", "7552.0000"),
                offering("cb-3", "9000.00"),
                offering("cb-4", "100.00", count=2),
                offering("cb-5", "8000.00", days_later=9),
            ],
            "us-west-2": [offering("cb-6", "7000.50", days_later=2)],
        }
    )


@pytest.fixture
def session(shop: BlockShop) -> Iterator[AwsSession]:
    with open_shop(shop) as url:
        yield AwsSession("", url)


def ids(answers: blocks.Answers) -> list[str]:
    return [one.id for one in answers.offerings]


def test_every_region_and_every_page_is_asked_and_the_cheapest_comes_first(
    session: AwsSession, shop: BlockShop
) -> None:
    answers = blocks.find(session, WANT, REGIONS)
    assert ids(answers) == ["cb-6", "cb-1", "cb-2", "cb-5", "cb-3"]
    first = answers.offerings[1]
    assert (first.region, first.zone, first.start, first.hours) == ("us-east-1", "us-east-1a", FIRST, 48.0)
    assert first.per_instance_hour == Decimal("7552") / 4 / 48
    assert {region for region, _, _ in shop.heard} == set(REGIONS)


def test_a_range_of_starts_is_sent_and_holds(session: AwsSession, shop: BlockShop) -> None:
    want = replace(WANT, earliest=FIRST + DAY, latest=FIRST + 2 * DAY)
    assert ids(blocks.find(session, want, REGIONS)) == ["cb-6", "cb-2"]
    sent = shop.heard[0][2]
    assert (sent["StartDateRange"], sent["EndDateRange"]) == (FIRST + DAY, FIRST + 4 * DAY)


def test_a_region_that_refuses_is_told_beside_what_the_others_have(session: AwsSession, shop: BlockShop) -> None:
    shop.refuses["us-west-2"] = "UnauthorizedOperation"
    answers = blocks.find(session, WANT, REGIONS)
    assert ids(answers) == ["cb-1", "cb-2", "cb-5", "cb-3"]
    ((region, problem),) = answers.problems
    assert region == "us-west-2" and isinstance(problem, AccessError)
    shop.refuses["us-east-1"] = "AuthFailure"
    with pytest.raises(AccessError):
        blocks.find(session, WANT, REGIONS)


@pytest.mark.parametrize("typed", ["", "7552", "7552.0", "7,552.00", "$7552.00", " 7552.00", "7552.01", "yes"])
def test_any_word_but_the_exact_price_buys_nothing(session: AwsSession, shop: BlockShop, typed: str) -> None:
    one = blocks.find(session, WANT, REGIONS).offerings[1]
    with pytest.raises(UserError, match="is not the price"):
        blocks.buy(session, one, typed, "inst-1")
    assert shop.sold == []
    assert not [operation for _, operation, _ in shop.heard if operation == "PurchaseCapacityBlock"]


def test_the_exact_price_buys_it_once_with_our_tag(session: AwsSession, shop: BlockShop) -> None:
    one = blocks.find(session, WANT, REGIONS).offerings[1]
    block = blocks.buy(session, one, "7552.00", "inst-1")
    assert (block.id, block.region, block.start, block.taken_from) == (
        "cr-00000000000000000", "us-east-1", FIRST, FIRST + 2 * DAY - 1800.0,
    )  # fmt: skip
    ((_, held),) = shop.sold
    assert held["Tags"] == [{"Key": "orch-installation", "Value": "inst-1"}]
    assert held["InstancePlatform"] == "Linux/UNIX"
    assert shop.heard[-1][2]["TagSpecifications"][0]["ResourceType"] == "capacity-reservation"
    assert blocks.bought(session, "inst-1", REGIONS).blocks == (block,)
    assert blocks.bought(session, "inst-2", REGIONS).blocks == ()


def test_a_purchase_without_an_answer_is_not_sent_again_and_says_to_look_first(
    session: AwsSession, shop: BlockShop
) -> None:
    one = blocks.find(session, WANT, REGIONS).offerings[1]
    shop.mute = True
    with pytest.raises(CloudError, match="not known whether cb-1 was bought") as caught:
        blocks.buy(session, one, "7552.00", "inst-1")
    assert caught.value.next_step.startswith("orch blocks list --region us-east-1")
    assert len(shop.sold) == 1, "bought once"


def test_an_offering_is_found_again_by_its_id_or_by_its_terms(session: AwsSession, shop: BlockShop) -> None:
    one = blocks.find(session, WANT, REGIONS).offerings[1]
    assert blocks.look_again(session, one) == one
    shop.offerings["us-east-1"][1]["CapacityBlockOfferingId"] = "cb-new"
    assert blocks.look_again(session, one).id == "cb-new"
    shop.offerings["us-east-1"][1]["UpfrontFee"] = "7552.01"
    with pytest.raises(CapacityError, match="not offered any more"):
        blocks.look_again(session, one)


@pytest.mark.parametrize(
    ("hours", "nearest"),
    [(1, "--hours 24"), (30, "--hours 24 or --hours 48"), (360, "--hours 336 or --hours 504"), (9999, "--hours 4368")],
)
def test_other_durations_are_refused_with_the_nearest_ones(hours: int, nearest: str) -> None:
    with pytest.raises(UserError) as caught:
        blocks.plan_search("p5.48xlarge", 4, hours)
    assert caught.value.next_step == nearest


@pytest.mark.parametrize("hours", [24, 336, 504, 4368])
def test_days_up_to_two_weeks_and_then_weeks_can_be_had(hours: int) -> None:
    assert blocks.plan_search("H100:8", 64, hours) == BlockSearch(instance_type="p5.48xlarge", count=64, hours=hours)


@pytest.mark.parametrize(
    ("name", "count", "words"),
    [
        ("p5.48xlarge", 65, "65 instances"),
        ("trn1n.32xlarge", 1, "no Capacity Blocks"),
        ("v5e", 1, "not an instance type"),
    ],
)
def test_what_aws_does_not_sell_is_refused_before_anything_is_asked(name: str, count: int, words: str) -> None:
    with pytest.raises(UserError, match=words):
        blocks.plan_search(name, count, 24)


def test_the_command_says_the_same_as_the_request() -> None:
    """Unknown parts stand in the preview as what they are."""
    one = blocks.Offering(
        id="cb-1",
        region="us-east-1",
        zone="us-east-1a",
        instance_type="p5.48xlarge",
        count=4,
        start=FIRST,
        end=FIRST + DAY,
        fee=Decimal(100),
    )
    sent = blocks.purchase_request(one, blocks.to_text(Unknown("installation id")), "work")
    shown = " ".join(word.preview() for word in sent.command)
    assert shown.startswith("aws ec2 purchase-capacity-block --region us-east-1 --profile work")
    assert "--capacity-block-offering-id cb-1 --instance-platform Linux/UNIX" in shown
    assert '"Value":"(installation id)"' in shown


def test_what_was_found_is_known_by_its_id_until_it_is_over(session: AwsSession, tmp_path: Path) -> None:
    found = blocks.find(session, WANT, REGIONS).offerings
    remember(tmp_path, "aws", found, FIRST)
    assert recall(tmp_path, "aws", "cb-1") == found[1]
    remember(tmp_path, "aws", (), FIRST + 3.5 * DAY)
    assert recall(tmp_path, "aws", "cb-1") is None and recall(tmp_path, "aws", "cb-6") is not None
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o077 == 0
    file.write_text("[{")
    assert recall(tmp_path, "aws", "cb-6") is None


def test_the_pretend_ec2_sells_a_block_by_its_exact_price_only() -> None:
    with AwsServer(InMemory(aws_scenario(Scenario()), ManualClock())) as server:
        session = AwsSession("", server.url)
        found = blocks.find(session, WANT, REGIONS).offerings
        assert {one.region for one in found} == set(REGIONS)
        with pytest.raises(UserError, match="nothing was bought"):
            blocks.buy(session, found[0], found[1].confirmation + "0", "inst-1")
        assert blocks.bought(session, "inst-1", REGIONS).blocks == ()
        block = blocks.buy(session, found[0], found[0].confirmation, "inst-1")
        assert blocks.bought(session, "inst-1", REGIONS).blocks == (block,)
        assert blocks.look_again(session, found[1]) == found[1]
