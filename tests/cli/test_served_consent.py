"""A service whose plan is another one when it is ordered: what is agreed to again, and what is not."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.served import served

from orchestrator.cli.execution.act import PerformMode, carry_out_order
from orchestrator.client.http import Client
from orchestrator.client.orders import Order
from orchestrator.client.service_orders import ServiceOrders
from orchestrator.errors import ConflictError, OrchError, UserError

ENDED = {
    "id": "o", "verb": "start", "cluster": "mine", "project": "default", "run_id": None, "state": "ended", "status": 0,
    "code": None, "what": "cluster 'mine' is up", "why": None, "next_command": None, "next_words": None,
}  # fmt: skip


@dataclass(kw_only=True)
class ChangingService:
    """Answers each request for a plan with the next price, and refuses orders for other plans than the last one."""

    prices: list[float | None]
    changes: int = 1
    orders: list[Any] = field(default_factory=list[Any])
    refusal: dict[str, Any] | None = None
    ends: list[str] = field(default_factory=list[str])
    transfers: list[str] = field(default_factory=list[str])
    asks_transfers: bool = False

    def answer(self, _method: str, target: str, body: bytes) -> tuple[int, dict[str, Any]]:
        if target == "/v1/plans":
            price = self.prices.pop(0)
            steps: dict[str, Any] = {"steps": [], "ending": {"status": 0}} | (
                {"refusal": self.refusal} if self.refusal else {}
            )
            return 200, {
                "cluster": "mine", "project": "default", "plan": f"{price}", "price_per_hour": price, "owner": None,
                "cost": None if price == 0 else f"it costs {price}", "head": "",
                "ends": self.ends, "idle": None, "notes": [],
                "transfers": self.transfers, "asks_transfers": self.asks_transfers,
                "text": "the plan\n", "details": "", "steps": steps,
            }  # fmt: skip
        if target == "/v1/orders":
            self.orders.append(json.loads(body)["plan"])
            if len(self.orders) <= self.changes:
                return 412, {"title": "nothing was done: the price changed since", "code": "plan-changed",
                             "exit_status": 6}  # fmt: skip
            return 202, ENDED
        return (200, ENDED) if target == "/v1/orders/o" else (404, {"title": "no such page"})


@contextmanager
def client_of(service: ChangingService) -> Generator[Client]:
    with served(service.answer) as url, Client(url, "orch_x") as client:
        yield client


START = Order(verb="start", cluster="mine")


def start(client: Client, mode: PerformMode) -> int:
    orders = ServiceOrders(client)
    return carry_out_order(orders, orders.plan(START), mode)


@pytest.mark.parametrize("prices", [[2.0, 1.5], [2.0, 2.0], [0.0, 0.0], [2.0, 0.0]])
def test_yes_agrees_to_a_plan_that_costs_no_more(
    prices: list[float | None], capsys: pytest.CaptureFixture[str]
) -> None:
    service = ChangingService(prices=list(prices))
    with client_of(service) as client:
        assert start(client, PerformMode(consent=True)) == 0
    assert service.orders == [str(price) for price in prices]
    said = capsys.readouterr().err
    assert "the price changed since" in said and "cluster 'mine' is up" in said


@pytest.mark.parametrize("prices", [[2.0, 2.5], [0.0, 1.0], [1.0, None], [0.0, None], [None, 3.0]])
def test_yes_does_not_agree_to_a_higher_price(prices: list[float | None]) -> None:
    service = ChangingService(prices=list(prices))
    with client_of(service) as client, pytest.raises(ConflictError, match="the price rose") as refused:
        start(client, PerformMode(consent=True))
    assert (refused.value.exit_status, len(service.orders)) == (6, 1)


def test_without_a_terminal_a_changed_plan_that_costs_money_is_not_ordered() -> None:
    service = ChangingService(prices=[0.0, 1.0])
    with client_of(service) as client, pytest.raises(UserError, match="no terminal to ask on"):
        start(client, PerformMode())
    assert len(service.orders) == 1
    free = ChangingService(prices=[0.0, 0.0])
    with client_of(free) as client:
        assert start(client, PerformMode()) == 0, "nothing is asked where nothing is paid"


def test_a_plan_that_always_changes_is_given_up() -> None:
    service = ChangingService(prices=[1.0] * 50, changes=50)
    with client_of(service) as client, pytest.raises(ConflictError, match="not ordered"):
        start(client, PerformMode(consent=True))
    assert len(service.orders) == 8


def test_a_refused_plan_is_not_ordered() -> None:
    refusal = {"status": 6, "code": "conflict", "what": "it has other machines", "why": "", "next_step": "orch down"}
    service = ChangingService(prices=[0.0], refusal=refusal)
    with client_of(service) as client, pytest.raises(OrchError, match="other machines") as refused:
        start(client, PerformMode(consent=True))
    assert (refused.value.exit_status, refused.value.code, service.orders) == (6, "conflict", [])


@pytest.mark.parametrize("price", [0.0, 2.0])
def test_large_transfers_need_consent_beside_machines_and_alone(
    price: float, capsys: pytest.CaptureFixture[str]
) -> None:
    service = ChangingService(prices=[price] * 2, transfers=["data: about $12.00"], asks_transfers=True, changes=0)
    with client_of(service) as client:
        with pytest.raises(UserError, match=r"transfer data: about \$12\.00"):
            start(client, PerformMode())
        assert service.orders == []
        assert start(client, PerformMode(consent=True)) == 0
    assert "transfer data: about $12.00" in capsys.readouterr().err


def test_small_transfers_are_shown_and_need_no_consent(capsys: pytest.CaptureFixture[str]) -> None:
    service = ChangingService(prices=[0.0], transfers=["data: about $0.10"], changes=0)
    with client_of(service) as client:
        assert start(client, PerformMode()) == 0
    assert "transfer data: about $0.10" in capsys.readouterr().err
