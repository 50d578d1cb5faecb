"""Progress that engines keep: its numbers only rise, an old one is replaced, and a week later it is gone."""

from __future__ import annotations

import pytest

from orchestrator.store.location import Location
from orchestrator.store.read import open_reader_at
from orchestrator.store.store import Store


def test_numbers_rise_also_where_the_newest_row_was_replaced(location: Location) -> None:
    with Store(location) as store:
        first = store.keep_progress("mine", '{"kind": "wait"}')
        second = store.keep_progress("mine", '{"kind": "wait", "seconds": 15.0}', replaced=first)
        store.keep_progress("mine", "{}", replaced=second)
        with open_reader_at(location) as reader:
            (left,) = reader.progress_after(0, 10)
            assert (left.cluster, left.document) == ("mine", "{}")
            assert left.number > second > first
            assert reader.newest_progress() == left.number
            assert reader.progress_after(left.number, 10) == ()


def test_progress_is_dropped_by_its_age(location: Location) -> None:
    now = 1000.0
    with Store(location, lambda: now) as store:
        store.keep_progress("mine", '{"n": 1}')
        now = 2000.0
        store.keep_progress("mine", '{"n": 2}')
        store.drop_progress(500.0)
        with open_reader_at(location) as reader:
            assert [row.document for row in reader.progress_after(0, 10)] == ['{"n": 2}']


def test_a_reader_of_one_project_sees_none(location: Location) -> None:
    """The service itself chooses whose progress is sent, by the name of the cluster."""
    with Store(location) as store:
        store.keep_progress("vision/mine", "{}")
    with open_reader_at(location, "vision", "vision") as reader:
        assert reader.progress_after(0, 10) == () and reader.newest_progress() == 0


@pytest.mark.parametrize("limit", [1, 2])
def test_the_oldest_come_first(location: Location, limit: int) -> None:
    with Store(location) as store:
        numbers = [store.keep_progress("mine", "{}") for _ in range(3)]
        with open_reader_at(location) as reader:
            found = reader.progress_after(numbers[0] - 1, limit)
    assert [row.number for row in found] == numbers[:limit]
