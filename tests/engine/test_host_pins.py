"""The pins that the SSH layer gets from the store, when the store is lost midway."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.engine.state.pins import StorePins
from orchestrator.hosts import HostAddress, HostPin, OwnSsh, PinReason
from orchestrator.store.failures import StoreError
from orchestrator.store.store import Store


def _address(name: str) -> HostAddress:
    own, nowhere = OwnSsh(known_as=name), Path("none")
    return HostAddress(
        rank=0, alias="a-0", host=name, port=22, user="me", identity_file=nowhere, known_hosts=nowhere,
        internal_ip=name, own=own,
    )  # fmt: skip


def test_known_machine_is_reached_again_while_the_store_is_lost(tmp_path: Path) -> None:
    location, address = tmp_path / "orch.db", _address("gpu1")
    with Store(location) as store:
        pins = StorePins(lambda: store, print)
        pin = HostPin(name=address.pin_name, kind="ssh-ed25519", key="QQ==")
        held = pins.keep(address, pin, PinReason.FIRST, None)
        assert pins.find(address) == held
        store._database.engine.dispose()
        location.write_bytes(b"no database" * 1000)
        assert pins.find(address) == held
        with pytest.raises(StoreError):
            pins.find(_address("gpu2"))
