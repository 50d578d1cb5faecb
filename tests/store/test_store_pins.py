"""Pins of people's own machines: one key holds for all computers of a store."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from test_store_audit import audit_of, tables_of

from orchestrator.hosts import HostAddress, HostPin, OwnSsh, PinReason
from orchestrator.store.location import Location
from orchestrator.store.read import open_reader_at
from orchestrator.store.replay import rebuild_tables, verify_chain
from orchestrator.store.store import Store

PIN = HostPin(name="me@[10.0.0.1]:2222", kind="ssh-ed25519", key="QQ==")
OTHER = replace(PIN, key="Qg==")


def test_first_of_many_computers_pins_and_the_others_get_the_same_answer(location: Location) -> None:
    """Each has another key: only one is kept, and every one gets the same answer."""
    keys = [f"{number:04d}" for number in range(8)]
    barrier, got = threading.Barrier(len(keys)), list[HostPin]()
    Store(location).__exit__()

    def accept(key: str) -> None:
        with Store(location) as store:
            barrier.wait()
            got.append(store.keep_host_pin(replace(PIN, key=key), PinReason.FIRST))

    threads = [threading.Thread(target=accept, args=(key,)) for key in keys]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == len(keys)
    assert len({(pin.key, pin.since, pin.actor) for pin in got}) == 1
    with Store(location) as store:
        assert store.host_pin(PIN.name) == got[0]
    _verify(location)


def test_pin_is_replaced_only_by_who_knows_the_present_one(location: Location) -> None:
    with Store(location, lambda: 100.0) as store:
        first = store.keep_host_pin(replace(PIN, job="u/1"), PinReason.FIRST, cluster="mine")
        assert (first.since, first.key, store.host_pins_of("u/1")) == (100.0, PIN.key, (first,))
        assert store.keep_host_pin(OTHER, PinReason.NAMED) == first, "it was pinned meanwhile"
        assert store.confirm_host_pins("u/1", "mine") == (first,)
        confirmed = replace(first, job="")
        assert store.keep_host_pin(OTHER, PinReason.NAMED, instead_of=confirmed) == store.host_pin(PIN.name)
        assert (store.host_pin(PIN.name) or PIN).key == OTHER.key
    with open_reader_at(location) as reader:
        assert reader.host_pin(PIN.name) is not None
        assert reader.host_pin("me@elsewhere") is None
        causes = [event.cause for event in reader.events(None) if event.kind == "host-key"]
    assert causes == [PinReason.FIRST, "requested", PinReason.NAMED]
    _verify(location)


@pytest.mark.parametrize("reason", list(PinReason))
def test_name_with_any_character_is_a_subject_of_the_audit(location: Location, reason: PinReason) -> None:
    own, nowhere = OwnSsh(known_as="[a/b c]:22%1"), Path("x")
    address = HostAddress(
        rank=0, alias="a-0", host="a", port=22, user="a/b@c", identity_file=nowhere, known_hosts=nowhere,
        internal_ip="a", own=own,
    )  # fmt: skip
    with Store(location) as store:
        store.keep_host_pin(replace(PIN, name=address.pin_name), reason)
    _verify(location)


def _verify(location: Location) -> None:
    events, head = audit_of(location)
    assert verify_chain(events, head) is None
    assert rebuild_tables(events) == tables_of(location)
