"""The compile cache in the run's folder: a fresh host finds compiled steps, and a broken bucket is only a note."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.hostile_bucket import BODIES
from trainer_ranks import REPOSITORY, SMALL

from trainer.compile_cache import MAX_BYTES, CompileCache, open_compile_cache
from trainer.config import CheckpointConfig, Config
from trainer.environment import Run, World
from trainer.tcp_team import SingleProcessTeam

JAX = Config(engine="jax", device="cpu")


def opened(place: Path, host: Path, reported: list[str], config: Config = JAX, key: bytes = b"k" * 64) -> CompileCache:
    run = Run(run_id="r", checkpoint_uri=f"file://{place}/checkpoints", key=key)
    return open_compile_cache(
        config, run, SingleProcessTeam(World()), reported.append, {"JAX_COMPILATION_CACHE_DIR": str(host)}
    )


def test_programs_compiled_by_one_host_are_found_by_another(tmp_path: Path) -> None:
    reported: list[str] = []
    first = opened(tmp_path / "run", tmp_path / "host1", reported)
    (tmp_path / "host1").mkdir(exist_ok=True)
    (tmp_path / "host1/jit_step-abc-cache").write_bytes(b"program")
    (tmp_path / "host1/jit_step-abc-atime").write_bytes(b"now")
    first.upload_once_compiled()
    first.upload_once_compiled()
    first.close()
    opened(tmp_path / "run", tmp_path / "host2", reported)
    assert [path.name for path in (tmp_path / "host2").iterdir()] == ["jit_step-abc-cache"]
    assert (tmp_path / "host2/jit_step-abc-cache").read_bytes() == b"program"
    assert reported[0].startswith("1 compiled programs kept in ")
    assert reported[1].startswith("1 compiled programs of this run fetched from ")


def test_name_that_leaves_the_folder_is_not_downloaded(tmp_path: Path) -> None:
    reported: list[str] = []
    opened(tmp_path / "run", tmp_path / "host1", reported)
    (kind,) = (tmp_path / "run/compile-cache").iterdir()
    (kind / "below").mkdir()
    (kind / "below/x").write_bytes(b"x")
    (kind / "no name").write_bytes(b"x")
    opened(tmp_path / "run", tmp_path / "host2", reported)
    assert list((tmp_path / "host2").iterdir()) == []
    assert reported == []


def test_full_cache_neither_uploads_nor_downloads_more(tmp_path: Path) -> None:
    reported: list[str] = []
    opened(tmp_path / "run", tmp_path / "host", reported)
    (kind,) = (tmp_path / "run/compile-cache").iterdir()
    with (kind / "all").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    programs = opened(tmp_path / "run", tmp_path / "host", reported)
    assert list((tmp_path / "host").iterdir()) == []
    _compiles(programs, tmp_path / "host")
    assert [path.name for path in kind.iterdir()] == ["all"]
    assert reported == []


def test_only_the_first_rank_uploads_compiled_programs(tmp_path: Path) -> None:
    run = Run(run_id="r", checkpoint_uri=f"file://{tmp_path}/run/checkpoints", key=b"k" * 64)
    environ = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "host")}
    _compiles(open_compile_cache(JAX, run, SingleProcessTeam(World(rank=1, size=2)), print, environ), tmp_path / "host")
    assert not list((tmp_path / "run").rglob("step"))
    _compiles(open_compile_cache(JAX, run, SingleProcessTeam(World(rank=0, size=2)), print, environ), tmp_path / "host")
    assert list((tmp_path / "run").rglob("step"))


def _compiles(programs: CompileCache, host: Path) -> None:
    (host / "step").write_bytes(b"program")
    programs.upload_once_compiled()
    programs.upload_once_compiled()
    programs.close()


@pytest.mark.promise("P42")
def test_program_that_no_rank_of_the_run_wrote_does_not_reach_the_folder(tmp_path: Path) -> None:
    reported: list[str] = []
    _compiles(opened(tmp_path / "run", tmp_path / "host1", reported), tmp_path / "host1")
    (kind,) = (tmp_path / "run/compile-cache").iterdir()
    written = (kind / "step").read_bytes()
    (kind / "renamed").write_bytes(written)  # a valid object under another program's name
    (kind / "changed").write_bytes(written[:-1] + b"!")
    (kind / "unsigned").write_bytes(b"what an earlier version left: it has no signature")
    for number, body in enumerate(BODIES.values()):
        (kind / f"planted{number}").write_bytes(body)
    _compiles(opened(tmp_path / "other", tmp_path / "host2", [], key=b"j" * 64), tmp_path / "host2")
    (other,) = (tmp_path / "other/compile-cache").iterdir()
    (kind / "of-another-run").write_bytes((other / "step").read_bytes())
    reported.clear()
    opened(tmp_path / "run", tmp_path / "host3", reported)
    assert [path.name for path in (tmp_path / "host3").iterdir()] == ["step"]
    assert reported[0].startswith("1 compiled programs of this run fetched from ")
    assert f"note: {4 + len(BODIES)} compiled programs in file://" in reported[1]


def test_refused_program_is_replaced_by_the_one_that_is_compiled(tmp_path: Path) -> None:
    opened(tmp_path / "run", tmp_path / "host1", [])
    (kind,) = (tmp_path / "run/compile-cache").iterdir()
    (kind / "step").write_bytes(b"planted" * 10)
    _compiles(opened(tmp_path / "run", tmp_path / "host1", []), tmp_path / "host1")
    opened(tmp_path / "run", tmp_path / "host2", [])
    assert (tmp_path / "host2/step").read_bytes() == b"program"


def test_without_a_key_nothing_is_read_from_or_written_to_the_bucket(tmp_path: Path) -> None:
    reported: list[str] = []
    _compiles(opened(tmp_path / "run", tmp_path / "host", reported, key=b""), _made(tmp_path / "host"))
    assert not (tmp_path / "run").exists()
    assert "ORCH_RUN_KEY" in reported[0]


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_unusable_bucket_is_a_note(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file where the folder should be")
    reported: list[str] = []
    opened(tmp_path / "run", tmp_path / "host", reported).upload_once_compiled()
    assert len(reported) == 1
    assert reported[0].startswith("note: no compiled programs from file://")


def test_nothing_is_cached_for_an_engine_that_compiles_nothing(tmp_path: Path) -> None:
    opened(tmp_path / "run", tmp_path / "host", [], Config(engine="torch", device="cpu"))
    opened(tmp_path / "run", tmp_path / "host", [], Config(engine="jax", device="cpu", checkpoint=CheckpointConfig()))
    assert not (tmp_path / "run/compile-cache/tpu").exists()
    environ: dict[str, str] = {}
    open_compile_cache(JAX, Run(checkpoint_uri=str(tmp_path / "other")), SingleProcessTeam(World()), print, environ)
    assert (environ, (tmp_path / "other").exists()) == ({}, False)


@pytest.mark.slow
def test_a_second_attempt_on_a_fresh_host_does_not_compile_the_step_again(tmp_path: Path, corpus: Path) -> None:
    """Use the real JAX engine, whose counter shows what came from the cache."""
    for attempt in (1, 2):
        environment = {
            **os.environ,
            "JAX_COMPILATION_CACHE_DIR": str(tmp_path / f"host{attempt}"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "ORCH_ATTEMPT": str(attempt),
            "ORCH_RUN_KEY": "k" * 64,
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
