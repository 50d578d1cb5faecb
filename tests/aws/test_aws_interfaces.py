"""Where the network interfaces of each type go, against the table of the EC2 User Guide."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.catalog import ec2
from orchestrator.providers.aws.interfaces import efa_places, interfaces
from orchestrator.values import Text

SUBNET, GROUP = Text.of("subnet-1"), Text.of("sg-1")

# Interfaces in the request under the guide's scheme: one plain one and the EFA-only ones.
COUNTS = {
    "p4d.24xlarge": 5,
    "p4de.24xlarge": 5,
    "p5.4xlarge": 2,
    "p5.48xlarge": 33,
    "p5e.48xlarge": 33,
    "p5en.48xlarge": 17,
    "p6-b200.48xlarge": 9,
    "p6-b300.48xlarge": 17,
    "trn1.2xlarge": 1,
    "trn1.32xlarge": 9,
    "trn1n.32xlarge": 17,
    "trn2.3xlarge": 2,
    "trn2.48xlarge": 17,
    "trn2u.48xlarge": 17,
    "m7i.48xlarge": 2,
    "c7i.48xlarge": 2,
    "g6e.24xlarge": 3,
    "g6e.48xlarge": 5,
    # One network card, which carries an EFA in these sizes ("Elastic Fabric Adapter", supported instance types).
    **dict.fromkeys(("g4dn.8xlarge", "g4dn.12xlarge", "g4dn.16xlarge", "g4dn.metal"), 2),
    **{f"{family}.{size}xlarge": 2 for family in ("g5", "g6") for size in (8, 12, 16, 24, 48)},
    **{f"g6e.{size}xlarge": 2 for size in (8, 12, 16)},
    # And no EFA in these.
    **{f"{family}.{size}": 1 for family in ("g4dn", "g5", "g6", "g6e") for size in ("xlarge", "2xlarge", "4xlarge")},
    **dict.fromkeys(("t3.medium", "t3.large", "t3.xlarge", "t3.2xlarge"), 1),
    **{
        f"{family}.{size}": 1
        for family in ("m7i", "c7i")
        for size in ("large", *(f"{n}xlarge" for n in ("", 2, 4, 8, 12, 16, 24)))
    },
}


def test_table_of_counts_has_every_type_of_the_catalog() -> None:
    assert set(COUNTS) == set(ec2.load_instances()), "add it to COUNTS, from the guide's table of EFA interfaces"


@pytest.mark.parametrize("name", COUNTS)
def test_layout_keeps_the_rules_of_the_guide(name: str) -> None:
    instance = ec2.load_instances()[name]
    made = interfaces(efa_places(instance), SUBNET, [GROUP])
    assert len(made) == COUNTS[name]
    at = [(one["NetworkCardIndex"], one["DeviceIndex"]) for one in made]
    assert len(set(at)) == len(at), "no two at one place"
    kinds = dict(zip(at, (one["InterfaceType"] for one in made), strict=True))
    assert kinds.pop((0, 0)) == "interface", "the primary one is a plain one"
    assert set(kinds.values()) <= {"efa-only"}
    assert len(kinds) == instance.efa_max
    assert all(card == 0 or device == 0 for card, device in at)
    assert ((0, 1) in kinds) == instance.efa_on_card0
    per_card = [sum(card == one for card, _ in at) for one in range(instance.network_cards)]
    assert max(per_card) <= instance.enis_per_card
    assert {card for card, _ in at} <= set(range(instance.network_cards))


def test_b300_has_no_efa_on_card_0() -> None:
    assert efa_places(ec2.load_instances()["p6-b300.48xlarge"]) == tuple((card, 0) for card in range(1, 17))


def test_no_more_efa_than_the_type_takes() -> None:
    """Types of today have one on each card that can carry it."""
    fewer = replace(ec2.load_instances()["p4d.24xlarge"], efa_max=2)
    assert efa_places(fewer) == ((0, 1), (1, 0))
    assert efa_places(replace(fewer, efa_max=0)) == ()


def test_each_names_subnet_and_groups_and_goes_with_its_machine() -> None:
    for one in interfaces(((0, 1), (1, 0)), SUBNET, [GROUP]):
        assert (one["SubnetId"], one["Groups"], one["DeleteOnTermination"]) == (SUBNET, [GROUP], True)
        assert "AssociatePublicIpAddress" not in one


def test_public_address_only_with_a_single_interface() -> None:
    (one,) = interfaces((), SUBNET, [GROUP], public=True)
    assert one["AssociatePublicIpAddress"] is True
    with pytest.raises(ValueError, match="several"):
        interfaces(((0, 1),), SUBNET, [GROUP], public=True)
