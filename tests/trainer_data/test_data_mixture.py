"""Mixtures of sources: a row's source is a pure function of (seed, row), and each source has its own position."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.checkpoint.layout import read_data_state
from trainer.checkpoint.manifest import CorruptCheckpoint, Manifest
from trainer.config import Config, DataConfig
from trainer.data.batches import BatchLoader
from trainer.data.mixture import TrainingData, check_epochs, open_training_data
from trainer.data.prepare import PrepareJob, prepare_shards
from trainer.data.state import DataState
from trainer.data.tokens.tokenizers import read_tokenizer
from trainer.data.weights import WeightedSource, list_sources
from trainer.errors import ConfigError, DataError
from trainer.mixture import MixtureOrder
from trainer.options import parse_config
from trainer.order import RowOrder
from trainer.shape.mesh import RowShare

SEEDS = st.integers(0, 2**63 - 1)
BATCH, LENGTH = 12, 16


def order_of(weights: tuple[int, ...], seed: int = 0, batch: int = BATCH) -> MixtureOrder:
    orders = tuple(
        RowOrder(total=10**12, batch=batch, seq_len=LENGTH, seed=seed + place) for place in range(len(weights))
    )
    return MixtureOrder(orders=orders, weights=weights, batch=batch, seq_len=LENGTH, seed=seed)


@pytest.fixture(scope="session")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files: a, b and c hold only their own letter, and a number that says where in the file it is."""
    folder = tmp_path_factory.mktemp("three")
    for letter, lines in (("a", 400), ("b", 100), ("c", 1000)):
        (folder / f"{letter}.txt").write_text("".join(f"{letter}{line:07d}" for line in range(lines)))
    return folder


def config_of(three: Path, *words: str) -> Config:
    places = ",".join(str(three / f"{letter}.txt") for letter in "abc")
    return parse_config(
        [f"data={places}", "data.weights=0.5,0.2,0.3", f"batch={BATCH}", f"seq_len={LENGTH}", "seed=7", *words]
    )


def open_three(three: Path, *words: str) -> TrainingData:
    return open_training_data(config_of(three, *words), lambda _: None)


@pytest.mark.promise("P33")
@given(
    weights=st.lists(st.integers(1, 2**20), min_size=2, max_size=6).map(tuple),
    seed=SEEDS,
    begin=st.integers(0, 10**15),
    count=st.integers(1, 3000),
)
def test_the_position_of_a_source_is_the_number_of_its_rows_before(
    weights: tuple[int, ...], seed: int, begin: int, count: int
) -> None:
    order = order_of(weights, seed)
    sources, numbers = order.assign_rows(begin, count)
    before, after = order.count_rows(begin), order.count_rows(begin + count)
    assert (sum(before), sum(after)) == (begin, begin + count)
    assert [int((sources == place).sum()) for place in range(len(weights))] == [
        last - first for first, last in zip(before, after, strict=True)
    ]
    for rows, weight in zip(before, weights, strict=True):  # at most a block and a rounding away from its share
        assert abs(rows - begin * weight / sum(weights)) <= 1024 + len(weights) + begin * 1e-12
    for place, rows in enumerate(before):  # in the order of the rows, none left out
        own = numbers[sources == place].tolist()
        assert own == list(range(rows, rows + len(own)))


def test_the_sources_are_shuffled_and_seeds_give_other_ones() -> None:
    chosen = {tuple(order_of((7, 3), seed).assign_rows(0, 2048)[0].tolist()) for seed in range(20)}
    assert len(chosen) == 20
    one = next(iter(chosen))
    assert one[:1024] != one[1024:]
    runs = np.diff(np.flatnonzero(np.diff(one)))
    assert runs.max() > 6, "rows of one source also follow each other, as in a draw"


@pytest.mark.promise("P33")
def test_the_order_of_a_mixture_never_changes_between_versions() -> None:
    # A checkpoint holds only the step: these numbers must stay as they are for ever.
    sources, numbers = order_of((7, 3), 5).assign_rows(10**9, 8)
    assert sources.tolist() == GOLDEN[0]
    assert numbers.tolist() == GOLDEN[1]
    assert order_of((1, 2, 7), 5).positions(123_456, 0, 4).tolist() == GOLDEN[2]


@pytest.mark.promise("P33")
@pytest.mark.parametrize("world", [1, 2, 3])
def test_a_mixture_on_any_world_reads_the_rows_of_one_host(three: Path, world: int) -> None:
    """Each step begins with new loaders, which know only the step, as after a kill."""
    data = open_three(three)
    whole = BatchLoader(data.corpus, data.state.open_order(), RowShare(0, 1, 1), 2)
    for step in (0, 1, 2, 500, 10**6):
        shares = [
            BatchLoader(data.corpus, data.state.open_order(), RowShare(rank, 1, world), 1) for rank in range(world)
        ]
        found = np.concatenate([share.take_rows(step) for share in shares])
        assert np.array_equal(found, whole.take_rows(step))
        for share in shares:
            share.close()
    whole.close()


def test_each_source_passes_over_all_its_windows_before_one_comes_again(three: Path) -> None:
    data = open_three(three)
    order = data.state.open_order()
    rows = data.corpus.read(order.positions(0, 0, 100 * BATCH), LENGTH + 1)
    text = [bytes(row.tolist()).decode() for row in rows]
    used = replace(data.state, step=100).list_uses()
    for letter, lines, use in zip("abc", (400, 100, 1000), used, strict=True):
        own = [row for row in text if row[0] == letter]
        windows = (lines * 8 - 1) // LENGTH
        assert len(own) == use.rows
        assert use.epochs == use.rows / windows
        assert all(set(row) <= set(f"{letter}0123456789") for row in own), "no row is of two sources"
    counted = {row: text.count(row) for row in text if row[0] == "b"}
    assert set(counted.values()) <= {int(used[1].epochs), int(used[1].epochs) + 1}
    assert len(counted) == (100 * 8 - 1) // LENGTH
    assert [use.share for use in used] == pytest.approx([0.5, 0.2, 0.3], abs=0.01)


def test_a_run_that_would_pass_too_often_over_a_source_is_refused_with_the_steps_that_fit(three: Path) -> None:
    data = open_three(three).state
    with pytest.raises(ConfigError, match=r"steps=200 read \S+b\.txt 9\.\d+ times, and data\.epochs=1:") as refused:
        check_epochs(config_of(three, "data.epochs=1", "steps=200"), data)
    fits = int(str(refused.value).split("give steps=")[1].split()[0])
    check_epochs(config_of(three, "data.epochs=1", f"steps={fits}"), data)
    with pytest.raises(ConfigError):
        check_epochs(config_of(three, "data.epochs=1", f"steps={fits + 1}"), data)
    assert max(use.epochs for use in replace(data, step=fits).list_uses()) <= 1
    check_epochs(config_of(three, "steps=200"), data)
    alone = DataState(step=0, seed=1, batch=10, seq_len=16, source="a", total_tokens=1601, vocab=256, fingerprint="f")
    check_epochs(Config(steps=20, data=DataConfig(epochs=2.0)), alone)
    with pytest.raises(ConfigError, match="give steps=20 or fewer, more data, or more epochs"):
        check_epochs(Config(steps=21, data=DataConfig(epochs=2.0)), alone)


def test_the_manifest_has_the_mixture_and_a_change_is_refused(three: Path) -> None:
    before = replace(open_three(three).state, step=40)
    content = before.to_json()
    assert [one["weight"] for one in content["sources"]] == [5, 2, 3]
    assert sum(one["position"] for one in content["sources"]) == content["position"] == 40 * BATCH
    assert DataState.from_json(content) == before
    before.check_compatible(before, allow_change=False)
    other = open_three(three, "data.weights=0.5,0.3,0.2").state
    with pytest.raises(ConfigError, match=r"data\.weights 5:2:3 -> 5:3:2"):
        other.check_compatible(before, allow_change=False)
    assert other.check_compatible(before, allow_change=True) == ["data.weights 5:2:3 -> 5:3:2"]
    turned = ",".join(str(three / f"{letter}.txt") for letter in "bac")
    with pytest.raises(DataError, match="corpus fingerprint"):
        open_three(three, f"data={turned}").state.check_compatible(before, allow_change=False)
    with pytest.raises(DataError, match=r"data\.weights none -> 5:2:3"):
        before.check_compatible(replace(before, sources=(), fingerprint="f"), allow_change=False)
    with pytest.raises(DataError, match="corpus tokens"):
        open_three(three, "eval.every=5", "eval.share=0.25").state.check_compatible(before, allow_change=False)


@pytest.mark.parametrize("wrong", [7, [7], [{"source": 5}], [{"source": "a", "weight": "b"}]])
def test_a_damaged_mixture_in_a_manifest_is_corrupt(three: Path, wrong: object) -> None:
    content = {**replace(open_three(three).state, step=40).to_json(), "sources": wrong}
    manifest = Manifest(
        step=40,
        run_id="r",
        attempt=1,
        world=1,
        time="",
        weights_only=False,
        parts=(),
        data=content,
        config={},
        folder="",
    )
    with pytest.raises(CorruptCheckpoint):
        read_data_state(manifest)


def test_each_source_holds_out_its_own_end(three: Path) -> None:
    config = config_of(three, "eval.every=5", "eval.share=0.25", "eval.batches=1")
    data = open_training_data(config, lambda _: None)
    assert [rows.weight for rows in data.held_out] == [5, 2, 3]
    order = data.state.open_order()
    trained = data.corpus.read(order.positions(0, 0, 120 * BATCH), LENGTH)
    seen = {bytes(row.tolist()) for row in trained}
    for letter, rows in zip("abc", data.held_out, strict=True):
        evaluated = {bytes(row[:LENGTH].tolist()) for row in rows.read(0, RowShare(0, 1, 1))}
        assert {row[:1].decode() for row in evaluated} == {letter}
        assert not evaluated & seen
    with pytest.raises(
        DataError, match=r"an evaluation of \S+b\.txt has 80 tokens, one batch needs 192: raise eval.share"
    ):
        open_three(three, "eval.every=5", "eval.share=0.1")
    one = open_three(three, "eval.every=5", f"eval.source={three / 'c.txt'}", "eval.batches=1")
    assert [rows.weight for rows in one.held_out] == [1]


def test_sources_of_different_tokenizers_are_refused(three: Path, tmp_path: Path, tokenizer_file: Path) -> None:
    tokens = read_tokenizer(str(tokenizer_file))
    prepare_shards(PrepareJob(source=str(three / "a.txt"), destination=str(tmp_path), tokens=tokens), lambda _: None)
    with pytest.raises(DataError, match="prepare all sources with one tokenizer"):
        open_three(three, f"data={tmp_path},{three / 'b.txt'}", "data.weights=1,1")


def test_weights_are_whole_numbers_with_their_ratios() -> None:
    found = list_sources(DataConfig(source="gs://a/x:*.txt, b", weights="0.75, 0.25"))
    assert found == (WeightedSource("gs://a/x:*.txt", 3), WeightedSource("b", 1))
    with pytest.raises(DataError, match=r"several sources need data\.weights"):
        open_training_data(parse_config(["data=/absent/a,/absent/b"]), lambda _: None)
    assert list_sources(DataConfig(source="a,b")) == (WeightedSource("a,b", 1),), "a comma may be in a path"


@pytest.mark.parametrize(
    ("source", "weights", "said"),
    [
        ("gs://a, s3://b", "", "give the share of each"),
        ("a,b", "0.7", "has 1 weights"),
        ("a", "1", "give data=A,B"),
        ("a,b", "0.7,-0.3", "not numbers"),
        ("a,b", "1e9,1", "not numbers"),
        ("a,b", "1,", "not numbers"),
        ("a,b", "0,0.0", "above 0"),
        ("a,a", "1,1", "names a twice"),
        ("a,", "1,1", "is empty"),
        ("a,b", "0.123456789012,1", "too many digits"),
    ],
)
def test_wrong_weights_are_refused_before_anything_is_opened(source: str, weights: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        open_training_data(parse_config([f"data={source}", f"data.weights={weights}"]), lambda _: None)


GOLDEN = (
    [1, 0, 0, 0, 0, 0, 0, 0],
    [300000013, 699999987, 699999988, 699999989, 699999990, 699999991, 699999992, 699999993],
    [563912172970768, 282115180562928, 282288584136352, 563596974381408],
)
