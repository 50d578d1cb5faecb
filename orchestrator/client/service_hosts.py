"""Log in to hosts through a service: it has this computer's public key written there, and says which keys they show.

What the service answers reaches the arguments and files of ssh, so it is read strictly. The private key stays here.
"""

from __future__ import annotations

import ipaddress
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from orchestrator.client.http import Client, explain_refusals
from orchestrator.client.transport import read_exit_status
from orchestrator.engine.operations.addresses import find_gated_intent
from orchestrator.engine.state.fences import fence_recorded_hosts
from orchestrator.engine.state.keys import make_user_key
from orchestrator.errors import AccessError, CloudError, DeadlineError, OrchError, UserError
from orchestrator.hosts import HostAddress, parse_public_key
from orchestrator.messages import escape_controls
from orchestrator.next_step import NextStep
from orchestrator.paths import load_paths
from orchestrator.providers.caller import CallerAddress
from orchestrator.remote.keys import read_public_key, write_known_hosts
from orchestrator.store.lookup import select_hosts

if TYPE_CHECKING:
    from orchestrator.engine.narrator import Narrator
    from orchestrator.store.read import Reader
    from orchestrator.store.records import ClusterRecord

WAIT_SECONDS = 120.0
_QUIET = 2.0  # seconds before the wait is reported
_PAUSE = 0.3
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9._-]{0,63}")


def enter_service_hosts(
    store: Reader, record: ClusterRecord, ranks: tuple[int, ...] | None, key: Path | None, narrator: Narrator
) -> tuple[HostAddress, ...]:
    """Return hosts of a cluster when they admit the key, with the keys that they have to show.

    Args:
        store: The rows that the service sent.
        record: The cluster in it.
        ranks: The hosts; None for all.
        key: File of the key to log in with; None for this computer's own.
        narrator: Gets what is waited for.

    Raises:
        OrchError: The service refuses, or the hosts do not get the key.
    """
    select_hosts(record, ranks)
    entered = replace(record, hosts=_enter(store, record, key, narrator))
    return select_hosts(replace(entered, hosts=fence_recorded_hosts(store, entered)), ranks)


def _enter(store: Reader, record: ClusterRecord, key: Path | None, narrator: Narrator) -> tuple[HostAddress, ...]:
    where = load_paths()
    key = key or make_user_key(where)
    public = _read_public(key)
    with Client.connect() as client, explain_refusals(client):
        refuse_remote_loopback(client.url, record.name, record.hosts)
        address = _find_address(store, record, narrator)
        answer = client.request_access(record.name, public, uid=record.uid, address=address)
        await_key(client, record.name, str(answer.get("order")), narrator)
        name = urlsplit(client.url).netloc.replace(":", "_").strip("[]")
        known_hosts = where.state / "service" / name / "known_hosts"
        hosts = parse_hosts(client.url, answer, key, known_hosts)
        refuse_remote_loopback(client.url, record.name, hosts)
    write_known_hosts(known_hosts, hosts)
    return hosts


def _find_address(store: Reader, record: ClusterRecord, narrator: Narrator) -> str:
    """Return this computer's address where a firewall of orch has to admit it; "" elsewhere."""
    if find_gated_intent(store.intents(record)) is None:
        return ""
    try:
        return CallerAddress(_Place(loopback=all(_is_loopback(host.host) for host in record.hosts))).read()
    except CloudError as error:  # it may be admitted by another one
        narrator.note(f"note: {error.what}, so the firewall of '{record.name}' may not admit it")
        return ""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the hosts are. loopback: On this computer, as those of a simulated cloud."""

    loopback: bool


def _read_public(key: Path) -> str:
    """Return the public half of a key file: that of the file beside it, else that of the key without a passphrase."""
    beside = key.with_name(key.name + ".pub")
    try:
        line = beside.read_text("utf-8") if beside.exists() else read_public_key(key)
    except (OSError, ValueError, TypeError) as error:
        raise UserError(
            f"the SSH key {key} cannot be read", str(error), f"ssh-keygen -y -f {key} > {beside}"
        ) from error
    found = parse_public_key(line)
    if not found:
        raise UserError(f"{beside} is not a public key that the service takes", "", f"ssh-keygen -y -f {key}")
    return found


def await_key(client: Client, cluster: str, order_id: str, narrator: Narrator) -> None:
    """Return when the engine has written the key.

    Raises:
        OrchError: It has not.
    """
    began, reported = time.monotonic(), False
    while True:
        order = client.show_order(order_id)
        if order["state"] == "ended":
            break
        waited = time.monotonic() - began
        if waited > WAIT_SECONDS:
            what = f"the hosts of '{cluster}' did not get this computer's key in {WAIT_SECONDS:.0f} s"
            raise DeadlineError(what, "the service continues to try", f"the same again; {client.url}/orders/{order_id}")
        if not reported and waited > _QUIET:
            narrator.note(f"waiting until this computer's key is on the hosts of {cluster} …")
            reported = True
        time.sleep(_PAUSE)
    if order["status"]:
        what, why = (escape_controls(str(order[name] or "")) for name in ("what", "why"))
        error = OrchError(what, why, escape_controls(str(NextStep.from_json(order))))
        error.code, error.exit_status = str(order["code"] or "failure"), read_exit_status(order["status"])
        raise error


def refuse_remote_loopback(url: str, name: str, hosts: tuple[HostAddress, ...]) -> None:
    """Raise AccessError for hosts that are processes of the service's computer, unless that is this one.

    Args:
        url: The address of the service.
        name: The cluster's.
        hosts: Its hosts.
    """
    if _is_loopback(urlsplit(url).hostname or "") or not any(_is_loopback(host.host) for host in hosts):
        return
    raise AccessError(
        f"the hosts of '{name}' are processes of the service's computer",
        f"no other computer reaches them, and {url} is another one",
        "run the command on that computer, with ORCH_SERVER=http://127.0.0.1:PORT",
    )


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def parse_hosts(url: str, answer: Mapping[str, Any], key: Path, known_hosts: Path) -> tuple[HostAddress, ...]:
    """Return the hosts of an answer.

    Args:
        url: The address of the service.
        answer: What it said.
        key: The key to log in with.
        known_hosts: The file with the keys of the service's hosts.

    Raises:
        CloudError: The answer has something else than addresses, names and keys.
    """
    try:
        given = cast("list[Mapping[str, Any]]", answer["hosts"])
        return tuple(_parse_host(one, key, known_hosts) for one in given)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        why = f"{type(error).__name__}: {escape_controls(str(error)[:200])}"
        raise CloudError(f"{url} sent addresses that cannot be read", why, "ask who runs it") from error


def _parse_host(given: Mapping[str, Any], key: Path, known_hosts: Path) -> HostAddress:
    """Return a host. Raises ValueError for what could be read as more than its name by ssh or a file of it."""
    address, public = str(given["host"]), parse_public_key(str(given["host_key"]))
    if not _NAME.fullmatch(address):
        address = _parse_address(address)
    for name, form in (("alias", _NAME), ("user", _USER)):
        if not form.fullmatch(str(given[name])):
            raise ValueError(f"`{name}` is {str(given[name])[:40]!r}")
    if not public or not 0 < int(given["port"]) < 65_536 or not 0 <= int(given["rank"]) < 100_000:
        raise ValueError("a host has no key, port or rank")
    internal = str(given["internal_ip"])
    return HostAddress(
        rank=int(given["rank"]),
        alias=str(given["alias"]).lower(),
        host=address,
        port=int(given["port"]),
        user=str(given["user"]),
        identity_file=key,
        known_hosts=known_hosts,
        internal_ip=internal if _NAME.fullmatch(internal) else _parse_address(internal),
        host_key=public,
    )


def _parse_address(text: str) -> str:
    """Return an address of IPv6. Raises ValueError for another text, and for a scope: Python lets it be any text."""
    address = ipaddress.IPv6Address(text)
    if address.scope_id is not None:
        raise ValueError(f"an address has a scope: {text[:40]!r}")
    return str(address)
