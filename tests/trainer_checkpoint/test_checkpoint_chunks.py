"""Objects in chunks: exact bytes, concurrent requests, bounded memory; and which process verifies which part."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from checkpoint_crash import CONFIG
from checkpoint_toy import ToyEngine, data_of
from checkpoint_wrapped import WrappedStore
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.checkpoint.chunks import MAX_CONCURRENT_REQUESTS, read_in_chunks
from trainer.checkpoint.layout import part_name
from trainer.checkpoint.manifest import Part
from trainer.checkpoint.reader import choose_verifying_rank, verify_part
from trainer.checkpoint.session import Checkpoints
from trainer.checkpoint.snapshot import read_free_memory
from trainer.checkpoint.store import Store, open_store
from trainer.environment import Run, World
from trainer.errors import StorageError
from trainer.shape.box import Box, TensorRegion
from trainer.shape.mesh import Mesh
from trainer.tcp_team import SingleProcessTeam

CONTENT = bytes(range(256)) * 3


@settings(max_examples=40)
@given(offset=st.integers(0, 300), size=st.integers(0, 400), stretch=st.integers(1, 90), kept=st.booleans())
def test_chunks_are_the_bytes_in_order(
    tmp_path_factory: pytest.TempPathFactory, offset: int, size: int, stretch: int, kept: bool
) -> None:
    store = open_store(str(tmp_path_factory.getbasetemp() / "streams"), create=True)
    if store.find("x") is None:
        store.put("x", CONTENT)
    into = memoryview(bytearray(size)) if kept else None
    drawn = b"".join(bytes(part) for part in read_in_chunks(store, "x", offset, size, into, chunk_bytes=stretch))
    assert drawn == CONTENT[offset : offset + size]
    assert into is None or bytes(into) == drawn


class _Together(WrappedStore):
    """A store that answers only when MAX_CONCURRENT_REQUESTS requests wait for it."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._barrier = threading.Barrier(MAX_CONCURRENT_REQUESTS)

    def read_into(self, path: str, offset: int, target: memoryview) -> None:
        self._barrier.wait(10)
        super().read_into(path, offset, target)


def test_several_chunks_of_one_object_are_requested_concurrently(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), create=True)
    store.put("x", CONTENT)
    drawn = [
        bytes(part)
        for part in read_in_chunks(_Together(store), "x", 0, 3 * MAX_CONCURRENT_REQUESTS * 32, chunk_bytes=32)
    ]
    assert b"".join(drawn) == CONTENT


def test_object_that_ends_too_early_is_an_error_and_not_awaited(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), create=True)
    store.put("step-00000001/" + part_name(0, 0), CONTENT)
    with pytest.raises(StorageError, match="ends too early"):
        list(read_in_chunks(store, "step-00000001/" + part_name(0, 0), 0, 5000, chunk_bytes=32))
    part = Part(name=part_name(0, 0), size=len(CONTENT), header=8, sha256="0" * 64)
    assert verify_part(store, "step-00000001", part) == f"{part_name(0, 0)} does not have its checksum"


@given(writers=st.integers(1, 40), parts=st.integers(1, 5), ranks=st.integers(1, 40))
def test_every_part_has_a_verifying_rank_the_writer_where_possible(writers: int, parts: int, ranks: int) -> None:
    names = [part_name(writer, number) for writer in range(writers) for number in range(parts)]
    checkers = [
        choose_verifying_rank(Part(name=name, size=1, header=1, sha256=""), i, writers, ranks)
        for i, name in enumerate(names)
    ]
    assert all(0 <= checker < ranks for checker in checkers)
    if writers == ranks:
        assert checkers == [writer for writer in range(writers) for _ in range(parts)]
    if parts * writers >= ranks >= writers and ranks % writers == 0 and parts % (ranks // writers) == 0:
        assert {checkers.count(rank) for rank in range(ranks)} == {parts * writers // ranks}


class _Enormous(ToyEngine):
    """An engine whose state no machine can hold twice."""

    def written(self) -> list[TensorRegion]:
        return [TensorRegion("model/x", (1 << 50,), Box((0,), (1 << 50,)))]


def test_a_state_that_does_not_fit_into_memory_again_ends_the_run_before_it_trains(tmp_path: Path) -> None:
    session = Checkpoints.open(
        CONFIG, Run(run_id="run", attempt=1, checkpoint_uri=str(tmp_path)), SingleProcessTeam(World()), lambda _: None
    )
    with pytest.raises(StorageError, match=r"a save needs 4,503,\d+\.\d GB of this host's memory .*: use more hosts"):
        session.resume(_Enormous(CONFIG, Mesh()), data_of(0))
    without = Checkpoints.open(
        CONFIG, Run(run_id="run", attempt=1, checkpoint_uri=""), SingleProcessTeam(World()), lambda _: None
    )
    assert without.resume(_Enormous(CONFIG, Mesh()), data_of(0)) == 0


def test_free_memory_is_read_where_the_system_reports_it(tmp_path: Path) -> None:
    (tmp_path / "m").write_text("MemTotal: 9 kB\nMemAvailable:   3 kB\nSwapFree:  2 kB\n")
    assert read_free_memory(tmp_path / "m") == 5 * 1024
    (tmp_path / "m").write_text("MemTotal: 9 kB\n")
    assert read_free_memory(tmp_path / "m") is None
    assert read_free_memory(tmp_path / "absent") is None
