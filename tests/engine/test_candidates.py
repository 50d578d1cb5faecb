"""From a task to candidates: places, markets, and what only the provider understands."""

from __future__ import annotations

import pytest

from orchestrator.catalog.accelerators import resolve
from orchestrator.catalog.ec2_regions import list_opt_in_regions
from orchestrator.catalog.prices import price_per_hour
from orchestrator.engine.preparation.candidates import explain_order, list_candidates
from orchestrator.offers.capacity import CapacityFigures, CapacityKey, CapacityRequest, make_key, summarize_capacity
from orchestrator.providers.google import choices
from orchestrator.providers.google.candidates import QUEUE_HOURS, QUEUE_HOURS_OF_MANY
from orchestrator.slices import Candidate, CapacityBlock, FlexStart, OnDemand, Owned, Reservation, Spot
from orchestrator.task.model import Task
from orchestrator.task.parse import parse_task


def task(resources: str, more: str = "") -> Task:
    return parse_task(f"run: echo\nresources: {resources}\n{more}", file="t.yaml", env={}).only


def test_a_choice_without_a_zone_is_tried_in_every_zone_that_has_it_the_cheapest_first() -> None:
    found = list_candidates(task("{accelerators: v5e-16}"))
    assert len({one.zone for one in found}) == len(found) > 5
    prices = [one.price_per_hour or float("inf") for one in found]
    assert prices == sorted(prices)
    assert prices[0] < prices[-1]
    assert {one.region for one in found} == {one.zone.rpartition("-")[0] for one in found}


def test_a_region_or_a_zone_narrows_the_places() -> None:
    region = list_candidates(task("{accelerators: v5e-16, infra: gcp/us-east5}"))
    assert {one.zone for one in region} == {"us-east5-a", "us-east5-b", "us-east5-c"}
    (one,) = list_candidates(task("{accelerators: v5e-16, infra: gcp/us-west4/us-west4-a}"))
    assert (one.region, one.zone) == ("us-west4", "us-west4-a")
    (odd,) = list_candidates(task("{accelerators: v5e-16, infra: gcp/asia-east1}"))
    assert (odd.region, odd.zone) == ("asia-east1", ""), "the provider says what is wrong with it"


def test_on_demand_comes_last_as_a_fallback() -> None:
    found = list_candidates(task("{accelerators: v6e-8, use_spot: true}", "recovery: {on_demand_fallback: true}"))
    kinds = [type(one.market) for one in found]
    assert kinds == sorted(kinds, key=lambda kind: kind is OnDemand)
    assert set(kinds) == {Spot, OnDemand}


@pytest.mark.parametrize(
    ("args", "market"),
    [
        ("{}", OnDemand()),
        ("{reservation: mine}", Reservation("mine")),
        ("{provisioning: flex-start, max_run_hours: 24}", FlexStart(24.0)),
        ("{provisioning: guaranteed}", OnDemand()),
    ],
)
def test_each_market_becomes_its_kind_of_request(args: str, market: object) -> None:
    (one,) = list_candidates(task(f"{{accelerators: v5e-8, infra: gcp/us-west4/us-west4-a, accelerator_args: {args}}}"))
    assert one.market == market


def test_machines_that_end_with_their_reservation() -> None:
    args = "{provisioning: reservation-bound, reservation: mine}"
    (one,) = list_candidates(task(f"{{accelerators: v5e-8, infra: gcp/us-west4/us-west4-a, accelerator_args: {args}}}"))
    assert (one.market, one.detail("reservation_bound")) == (Reservation("mine"), "yes")
    assert choices.read(one).path.api == "v2alpha1"


def test_own_machines_are_never_rented_in_any_market() -> None:
    (one,) = list_candidates(task("{infra: hosts}", "hosts: {addresses: [a@192.0.2.1]}"))
    assert one.market == Owned()


def test_the_provider_understands_every_detail_that_a_task_can_name() -> None:
    words = """{accelerators: v5p-512, infra: gcp/us-east5/us-east5-a, accelerator_args: {runtime_version: mine,
        topology: 4x4x16, provisioning: guaranteed, max_run_hours: 3, valid_hours: 2.5, data_disks: ["d:ro", "e:ro"],
        secure_boot: true, api: tpu}}"""
    more = """config: {gcp: {vpc_name: n, subnet_names: [s, unused], project: my-project, service_account: a@b.c,
        internal_ips: true, tags: [t, u], access: jump, jump: me@bastion, firewall: false,
        ssh_cidr: 203.0.113.7/32, oslogin: true}}"""
    (one,) = list_candidates(task(words, more))
    assert dict(one.details) == {
        "project": "my-project",
        "network": "n",
        "subnetwork": "s",
        "service_account": "a@b.c",
        "internal_ips": "yes",
        "tags": "t,u",
        "access": "jump",
        "jump": "me@bastion",
        "firewall": "none",
        "ssh_cidr": "203.0.113.7/32",
        "oslogin": "yes",
        "runtime_version": "mine",
        "topology": "4x4x16",
        "tier": "guaranteed",
        "max_run_hours": "3",
        "valid_hours": "2.5",
        "data_disks": "d:ro,e:ro",
        "secure_boot": "yes",
        "api": "tpu",
    }
    assert choices.read(one).path.kind == "queued"


def test_a_queued_request_waits_long_only_where_nothing_else_can_be_tried() -> None:
    def hours(one: Candidate) -> float:
        return float(one.detail("valid_hours", "0"))

    (alone,) = list_candidates(task("{accelerators: v5e-16, use_spot: true, infra: gcp/us-west4/us-west4-a}"))
    assert hours(alone) == QUEUE_HOURS
    many = list_candidates(task("{accelerators: v5e-16, use_spot: true}"))
    assert {hours(one) for one in many} == {QUEUE_HOURS_OF_MANY}
    plain = list_candidates(task("{accelerators: v5e-16}"))
    assert {hours(one) for one in plain} == {0.0}
    requested = list_candidates(task("{accelerators: v5e-16, use_spot: true, accelerator_args: {valid_hours: 9}}"))
    assert {hours(one) for one in requested} == {9.0}


def test_instances_are_tried_in_every_zone_of_the_regions_whose_price_is_known() -> None:
    found = list_candidates(task("{accelerators: 'H100:8'}", "num_nodes: 2"))
    assert [one.zone for one in found[:6]] == [f"us-east-1{letter}" for letter in "abcdef"]
    regions = list(dict.fromkeys(one.region for one in found))
    assert {"us-east-2", "us-west-2", "eu-north-1", "ap-northeast-2"} <= set(regions)
    assert not set(regions) & set(list_opt_in_regions()), "an account may not have opened them"
    dollars = [price_per_hour(resolve("p5.48xlarge"), OnDemand(), region) for region in regions]
    assert all(dollars) and [one.low for one in dollars if one] == sorted(one.low for one in dollars if one)
    spot = list_candidates(task("{accelerators: 'H100:8', use_spot: true}"))
    assert {one.region for one in spot} == {"us-east-1", "us-west-2"}
    assert {one.region for one in list_candidates(task("{accelerators: 'Trainium2:16', use_spot: true}"))} == {
        "us-east-2"
    }
    assert {one.region for one in list_candidates(task("{instance_type: p9.48xlarge}"))} == {"us-east-1"}


def test_instances_in_a_region_a_zone_or_subnets() -> None:
    region = list_candidates(task("{accelerators: 'H100:8', infra: aws/us-west-2}"))
    assert [one.zone for one in region] == [f"us-west-2{letter}" for letter in "abcd"]
    (zone,) = list_candidates(task("{accelerators: 'H100:8', infra: aws/us-west-2/us-west-2b}"))
    assert (zone.region, zone.zone) == ("us-west-2", "us-west-2b")
    subnets = list_candidates(
        task("{accelerators: 'H100:8', infra: aws/us-west-2}", "config: {aws: {subnets: [s-1, s-2]}}")
    )
    assert [(one.zone, one.detail("subnet")) for one in subnets] == [("", "s-1"), ("", "s-2")]
    new = list_candidates(task("{accelerators: 'H100:8', infra: aws/us-north-9}"))
    assert [one.zone for one in new] == ["us-north-9a", "us-north-9b", "us-north-9c"]


def test_a_block_and_a_reservation_of_instances() -> None:
    args = "{provisioning: capacity-block, reservation: cr-1}"
    where = "infra: aws/us-east-2/us-east-2a"
    (block,) = list_candidates(task(f"{{accelerators: 'H200:8', {where}, accelerator_args: {args}}}"))
    assert block.market == CapacityBlock("cr-1")
    (held,) = list_candidates(task(f"{{accelerators: 'H200:8', {where}, accelerator_args: {{reservation: cr-2}}}}"))
    assert held.market == Reservation("cr-2")


def test_everything_that_a_task_can_name_of_instances_is_a_detail() -> None:
    words = """{accelerators: 'H100:8', infra: aws/us-east-1/us-east-1a, network_tier: best, disk_size: 500,
        image_id: {us-east-1: ami-1, us-west-2: ami-2}, accelerator_args: {placement_group: g, framework: torch}}"""
    more = """config: {aws: {profile: p, subnets: [subnet-1], security_group: sg-1, instance_profile: i, access: jump,
        jump: me@bastion, ssh_cidr: 203.0.113.7/32, user: ec2-user}}
limits: {max_hours: 2.5}"""
    (one,) = list_candidates(task(words, more))
    assert one.disk_gib == 500
    assert dict(one.details) == {
        "profile": "p",
        "security_group": "sg-1",
        "instance_profile": "i",
        "access": "jump",
        "jump": "me@bastion",
        "ssh_cidr": "203.0.113.7/32",
        "user": "ec2-user",
        "subnet": "subnet-1",
        "image": "ami-1",
        "placement_group": "g",
        "framework": "torch",
        "network": "best",
        "max_hours": "2.5",
    }


def test_a_map_of_images_keeps_to_its_regions() -> None:
    images = "{us-west-2: ami-0123456789abcdef0, us-east-1: ami-0fedcba9876543210}"
    found = list_candidates(task(f"{{accelerators: 'H100:8', image_id: {images}}}"))
    assert {one.region for one in found} == {"us-west-2", "us-east-1"}


def test_places_of_one_price_are_tried_by_own_records_and_choices_stay_in_order() -> None:
    def know(candidate: Candidate, got: bool) -> tuple[CapacityKey, CapacityFigures]:
        key = make_key(candidate, "on-demand")
        request = CapacityRequest(key=key, at=1e9, wait=60.0, got=got)
        return key, summarize_capacity([request] * 6, 1e9)[key]

    spec = task("{accelerators: p5.48xlarge, infra: aws/us-east-1}")
    plain = list_candidates(spec)
    same = [one for one in plain if one.price_per_hour == plain[0].price_per_hour]
    assert len(same) > 1, "the test needs two zones of one price"
    capacity = dict([know(same[0], False), know(same[-1], True)])
    ordered = list_candidates(spec, capacity)
    assert sorted(map(str, ordered)) == sorted(map(str, plain)), "no place is left out"
    assert (ordered[0], ordered[len(same) - 1]) == (same[-1], same[0])
    (note,) = explain_order(ordered, capacity)
    assert f"{same[-1].where}: 6 of 6 requests got machines" in note
    assert explain_order(plain, {}) == ()
    choices_of = ", ".join(f"{{infra: {one.where}, accelerators: p5.48xlarge}}" for one in (same[0], same[-1]))
    named = task(f"{{ordered: [{choices_of}]}}")
    assert list_candidates(named, capacity) == list_candidates(named), "the user's order stays"
