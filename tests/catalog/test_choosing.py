"""Which machine is chosen by chips, vCPUs and memory, why, and what is said when none fits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.catalog import choosing, ec2
from orchestrator.catalog.choosing import (
    Amount,
    Requirements,
    UnmetRequirementError,
    choose_machine,
    filter_machines,
    rank_by_price,
)
from orchestrator.catalog.machines import Machine
from orchestrator.catalog.prices import price_per_hour
from orchestrator.slices import OnDemand
from orchestrator.task.short_forms import parse_amount

AT_LEAST_4, EXACTLY_4 = Amount(4, or_more=True), Amount(4)


@pytest.mark.parametrize(
    ("name", "cpus", "memory", "region", "chosen", "fitting"),
    [
        ("", "", "", "", "t3.medium", 22),
        ("", "4+", "", "", "t3.xlarge", 18),
        ("", "4", "", "", "t3.xlarge", 3),
        ("", "4", "8", "", "c7i.xlarge", 1),
        ("", "16+", "", "", "c7i.4xlarge", 12),
        ("", "", "64GB", "", "m7i.4xlarge", 2),
        ("", "192", "768+", "", "m7i.48xlarge", 1),
        ("", "8+", "32+", "me-central-1", "m7i.2xlarge", 13),  # which does not offer t3
        ("T4:1", "", "", "", "g4dn.xlarge", 5),
        ("A10G:1", "8+", "", "", "g5.2xlarge", 4),
        ("L4", "", "200+", "", "g6.16xlarge", 1),
        ("L4:8", "", "", "", "g6.48xlarge", 1),
        ("L40S:4", "", "", "", "g6e.12xlarge", 2),
        ("A100:8", "", "", "", "p4d.24xlarge", 1),
        ("Trainium:16", "", "", "", "trn1.32xlarge", 2),
        ("H200:8", "", "", "", "p5en.48xlarge", 2),  # p5e has no price on demand
        ("H200:8", "", "", "eu-west-2", "p5e.48xlarge", 1),  # which alone is offered there
        ("L4:1", "", "", "eu-west-1", "g6.xlarge", 5),  # offered nowhere in the region: EC2 decides
    ],
)
def test_the_cheapest_that_fits_is_chosen(
    name: str, cpus: str, memory: str, region: str, chosen: str, fitting: int
) -> None:
    required = Requirements(cpus=parse_amount(cpus), memory=parse_amount(memory))
    choice = choose_machine(name, required, "aws", region)
    assert choice is not None
    assert (choice.machine.name, choice.fitting) == (chosen, fitting)


def test_no_other_that_fits_is_cheaper() -> None:
    """Against a plain search over the rows."""
    for one in ec2.list_machines():
        if one.chips:
            continue
        required = Requirements(cpus=Amount(one.vcpus, or_more=True), memory=Amount(one.ram_gib, or_more=True))
        choice = choose_machine("", required, "aws")
        assert choice is not None
        fitting = [m for m in ec2.list_machines() if not m.chips and m.vcpus >= one.vcpus and m.ram_gib >= one.ram_gib]
        known = {m.name: price_per_hour(m, OnDemand(), "us-east-1") for m in fitting}
        prices = {name: price.low for name, price in known.items() if price}
        assert prices[choice.machine.name] == min(prices.values())
        assert choice.fitting == len(fitting)


def test_why_it_is_chosen_is_said_where_others_fitted() -> None:
    choice = choose_machine("", Requirements(cpus=AT_LEAST_4), "aws")
    assert choice is not None
    assert choice.explain() == (
        "t3.xlarge is the cheapest of the 18 types in orch's table that fit: 4 vCPUs, 16 GiB, "
        "$0.17 an hour (list price, us-east-1, 2026-07-20)"
    )
    assert choice.machine.normalised_from == "cpus: 4+"
    only = choose_machine("L4:8", Requirements(), "aws")
    assert only is not None and only.explain() == ""


@pytest.mark.parametrize(
    ("name", "cpus", "memory", "key", "lines"),
    [
        (
            "",
            "300+",
            "",
            "cpus",
            (
                "no machine that fits has 300+ vCPUs",
                "the largest, m7i.48xlarge, has 192 vCPUs; possible: 2, 4, 8, 16, 32, 48, 64, 96 or 192",
                "write cpus: 192, or several machines: num_nodes",
            ),
        ),
        (
            "",
            "4",
            "10",
            "memory",
            (
                "no machine that fits has 10 GiB",
                "the largest, t3.xlarge, has 16 GiB; possible: 8 or 16",
                "write memory: 10+",
            ),
        ),
        (
            "L4:1",
            "",
            "512+",
            "memory",
            (
                "no machine that fits has 512+ GiB",
                "the largest, g6.16xlarge, has 256 GiB; possible: 16, 32, 64, 128 or 256",
                "write memory: 256, or several machines: num_nodes",
            ),
        ),
    ],
)
def test_an_unmet_requirement_names_what_would_be_met(
    name: str, cpus: str, memory: str, key: str, lines: tuple[str, str, str]
) -> None:
    required = Requirements(cpus=parse_amount(cpus), memory=parse_amount(memory))
    with pytest.raises(UnmetRequirementError) as caught:
        choose_machine(name, required, "aws")
    assert (caught.value.key, (caught.value.what, caught.value.why, caught.value.next_step)) == (key, lines)


def test_what_no_table_lists_is_no_choice() -> None:
    for name, provider in (
        ("v5litepod-16", ""),
        ("m7i.xlarge", ""),
        ("H9000:8", ""),
        ("", "hosts"),
        ("Trainium3:4", ""),
    ):
        assert choose_machine(name, Requirements(), provider) is None, (name, provider)


def test_unknown_sizes_are_not_taken_for_small_ones() -> None:
    unlisted = ec2.make_unlisted_type("p9.48xlarge")
    assert unlisted is not None
    with pytest.raises(UnmetRequirementError, match="orch does not know the vCPUs"):
        filter_machines([unlisted], Requirements(cpus=Amount(1, or_more=True)))


class _Table:
    """The machines of another vendor, as Compute Engine's will be."""

    def __init__(self, *machines: Machine) -> None:
        self._machines = machines

    def list_machines(self) -> tuple[Machine, ...]:
        return self._machines


def test_it_belongs_to_no_vendor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of another table is chosen by the same rules; without a price it comes last."""
    other = replace(ec2.load_instances()["t3.xlarge"], name="e2-standard-4", provider="gcp", regions=("us-central1",))
    monkeypatch.setattr(choosing, "load_tables", lambda: (_Table(other), _Table(*ec2.list_machines())))
    required = Requirements(cpus=EXACTLY_4)
    chosen = [choose_machine("", required, provider) for provider in ("gcp", "", "aws")]
    assert [one.machine.name for one in chosen if one] == ["e2-standard-4", "t3.xlarge", "t3.xlarge"]
    alone = choose_machine("", required, "gcp")
    assert alone is not None and rank_by_price(alone.machine)[0] == float("inf")


@given(st.integers(1, 10_000), st.booleans(), st.floats(0, 20_000))
def test_amounts_admit_what_they_say(count: int, or_more: bool, available: float) -> None:
    amount = Amount(count, or_more)
    assert parse_amount(str(amount)) == amount
    assert amount.admits(count)
    assert amount.admits(available) == (available == count or (or_more and available > count))


@pytest.mark.parametrize(
    ("written", "gib", "or_more"),
    [
        (16, 16, False),
        ("16", 16, False),
        ("16+", 16, True),
        ("64GB", 64, False),
        ("2tb+", 2048, True),
        ("512 MB", 0.5, False),
    ],
)
def test_memory_has_the_units_of_the_dialect(written: int | str, gib: float, or_more: bool) -> None:
    assert parse_amount(written) == Amount(gib, or_more)
