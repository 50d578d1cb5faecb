"""Changes of orders: a member asks for a change, an engine carries it out and records how it ended."""

from __future__ import annotations

from dataclasses import asdict

from sqlalchemy import select

from orchestrator.errors import NotFoundError
from orchestrator.plan.observed import Outcome
from orchestrator.project import qualify_name
from orchestrator.store.access_records import ACCESS, KEPT_SECONDS, AccessGrant, access_from_order
from orchestrator.store.change import EventDetails, Guard, insert_row, update_row
from orchestrator.store.ledger import Ledger
from orchestrator.store.order_records import OrderRecord, order_from_row
from orchestrator.store.schema import OPEN_ORDER, orders


class OrderChanges(Ledger):
    """The changes of orders."""

    def open_order(self, order: OrderRecord) -> OrderRecord:
        """Record an order, and return it; one whose uid exists is returned as it is."""
        about = f"{order.member} asked: {order.verb} '{order.cluster}'"
        row = {**asdict(order), "next_step": str(order.next_step)}
        if self.change(insert_row(orders, row, _details(order, about)), at=order.created) == (True,):
            return order
        return self.order(order.uid)

    def find_order(self, uid: str) -> OrderRecord | None:
        """Return one order, or None."""
        return self._read_first(select(orders).where(orders.c.uid == uid), order_from_row)

    def order(self, uid: str) -> OrderRecord:
        """Return one order. Raises NotFoundError when there is none."""
        found = self.find_order(uid)
        if found is None:
            raise NotFoundError(f"no order {uid}", next_step="orch events")
        return found

    def open_orders(self) -> tuple[OrderRecord, ...]:
        """Return the orders that no engine has carried out yet, oldest first."""
        query = select(orders).where(OPEN_ORDER).order_by(orders.c.created, orders.c.uid)
        return self._read_all(query, order_from_row)

    def access_grants(self) -> tuple[AccessGrant, ...]:
        """Return what members asked for to log in to hosts, oldest first, also what no longer counts."""
        recent = (orders.c.verb == ACCESS) & (orders.c.created > self._now() - KEPT_SECONDS)
        query = select(orders).where(recent).order_by(orders.c.created, orders.c.uid)
        return self._read_all(query, lambda row: access_from_order(order_from_row(row)))

    def end_order(self, order: OrderRecord, outcome: Outcome) -> None:
        """Record how an order ended, once."""
        at = self._now()
        values = {
            "state": "ended", "ended": at, "status": outcome.status, "code": outcome.code, "what": outcome.what,
            "why": outcome.why, "next_step": str(outcome.next_step),
        }  # fmt: skip
        about = f"{order.verb} '{order.cluster}' for {order.member}: {outcome.what}"
        change = update_row(orders, {"uid": order.uid}, values, _details(order, about))
        self.change(change, at=at, guards=(Guard(table=orders, key={"uid": order.uid}, values={"state": "open"}),))


def _details(order: OrderRecord, what: str) -> EventDetails:
    return EventDetails(cluster=qualify_name(order.project, order.cluster), kind="order", what=what)
