"""Compiled steps travel through the run's folder: a fresh host finds them, and a broken bucket costs a line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from trainer_ranks import REPOSITORY, SMALL

from trainer.config import CheckpointConfig, Config
from trainer.environment import Run, World
from trainer.programs import MOST_BYTES, Programs, open_programs
from trainer.tcp_team import Alone

JAX = Config(engine="jax", device="cpu")


def opened(place: Path, host: Path, told: list[str], config: Config = JAX) -> Programs:
    run = Run(run_id="r", checkpoint_uri=f"file://{place}/checkpoints")
    return open_programs(config, run, Alone(World()), told.append, {"JAX_COMPILATION_CACHE_DIR": str(host)})


def test_what_one_host_compiled_another_one_finds(tmp_path: Path) -> None:
    told: list[str] = []
    first = opened(tmp_path / "run", tmp_path / "host1", told)
    (tmp_path / "host1").mkdir(exist_ok=True)
    (tmp_path / "host1/jit_step-abc-cache").write_bytes(b"program")
    (tmp_path / "host1/jit_step-abc-atime").write_bytes(b"now")
    first.offer()
    first.offer()
    first.close()
    opened(tmp_path / "run", tmp_path / "host2", told)
    assert [path.name for path in (tmp_path / "host2").iterdir()] == ["jit_step-abc-cache"]
    assert (tmp_path / "host2/jit_step-abc-cache").read_bytes() == b"program"
    assert told[0].startswith("1 compiled programs kept in ")
    assert told[1].startswith("1 compiled programs of this run fetched from ")


def test_a_name_that_leaves_the_folder_is_not_fetched(tmp_path: Path) -> None:
    told: list[str] = []
    opened(tmp_path / "run", tmp_path / "host1", told)
    (kind,) = (tmp_path / "run/compile-cache").iterdir()
    (kind / "below").mkdir()
    (kind / "below/x").write_bytes(b"x")
    (kind / "no name").write_bytes(b"x")
    opened(tmp_path / "run", tmp_path / "host2", told)
    assert list((tmp_path / "host2").iterdir()) == []
    assert told == []


def test_a_full_folder_takes_and_gives_no_more(tmp_path: Path) -> None:
    told: list[str] = []
    opened(tmp_path / "run", tmp_path / "host", told)
    (kind,) = (tmp_path / "run/compile-cache").iterdir()
    with (kind / "all").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    programs = opened(tmp_path / "run", tmp_path / "host", told)
    assert list((tmp_path / "host").iterdir()) == []
    _compiles(programs, tmp_path / "host")
    assert [path.name for path in kind.iterdir()] == ["all"]
    assert told == []


def test_of_many_ranks_the_first_one_keeps_what_was_compiled(tmp_path: Path) -> None:
    run = Run(run_id="r", checkpoint_uri=f"file://{tmp_path}/run/checkpoints")
    environ = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "host")}
    _compiles(open_programs(JAX, run, Alone(World(rank=1, size=2)), print, environ), tmp_path / "host")
    assert not list((tmp_path / "run").rglob("step"))
    _compiles(open_programs(JAX, run, Alone(World(rank=0, size=2)), print, environ), tmp_path / "host")
    assert list((tmp_path / "run").rglob("step"))


def _compiles(programs: Programs, host: Path) -> None:
    (host / "step").write_bytes(b"program")
    programs.offer()
    programs.offer()
    programs.close()


def test_a_bucket_that_cannot_be_used_is_a_note(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file where the folder should be")
    told: list[str] = []
    opened(tmp_path / "run", tmp_path / "host", told).offer()
    assert len(told) == 1
    assert told[0].startswith("note: no compiled programs from file://")


def test_nothing_is_kept_for_an_engine_that_compiles_nothing(tmp_path: Path) -> None:
    opened(tmp_path / "run", tmp_path / "host", [], Config(engine="torch", device="cpu"))
    opened(tmp_path / "run", tmp_path / "host", [], Config(engine="jax", device="cpu", checkpoint=CheckpointConfig()))
    assert not (tmp_path / "run/compile-cache/tpu").exists()
    environ: dict[str, str] = {}
    open_programs(JAX, Run(checkpoint_uri=str(tmp_path / "other")), Alone(World()), print, environ)
    assert (environ, (tmp_path / "other").exists()) == ({}, False)


@pytest.mark.slow
def test_a_second_attempt_on_a_fresh_host_does_not_compile_the_step_again(tmp_path: Path, corpus: Path) -> None:
    """The real JAX engine: its own counter says what came from the cache."""
    for attempt in (1, 2):
        environment = {
            **os.environ,
            "JAX_COMPILATION_CACHE_DIR": str(tmp_path / f"host{attempt}"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "ORCH_ATTEMPT": str(attempt),
            "ORCH_CHECKPOINT_URI": f"file://{tmp_path}/run/checkpoints",
        }
        words = [*SMALL, f"data={corpus}", f"steps={3 * attempt}", "engine=jax", "metrics.file="]
        done = subprocess.run(
            [sys.executable, "-m", "trainer", *words],
            cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=170, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert "compiled programs of this run fetched" in done.stdout
    first, second = ({path.name for path in (tmp_path / f"host{attempt}").iterdir()} for attempt in (1, 2))
    programs = {name for name in second if name.startswith("jit_") and name.endswith("-cache")}
    assert programs <= first, "the second host compiled something the first had not"
    assert programs
