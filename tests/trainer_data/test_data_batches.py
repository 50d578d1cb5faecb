"""Batches: the same rows on any number of hosts and after any resume, read ahead, errors at their own step."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from data_cases import opened
from hypothesis import given
from hypothesis import strategies as st
from support.s3 import S3Server
from support.slow_proxy import slow_proxy

from trainer.config import Config, ModelConfig
from trainer.data.batches import BatchLoader
from trainer.errors import DataError
from trainer.order import RowOrder
from trainer.shape.mesh import Mesh, RowShare, assign_rows

BATCH = 24
WORLDS = [(1, 1), (2, 1), (3, 1), (4, 1), (2, 2), (4, 2), (8, 2), (12, 1), (8, 4)]
"""(processes, tensor axis), one device each."""


@pytest.mark.promise("P33")
@given(
    legs=st.lists(st.tuples(st.sampled_from(WORLDS), st.integers(1, 6)), min_size=1, max_size=5),
    seed=st.integers(0, 2**63 - 1),
    ahead=st.integers(0, 3),
    begin=st.sampled_from([0, 10, 10**6]),
)
def test_a_run_on_changing_hosts_reads_the_rows_of_one_host(
    text_folder: Path, legs: list[tuple[tuple[int, int], int]], seed: int, ahead: int, begin: int
) -> None:
    """Each part resumes where the last one ended, on other hosts, knowing only the step."""
    corpus = opened(text_folder)
    order = RowOrder(total=corpus.total_tokens, batch=BATCH, seq_len=16, seed=seed)
    step = begin
    for (processes, tensor), steps in legs:
        mesh = Mesh(data=processes // tensor, tensor=tensor)
        shares = [assign_rows(mesh, process, processes) for process in range(processes)]
        hosts = [BatchLoader(corpus, order, share, ahead) for share in shares]
        for now in range(step, step + steps):
            expected = corpus.read(order.positions(now, 0, BATCH), 17)
            found = [host.take_rows(now) for host in hosts]
            assert np.array_equal(np.concatenate(found[::tensor]), expected)
            for first in range(0, processes, tensor):  # devices that share rows get the same ones
                assert all(np.array_equal(found[first], other) for other in found[first : first + tensor])
        for host in hosts:
            host.close()
        step += steps


@pytest.mark.promise("P33")
def test_steps_may_be_taken_in_any_order(text_folder: Path) -> None:
    corpus = opened(text_folder)
    order = RowOrder(total=corpus.total_tokens, batch=8, seq_len=32, seed=5)
    batches = BatchLoader(corpus, order, RowShare(1, 1, 2), ahead=2)
    for step in (0, 1, 7, 3, 3, 4):
        assert np.array_equal(batches.take_rows(step), corpus.read(order.positions(step, 4, 4), 33))
    batches.close()


def test_a_read_error_is_raised_at_its_own_step(tmp_path: Path) -> None:
    """Rows read before the disk failed are still returned; the step whose rows are missing names the file."""
    size = 17 * 100
    (tmp_path / "a").write_bytes(b"x" * size * 9)
    (tmp_path / "b").write_bytes(b"x" * size)
    corpus = opened(tmp_path)
    order = RowOrder(total=corpus.total_tokens, batch=1, seq_len=16, seed=3)
    broken = [step for step in range(100) if order.positions(step, 0, 1)[0] + 17 > size * 9]
    assert broken[0] > 3
    (tmp_path / "b").unlink()
    batches = BatchLoader(corpus, order, RowShare(0, 1, 1), ahead=3)
    for step in range(broken[0]):
        assert batches.take_rows(step).shape == (1, 17)
    with pytest.raises(DataError, match=r"cannot read .*/b"):
        batches.take_rows(broken[0])
    batches.close()


def test_reading_ahead_hides_a_slow_bucket(s3: S3Server, text_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each response of the bucket takes 20 ms, and each step as long as reading its rows took."""
    s3.create_bucket("slow-of-tests")
    data = b"".join(path.read_bytes() for path in sorted(text_folder.iterdir()))
    s3.client.put_object(Bucket="slow-of-tests", Key="text/all.txt", Body=data)
    with slow_proxy(int(s3.url.rsplit(":", 1)[1]), seconds=0.02) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setattr("trainer.data.readers._KEPT_WHOLE", 0)
        corpus = opened("s3://slow-of-tests/text:*")
        order = RowOrder(total=corpus.total_tokens, batch=4, seq_len=64, seed=0)
        alone = _usual_wait(BatchLoader(corpus, order, RowShare(0, 1, 1), ahead=0), work=0.0)
        ahead = _usual_wait(BatchLoader(corpus, order, RowShare(0, 1, 1), ahead=2), work=alone)
    assert alone > 0.02
    assert ahead < alone / 4


def _usual_wait(batches: BatchLoader, work: float) -> float:
    """Return the median of the seconds that a step waits for its rows; one slow step does not count."""
    waited = [batches.wait_seconds]
    for step in range(14):
        batches.take_rows(step)
        waited.append(batches.wait_seconds)
        time.sleep(work)
    batches.close()
    return median(after - before for before, after in pairwise(waited))


def test_a_vocabulary_smaller_than_the_datas_is_refused(text_folder: Path) -> None:
    from trainer.engines import set_vocabulary_size
    from trainer.errors import ConfigError

    corpus = opened(text_folder)
    assert set_vocabulary_size(Config(), corpus.vocab).model.vocab == 256
    assert set_vocabulary_size(Config(), 50_257).model.vocab == 50_304, "rounded up to whole tiles"
    with pytest.raises(ConfigError, match="vocab"):
        set_vocabulary_size(Config(model=ModelConfig(vocab=100)), corpus.vocab)
