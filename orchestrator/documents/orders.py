"""Orders as the API and the page show them."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.formatting import format_utc
from orchestrator.store.order_records import OrderRecord


def order_as_json(order: OrderRecord) -> dict[str, object]:
    """Return an order as in data/order.schema.json."""
    return {"version": 1, "kind": "order", **_order_json(order)}


def orders_as_json(orders: Sequence[OrderRecord]) -> dict[str, object]:
    """Return orders as in data/orders.schema.json."""
    return {"version": 1, "kind": "orders", "orders": [_order_json(order) for order in orders]}


def _order_json(order: OrderRecord) -> dict[str, object]:
    return {
        "id": order.uid,
        "verb": order.verb,
        "cluster": order.cluster,
        "project": order.project,
        "member": order.member,
        "plan": order.plan,
        "run_id": order.run_id or None,
        "state": order.state,
        "created": format_utc(order.created),
        "ended": None if order.ended is None else format_utc(order.ended),
        "status": order.status,
        "code": order.code or None,
        "what": order.what or None,
        "why": order.why or None,
        **order.next_step.as_json(),
    }
