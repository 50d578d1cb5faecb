"""Consents to checkpoints that their run did not sign: each is of one run, recorded once, and an event."""

from __future__ import annotations

import pytest

from orchestrator.store.location import Location
from orchestrator.store.read import open_reader_at
from orchestrator.store.store import Store


@pytest.mark.promise("P42")
def test_a_consent_is_for_the_manifests_of_one_run_and_is_an_event(location: Location) -> None:
    one, other = "1" * 64, "2" * 64
    with Store(location) as store:
        cluster = store.open_cluster("mine", "summary")
        store.trust_checkpoints(cluster, "run-1", {})
        store.trust_checkpoints(cluster, "run-1", {one: 7})
        store.trust_checkpoints(cluster, "run-1", {one: 7, other: 8})
        assert set(store.trusted_checkpoints("run-1")) == {one, other} and store.trusted_checkpoints("run-2") == ()
        key = store.run_key("run-1")
    with open_reader_at(location) as reader:
        assert set(reader.trusted_checkpoints("run-1")) == {one, other} and reader.trusted_checkpoints("run-2") == ()
        assert reader.run_key("run-1") == key and reader.run_key("run-2") == ""
        consents = [event for event in reader.events(None) if event.kind == "trust"]
    assert [event.subject for event in consents] == [
        f"trusted_checkpoint run-1/{one}",
        f"trusted_checkpoint run-1/{other}",
    ]
    assert all(event.cluster == "mine" and key not in f"{event}" for event in consents)
