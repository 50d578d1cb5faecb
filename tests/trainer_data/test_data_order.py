"""The order of the data: a pure function of seed, step and row, each window once in an epoch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.data.state import DataState
from trainer.errors import ConfigError, DataError
from trainer.order import RowOrder, permute_windows

SEEDS = st.integers(0, 2**63 - 1)


@pytest.mark.promise("P33")
@given(size=st.integers(1, 3000), seed=SEEDS, epoch=st.integers(0, 2**40))
def test_an_epoch_visits_each_window_once(size: int, seed: int, epoch: int) -> None:
    values = np.arange(size, dtype=np.uint64)
    result = permute_windows(values, np.full(size, epoch, dtype=np.uint64), size, seed)
    assert sorted(result.tolist()) == list(range(size))


@pytest.mark.promise("P33")
@given(
    corpus=st.integers(100, 10**13),
    ranks=st.sampled_from([1, 2, 3, 4, 6, 12]),
    step=st.integers(0, 10**9),
    seq_len=st.integers(1, 99),
    seed=SEEDS,
)
def test_the_rows_of_a_step_are_the_same_on_any_number_of_ranks(
    corpus: int, ranks: int, step: int, seq_len: int, seed: int
) -> None:
    order = RowOrder(total=corpus, batch=24, seq_len=seq_len, seed=seed)
    whole = order.positions(step, 0, 24).tolist()
    share = 24 // ranks
    parts = [order.positions(step, rank * share, share).tolist() for rank in range(ranks)]
    assert [position for part in parts for position in part] == whole
    assert all(0 <= position <= corpus - seq_len - 1 for position in whole)


@pytest.mark.promise("P33")
def test_consecutive_steps_cover_an_epoch_and_the_next_has_another_order() -> None:
    order = RowOrder(total=64 * 16 + 1, batch=8, seq_len=16, seed=3)
    first = [p for step in range(8) for p in order.positions(step, 0, 8).tolist()]
    second = [p for step in range(8, 16) for p in order.positions(step, 0, 8).tolist()]
    assert sorted(first) == sorted(second) == list(range(0, 64 * 16, 16))
    assert first != second
    assert first != sorted(first)


def test_seeds_give_other_orders() -> None:
    orders = {
        tuple(RowOrder(total=10**6, batch=8, seq_len=16, seed=seed).positions(0, 0, 8).tolist()) for seed in range(50)
    }
    assert len(orders) == 50


@pytest.mark.promise("P33")
def test_the_order_never_changes_between_versions() -> None:
    # A checkpoint holds only the step: these numbers must stay as they are for ever.
    assert RowOrder(total=31_525_224, batch=4, seq_len=128, seed=0).positions(0, 0, 4).tolist() == GOLDEN[0]
    assert RowOrder(total=31_525_224, batch=4, seq_len=128, seed=7).positions(123_456_789, 0, 4).tolist() == GOLDEN[1]


def test_the_windows_are_spread_over_the_whole_corpus() -> None:
    order = RowOrder(total=10**9, batch=1024, seq_len=100, seed=1)
    counts, _ = np.histogram(order.positions(0, 0, 1024), bins=8, range=(0, 10**9))
    assert counts.min() > 80
    assert counts.max() < 180


@pytest.mark.parametrize("size", [0, 1, 16])
def test_a_corpus_shorter_than_one_row_is_refused(size: int) -> None:
    with pytest.raises(DataError, match="one row needs 17"):
        RowOrder(total=size, batch=1, seq_len=16, seed=0)
    assert RowOrder(total=17, batch=1, seq_len=16, seed=0).positions(5, 0, 1).tolist() == [0]


@pytest.mark.promise("P33")
def test_changes_since_the_checkpoint_are_named() -> None:
    before = DataState(step=10, seed=1, batch=8, seq_len=16, source="a", total_tokens=1000, vocab=256, fingerprint="f")
    before.check_compatible(before, allow_change=False)
    with pytest.raises(DataError, match="corpus fingerprint f -> g"):
        DataState(
            step=0, seed=1, batch=8, seq_len=16, source="a", total_tokens=1000, vocab=256, fingerprint="g"
        ).check_compatible(before, allow_change=False)
    with pytest.raises(ConfigError, match="seed 1 -> 2; batch 8 -> 4"):
        DataState(
            step=0, seed=2, batch=4, seq_len=16, source="a", total_tokens=1000, vocab=256, fingerprint="f"
        ).check_compatible(before, allow_change=False)
    assert DataState(
        step=0, seed=2, batch=8, seq_len=16, source="b", total_tokens=1000, vocab=256, fingerprint="f"
    ).check_compatible(before, allow_change=True) == ["seed 1 -> 2"]
    assert before.position == 80


GOLDEN = ([12575232, 7922688, 14852864, 10194048], [24830336, 24179328, 8825344, 25465856])
