"""The machines of the invented cloud."""

from __future__ import annotations

from orchestrator.catalog.machines import Machine
from orchestrator.catalog.prices import Price
from orchestrator.errors import UserError

BIG = Machine(
    name="acme-big",
    hosts=1,
    chips_per_host=4,
    cores_per_chip=1,
    hbm_gib_per_chip=48,
    peak_bf16_tflops_per_chip=100,
    backends=("cuda", "jax"),
    provider="acme",
    is_instance_type=True,
    chip="A1",
    device="cuda",
)


def find_rented(name: str) -> Machine | None:
    return BIG if name == BIG.name else None


def find_unlisted(name: str) -> Machine | None:
    return None


def find_reported(name: str) -> Machine | None:
    return None


def list_machines() -> tuple[Machine, ...]:
    return (BIG,)


def find_price(machine: Machine, market: str, region: str) -> Price | None:
    return Price(low=2.5, high=2.5, note=f"list price, {region}", as_of="2026-11-01") if market == "on-demand" else None


def list_common_names() -> tuple[str, ...]:
    return (BIG.name,)


def spell(name: str) -> str:
    return name


def explain_incomplete(name: str) -> UserError | None:
    return None
