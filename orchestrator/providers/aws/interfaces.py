"""The network interfaces of an instance. Pure.

Source: EC2 User Guide, "Maximize network bandwidth on Amazon EC2 instances with multiple network cards" and "Get
started with EFA", 2026: a plain interface is the primary one, at device 0 of card 0; EFA-only interfaces, which take no
address, are at device 1 of card 0 (where that card has EFA) and at device 0 of every other card.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from orchestrator.catalog.machines import Ec2Instance
from orchestrator.values import Text

Interface: TypeAlias = dict[str, object]


def efa_places(instance: Ec2Instance) -> tuple[tuple[int, int], ...]:
    """(network card, device) of each EFA-only interface that the type takes."""
    first = ((0, 1),) if instance.efa_on_card0 else ()
    others = tuple((card, 0) for card in range(1, instance.network_cards))
    return (*first, *others)[: instance.efa_max]


def interfaces(
    places: Sequence[tuple[int, int]], subnet: Text, groups: Sequence[Text], *, public: bool = False
) -> list[Interface]:
    """The primary one, and an EFA-only one at each of `places`.

    public: every instance gets a public address, which EC2 does only where there is one interface; there a default
    subnet would give one that nobody asked for, so it is said either way. Raises ValueError.
    """
    if public and places:
        raise ValueError("no public address beside several interfaces")
    address: Interface = {} if places else {"AssociatePublicIpAddress": public}
    primary = _interface(0, 0, "interface", subnet, groups) | address
    return [primary, *(_interface(card, device, "efa-only", subnet, groups) for card, device in places)]


def _interface(card: int, device: int, kind: str, subnet: Text, groups: Sequence[Text]) -> Interface:
    return {
        "NetworkCardIndex": card,
        "DeviceIndex": device,
        "InterfaceType": kind,
        "SubnetId": subnet,
        "Groups": list(groups),
        "DeleteOnTermination": True,
    }
