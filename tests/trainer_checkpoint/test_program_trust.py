"""Who can write to the bucket of an own program runs nothing on its hosts: checkpoints are signed by their run.

The attack is the same for each framework: a pickle of the newest checkpoint is replaced by one that runs a command, and
the manifest gets its size and digest. The program must refuse it before anything of it is loaded. Where someone has
agreed to a checkpoint without a signature, the adapters still run no code of it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from program_crash import KEY, open_run, save_step, two_ranks
from support.bucket_attack import (
    hide_in_shards,
    list_saved,
    newest_checkpoint,
    pickle_command,
    read_manifest,
    remove_signature,
    replace_file,
    save_command,
)

from trainer.checkpoint.signature import is_manifest_signed
from trainer.errors import StorageError

EXAMPLES = Path(__file__).parents[2] / "examples" / "own-programs"
UNSIGNED = "does not carry the signature of this run"


def replace_every(*names: str, raw: bool = False) -> Callable[[Path, str], None]:
    """Return an attack that replaces the files whose names begin so."""

    def attack(checkpoint: Path, command: str) -> None:
        chosen = [file for file in list_saved(checkpoint) if file.startswith(names)]
        assert chosen, list(list_saved(checkpoint))
        for file in chosen:
            replace_file(checkpoint, file, pickle_command(command) if raw else save_command(command))

    return attack


@dataclass(frozen=True)
class Case:
    """A program and what is replaced; `loads`: what it says where someone has agreed to the checkpoint."""

    program: str
    attack: Callable[[Path, str], None]
    loads: str


CASES = {
    "torch.save": Case("torch_loop", replace_every("state.pt"), "Weights only load failed"),
    "index of DCP": Case("torch_dcp", replace_every(".metadata", raw=True), "posix.system is no type of DCP's index"),
    "values of DCP": Case("torch_dcp", hide_in_shards, "of the checkpoint is not loaded"),
    "Lightning": Case("lightning_loop", replace_every("last.ckpt"), "is not loaded: it names posix.system"),
    "Lightning, no archive": Case("lightning_loop", replace_every("last.ckpt", raw=True), "is no checkpoint of Lightn"),
    "Trainer": Case("hf_trainer", replace_every("rng_state", "optimizer", "scheduler"), "Weights only load failed"),
    "accelerate": Case("accelerate_loop", replace_every("optimizer", "random_states"), "Weights only load failed"),
    "Orbax": Case("flax_orbax", replace_every("_METADATA", raw=True), "Error"),
}


def run_example(folder: Path, name: str, **given: str) -> tuple[int, str]:
    """Run an example with the key of a run; return its status and what it said."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ORCH_", "PET_"))}
    own = {"OMP_NUM_THREADS": "1", "TMPDIR": str(folder), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")],
        cwd=folder,
        env={**kept, **own, "ORCH_RUN_KEY": KEY, **given},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.promise("P42")
@pytest.mark.parametrize("name", CASES)
def test_a_replaced_pickle_is_refused_before_it_is_loaded(tmp_path: Path, name: str) -> None:
    case, marker = CASES[name], tmp_path / "code-of-the-bucket-ran"
    status, said = run_example(tmp_path, case.program)
    assert status == 0, said
    case.attack(newest_checkpoint(tmp_path / "orch-run"), f"touch {marker}")
    status, said = run_example(tmp_path, case.program)
    assert status != 0 and UNSIGNED in said, said
    assert not marker.exists()
    status, said = run_example(tmp_path, case.program, ORCH_TRUSTED_CHECKPOINTS="all")
    assert UNSIGNED not in said and case.loads in said, said
    assert status != 0 and not marker.exists(), said


def tamper(checkpoint: Path, **changes: object) -> None:
    path = checkpoint / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def save_two(place: Path) -> Path:
    """Save steps 1 and 2 with the key; return the folder of the second."""
    run = open_run(f"file://{place}/bucket", place, epoch=1)
    for step in (1, 2):
        save_step(run, step)
        run.wait()
    return newest_checkpoint(place / "bucket")


def swap_files(checkpoint: Path) -> None:
    parts = json.loads((checkpoint / "manifest.json").read_text())["parts"]
    for one, other in zip(parts, [part["file"] for part in reversed(parts)], strict=True):
        one["file"] = other
    tamper(checkpoint, parts=parts)


def move_older_here(checkpoint: Path) -> None:
    """Replay what the run has signed at step 1 as step 2."""
    (older,) = checkpoint.parent.glob("step-00000001-*")
    for path in older.iterdir():
        (checkpoint / path.name).write_bytes(path.read_bytes())
    tamper(checkpoint, step=2)


FORGERIES: dict[str, Callable[[Path], None]] = {
    "no signature": remove_signature,
    "no hex": lambda checkpoint: tamper(checkpoint, signature="x" * 64),
    "empty": lambda checkpoint: tamper(checkpoint, signature=""),
    "zeros": lambda checkpoint: tamper(checkpoint, signature="0" * 64),
    "other meta": lambda checkpoint: tamper(checkpoint, meta={"rank": 7}),
    "other run": lambda checkpoint: tamper(checkpoint, run_id="other"),
    "files swapped": swap_files,
    "older step": move_older_here,
}


@pytest.mark.promise("P42")
@pytest.mark.parametrize("name", FORGERIES)
def test_a_manifest_counts_only_with_all_that_its_run_has_signed(tmp_path: Path, name: str) -> None:
    checkpoint = save_two(tmp_path)
    assert is_manifest_signed(read_manifest(checkpoint), KEY.encode())
    FORGERIES[name](checkpoint)
    again = open_run(f"file://{tmp_path}/bucket", tmp_path, epoch=2)
    for call in (again.latest, lambda: again.restore(tmp_path / "in")):
        with pytest.raises(StorageError, match=UNSIGNED) as refused:
            call()
        assert "orch resume run --trust-bucket" in str(refused.value)
    assert not [path for path in (tmp_path / "in").glob("*") if path.is_file()]


def test_a_program_without_a_key_trusts_a_local_folder_alone_and_a_key_is_not_enough_for_what_came_before(
    tmp_path: Path,
) -> None:
    place = f"file://{tmp_path}/bucket"
    run = open_run(place, tmp_path, epoch=1, key="")
    save_step(run, 1)
    run.wait()
    checkpoint = newest_checkpoint(tmp_path / "bucket")
    assert not read_manifest(checkpoint).signature
    assert open_run(place, tmp_path, epoch=2, key="").restore(tmp_path / "a") == 1
    with pytest.raises(StorageError, match=UNSIGNED):
        open_run(place, tmp_path, epoch=3).restore(tmp_path / "b")
    digest = sha256_of(checkpoint / "manifest.json")
    assert open_run(place, tmp_path, epoch=4, trusted=f"{'0' * 64},{digest}").restore(tmp_path / "b") == 1
    tamper(checkpoint, meta={})  # the consent was for other bytes
    with pytest.raises(StorageError, match=UNSIGNED):
        open_run(place, tmp_path, epoch=5, trusted=digest).restore(tmp_path / "c")


def sha256_of(path: Path) -> str:
    import hashlib

    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.promise("P42")
def test_ranks_follow_no_choice_that_others_wrote(tmp_path: Path) -> None:
    """Both checkpoints are signed, and states of two steps would be mixed."""
    place = f"file://{tmp_path}/bucket"
    runs = two_ranks(place, tmp_path, 1)
    for step in (1, 2):
        for run in runs:
            save_step(run, step, sharded=True)
        for run in runs:
            run.wait()
    first, second = two_ranks(place, tmp_path, 2)
    assert first.restore(tmp_path / "first") == 2
    (choice,) = [path for path in tmp_path.glob("bucket/run/ranks/*.json") if b"step-00000002" in path.read_bytes()]
    choice.write_bytes(choice.read_bytes().replace(b"step-00000002", b"step-00000001"))
    with pytest.raises(StorageError, match=r"ranks/.* does not carry the signature of this run"):
        second.restore(tmp_path / "second")


@pytest.mark.promise("P42")
def test_rank_0_signs_no_files_that_others_left_in_the_place_of_a_rank(tmp_path: Path) -> None:
    runs = two_ranks(f"file://{tmp_path}/bucket", tmp_path, 1)
    save_step(runs[1], 1, sharded=True)
    runs[1].wait()
    (path,) = (tmp_path / "bucket").rglob("shard-00001.json")
    written = json.loads(path.read_text())
    shard = json.loads(written["shard"])
    shard["parts"][0]["sha256"] = "0" * 64
    path.write_text(json.dumps({**written, "shard": json.dumps(shard)}))
    save_step(runs[0], 1, sharded=True)
    with pytest.raises(StorageError, match=f"shard-00001.json {UNSIGNED}"):
        runs[0].wait()
    assert not list((tmp_path / "bucket").rglob("manifest.json"))


def test_index_of_dcp_changes_no_type() -> None:
    """`PosixPath.name` would hide from the adapter that a file is elsewhere."""
    changes = b"\x80\x02cpathlib\nPosixPath\nN}X\x04\0\0\0nameX\x01\0\0\0xs\x86b."
    read = f"import io, orch_run.dcp as dcp; dcp._IndexUnpickler(io.BytesIO({changes!r})).load()"
    library = Path(__file__).parents[2] / "trainer" / "library"
    done = subprocess.run(
        [sys.executable, "-c", read], env={**os.environ, "PYTHONPATH": str(library)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert "it changes PosixPath" in done.stderr, done.stderr
