"""What lets a member log in to the hosts of a cluster: an order `access` with their public key, until it expires."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from orchestrator.store.order_records import OrderRecord
from orchestrator.store.token_parents import KnownEntries, counts_with_parents

ACCESS = "access"  # the verb of these orders
MOST_SECONDS = 24 * 3600.0  # the longest access
KEPT_SECONDS = 2 * MOST_SECONDS  # for which its order is looked at: addresses that expired are still to be withdrawn


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessGrant:
    """A member's key for the hosts of one cluster.

    Attributes:
        uid: Of the order.
        member: Whose key it is.
        cluster_uid: The cluster.
        public_key: The line for authorized_keys without options and comment.
        address: From which they log in, as CIDR, where a firewall has to admit it; "" elsewhere.
        token: The id of the token with which it was asked for; "" for that of the server's own computer.
        until: When it ends, in epoch seconds.
        refused: Whether the order has failed.
    """

    uid: str
    member: str
    cluster_uid: str
    public_key: str
    address: str
    token: str
    until: float
    refused: bool


def access_from_order(order: OrderRecord) -> AccessGrant:
    """Return what an order `access` grants."""
    arguments = json.loads(order.arguments)
    return AccessGrant(
        uid=order.uid,
        member=order.member,
        cluster_uid=str(arguments["uid"]),
        public_key=str(arguments["key"]),
        address=str(arguments["address"]),
        token=str(arguments["token"]),
        until=float(arguments["until"]),
        refused=bool(order.status),
    )


def name_token(digest: str) -> str:
    """Return by what a grant names a token: events are shown to viewers, and have no digest of one."""
    return hashlib.sha256(digest.encode()).hexdigest()[:16] if digest else ""


def may_enter(grant: AccessGrant, owner: str, entries: KnownEntries, now: float) -> bool:
    """Return whether a grant counts: until it expires, and as long as its token does and the cluster is the member's.

    Args:
        grant: The grant.
        owner: To whom its cluster belongs now.
        entries: What lets members in.
        now: In epoch seconds.
    """
    if grant.refused or now >= grant.until:
        return False
    if not grant.token:
        return True
    token = next((one for digest, one in entries.tokens.items() if name_token(digest) == grant.token), None)
    if token is None or token.member != grant.member or not counts_with_parents(entries, token, now):
        return False
    return token.role == "owner" or (token.role == "member" and owner in ("", grant.member))
