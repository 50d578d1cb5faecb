"""Let a member's computer log in to the hosts of a cluster, with the member's own key and for some hours.

An engine writes the key to the hosts. What a member may enter is what they
may change: with a launch on their own cluster they run any program there, as the same user.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from binascii import a2b_base64
from ipaddress import IPv4Network

from pydantic import BaseModel, ConfigDict, Field, field_validator

from orchestrator.engine.operations.addresses import find_gated_intent
from orchestrator.engine.operations.member_access import is_written
from orchestrator.engine.preparation.ownership import refuse_other_owner
from orchestrator.errors import AccessError, ConflictError, NotFoundError, UserError
from orchestrator.formatting import format_utc
from orchestrator.hosts import HostAddress, fingerprint, parse_public_key
from orchestrator.plan.observed import Intent, IntentState
from orchestrator.service.route import Answer, Call, Person, Role
from orchestrator.slices import Owned, SliceState
from orchestrator.store.access_records import ACCESS, MOST_SECONDS, AccessGrant, may_enter, name_token
from orchestrator.store.lookup import find_cluster
from orchestrator.store.order_records import OrderRecord, make_order_uid
from orchestrator.store.read import Reader
from orchestrator.store.records import ClusterRecord
from orchestrator.store.token_parents import KnownEntries
from orchestrator.task.infra import LOCAL, SIMULATED

LEAST_SECONDS = 10
USUAL_SECONDS = 12 * 3600
MOST_OF_MEMBER = 50  # grants in force: a host takes 1,000 keys
MOST_ADDRESSES = 4  # of a member in the firewall of one slice, which has 60 rules on EC2


class AccessRequest(BaseModel):
    """What a member's computer asks for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    public_key: str = Field(max_length=4096, description="The public key, as `ssh-ed25519 AAAA...`.")
    uid: str = Field(default="", max_length=100, description="The cluster's uid: another one of its name is refused.")
    address: str = Field(
        default="", max_length=50, description="From which it logs in, as CIDR of one IPv4 address, for the firewall."
    )
    seconds: int = Field(
        default=USUAL_SECONDS, ge=LEAST_SECONDS, le=int(MOST_SECONDS), description="For how long the hosts admit it."
    )

    @field_validator("address")
    @classmethod
    def _refuse_networks(cls, text: str) -> str:
        if not text:
            return ""
        network = IPv4Network(text)
        if network.prefixlen != 32 or network.is_multicast or network.is_unspecified:
            raise ValueError("it is one address, such as 203.0.113.7/32")
        return str(network)


def grant_access(call: Call) -> Answer:
    """Record that a member may log in to the hosts of a cluster, and answer with their addresses and keys.

    A request whose key the hosts have already, for half of its time at least, changes nothing.
    """
    request: AccessRequest = call.body
    person = call.person
    assert person is not None  # noqa: S101  # the route needs a role
    key = parse_public_key(request.public_key)
    if not key:
        raise UserError("`public_key` is not a public SSH key", "it has a type and its base64", "see /openapi.json")
    with call.site.open_reader() as every:  # who asks may be limited to a project, and sees no tokens
        entries = KnownEntries.read(every)
    with call.open_reader() as store:
        record, intent = _find_entry(store, call, person, request.uid)
        now = call.site.now()
        counting = [one for one in store.access_grants(now - MOST_SECONDS)
                    if one.member == person.name and may_enter(one, record.owner, entries, now)]  # fmt: skip
        gated = find_gated_intent((intent,)) is not None
        address = request.address if gated else ""
        same = [one for one in counting if _is_same(one, person, record, key, address)]
        known = _find_known(store, same, record, intent, now + request.seconds / 2, gated=gated)
        places = {one.address for one in counting if one.cluster_uid == record.uid and one.address} - {address}
        own = entries.find_token(person.token)
        expires = own.expires if own is not None else now + MOST_SECONDS
    if known is None:
        if len(counting) >= MOST_OF_MEMBER:
            what = f"{person.name} may log in with {len(counting)} keys already"
            raise ConflictError(what, "each counts until it expires", "orch ssh from a computer that is let in")
        if address and len(places) >= MOST_ADDRESSES:
            what = f"{person.name} may reach '{record.name}' from {len(places)} addresses already"
            raise ConflictError(what, "each counts until it expires", f"ssh through one of {', '.join(sorted(places))}")
        until = float(int(min(now + request.seconds, expires)))
        order = _make_order(call, person, record, key, address, until)
        with call.site.open_store(ACCESS, call.project) as changed:
            changed.open_order(order)
        call.site.wake_engine()
        uid = order.uid
    else:
        uid, until = known.uid, known.until
    return Answer(document=_describe(record, uid, until, key))


def _find_entry(store: Reader, call: Call, person: Person, uid: str) -> tuple[ClusterRecord, Intent]:
    """Return a cluster with hosts that the person may enter, and its slice.

    Raises:
        OrchError: There is none, they may not, or its hosts cannot be reached with the person's key.
    """
    if person.role < Role.ADMIN and not call.site.member_rules.ssh:
        why = "whoever runs the service lets no member log in to hosts"
        raise AccessError("members do not log in to hosts here", why, "orch launch 'COMMAND' -c CLUSTER")
    record = find_cluster(store, call.path["name"])
    if uid and record.uid != uid:
        what = f"no such cluster '{record.name}' in project '{store.project}'"
        raise NotFoundError(what, "another one has its name here", "orch status")
    if refused := refuse_other_owner(record, person.name, force=person.role >= Role.OWNER):
        why = f"{refused.why}, and members log in to the hosts of clusters that they launched"
        raise ConflictError(refused.what, why, f"ask {record.owner}, or an owner of the service")
    intent = next((one for one in reversed(store.intents(record)) if one.state is IntentState.ACCEPTED), None)
    if record.last_state == SliceState.STOPPED:
        raise ConflictError(f"cluster '{record.name}' is stopped", "", f"orch start {record.name}")
    if intent is None or not record.hosts:
        state = f"its last known state is {record.last_state}" if record.last_state else ""
        raise ConflictError(f"cluster '{record.name}' has no hosts now", state, f"orch status {record.name}")
    _refuse_unreachable(record, intent)
    if intent.candidate.provider in (LOCAL, SIMULATED) and person.role < Role.ADMIN:
        call.site.member_rules.check_entry(record.name)
    return record, intent


def _refuse_unreachable(record: ClusterRecord, intent: Intent) -> None:
    if isinstance(intent.candidate.market, Owned):
        why = "orch writes no keys to machines of their owners"
        raise AccessError(f"the hosts of '{record.name}' are entered with their owner's keys", why, "ssh USER@HOST")
    for host in record.hosts:
        if host.proxy or host.jump is not None or host.own is not None or not parse_public_key(host.host_key or ""):
            by = f"by {host.proxy[0]}" if host.proxy else "by a jump host" if host.jump is not None else "there alone"
            what = f"the hosts of '{record.name}' are reached {by}, from the computer of the service"
            raise AccessError(what, "a member's key opens no such way", "run it on the computer of the service")


def _is_same(one: AccessGrant, person: Person, record: ClusterRecord, key: str, address: str) -> bool:
    requested = (record.uid, key, address, name_token(person.token))
    return (one.cluster_uid, one.public_key, one.address, one.token) == requested


def _find_known(
    store: Reader, same: list[AccessGrant], record: ClusterRecord, intent: Intent, least: float, *, gated: bool
) -> AccessGrant | None:
    """Return a grant that lasts long enough, and that the hosts have or an engine is about to write."""
    rows = store.admissions(record.uid, intent.generation)
    for one in same:
        if one.until >= least and (is_written(one, rows, gated=gated) or store.order(one.uid).state == "open"):
            return one
    return None


def _make_order(call: Call, person: Person, record: ClusterRecord, key: str, address: str, until: float) -> OrderRecord:
    token = name_token(person.token)
    arguments = {"uid": record.uid, "key": key, "address": address, "token": token, "until": until}
    text = json.dumps(arguments, sort_keys=True)
    return OrderRecord(
        uid=make_order_uid(person.name, secrets.token_hex(16)),
        project=call.project,
        cluster=record.name,
        verb=ACCESS,
        arguments=text,
        plan="",
        fingerprint=hashlib.sha256(text.encode()).hexdigest(),
        member=person.name,
        state="open",
        created=call.site.now(),
    )


def _describe(record: ClusterRecord, order: str, until: float, key: str) -> dict[str, object]:
    return {
        "version": 1,
        "kind": "access",
        "cluster": record.name,
        "order": order,
        "until": format_utc(until),
        "key": fingerprint(a2b_base64(key.split()[1])),
        "hosts": [_describe_host(host) for host in record.hosts],
    }


def _describe_host(host: HostAddress) -> dict[str, object]:
    return {
        "rank": host.rank,
        "alias": host.alias,
        "host": host.host,
        "port": host.port,
        "user": host.user,
        "internal_ip": host.internal_ip,
        "host_key": parse_public_key(host.host_key or ""),
    }
