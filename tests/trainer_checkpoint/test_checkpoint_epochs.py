"""Two starts of one run: the later one holds it, and the earlier one, however late, destroys nothing."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from checkpoint_crash import CONFIG, engine_at, server, write
from checkpoint_toy import ToyEngine, as_world, data_of, folder_of, manifest_of, resume, save
from checkpoint_wrapped import WrappedStore
from support.s3 import ENVIRONMENT

from orch_fronts.aws.s3 import s3_server
from orch_fronts.google.gcs import gcs_server
from trainer.checkpoint import claim, pointer, reader
from trainer.checkpoint.epoch import BEAT, EPOCH, Epoch
from trainer.checkpoint.manifest import LATEST, Latest, StepFolder
from trainer.checkpoint.session import Checkpoints
from trainer.checkpoint.store import Buffer, Store, open_store
from trainer.environment import Run, World
from trainer.errors import Exit, StorageError, TakenOver
from trainer.shape.mesh import Mesh
from trainer.tcp_team import SingleProcessTeam
from trainer.team import Team

ALONE = SingleProcessTeam(World())
CLAIMED = "2026-11-23T18:30:00Z"


def opened(place: str, *, epoch: int = 0, attempt: int = 1) -> Checkpoints:
    run = Run(run_id="run", attempt=attempt, epoch=epoch, checkpoint_uri=place)
    return Checkpoints.open(CONFIG, run, ALONE, lambda _: None)


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("step-*/*")}


def hold(place: str, epoch: int, host: str, attempt: int = 1) -> None:
    """Claim the epoch as an orch on that computer does."""
    mine = Epoch(epoch=epoch, attempt=attempt, installation="1a2b3c4d5e", host=host, job="", time=CLAIMED)
    open_store(place, create=True).put(EPOCH, mine.to_json())


def test_two_starts_with_the_same_attempt_leave_each_others_checkpoints_whole(tmp_path: Path) -> None:
    place = f"file://{tmp_path}/run/checkpoints"
    first = opened(place)
    assert first.save(engine_at(3), data_of(3), wait=True)
    second = opened(place)  # the same attempt, on another computer
    before = files(tmp_path)
    with pytest.raises(TakenOver, match=r"another start of this run has taken it over: .* epoch 2; this is epoch 1"):
        first.save(engine_at(4), data_of(4), wait=True)
    assert files(tmp_path) == before, "it wrote nothing more"
    assert second.resume(ToyEngine(CONFIG, Mesh()), data_of(0)) == 3
    assert second.save(engine_at(4), data_of(4), wait=True)
    assert before.items() <= files(tmp_path).items()
    assert pointer.read_latest(open_store(place)) == Latest(4, manifest_of(4, 2), 2)


def test_the_launchers_epoch_is_held_and_a_lower_one_is_refused_by_the_name_of_the_taker(tmp_path: Path) -> None:
    place = f"file://{tmp_path}/run/checkpoints"
    hold(f"file://{tmp_path}/run", 5, "laptop")
    opened(place, epoch=5, attempt=2).save(engine_at(3), data_of(3), wait=True)
    assert open_store(place).list_folders() == [folder_of(3, 5, 2)]
    with pytest.raises(TakenOver, match=r"laptop \(orch 1a2b3c4d\) at 2026-11-23T18:30:00Z, epoch 5; this is epoch 4"):
        opened(place, epoch=4, attempt=2)
    assert TakenOver.exit_status == 6


def test_every_rank_raises_that_the_run_was_taken_over(tmp_path: Path) -> None:
    place = f"file://{tmp_path}/run/checkpoints"

    def rank(team: Team) -> str:
        session = Checkpoints.open(CONFIG, Run(run_id="run", checkpoint_uri=place, epoch=1), team, lambda _: None)
        if team.world.is_first:
            hold(f"file://{tmp_path}/run", 2, "laptop")
        with pytest.raises(TakenOver) as caught:
            session.save(ToyEngine(CONFIG, Mesh(fsdp=2), team.world.rank, 2, 5), data_of(5), wait=True)
        return str(caught.value)

    first, second = as_world(2, rank)
    assert first == second and "laptop" in first


class _Frozen(WrappedStore):
    """A store that stops its own process before the n-th write, until the test continues it."""

    def __init__(self, inner: Store, moment: int) -> None:
        super().__init__(inner)
        self._left = moment

    def _tick(self) -> None:
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(0.1)  # it stops a moment later
        self._left -= 1

    def put(self, path: str, data: Buffer) -> None:
        self._tick()
        super().put(path, data)

    def create(self, path: str, data: bytes) -> bool:
        self._tick()
        return super().create(path, data)

    def replace_if_unchanged(self, path: str, data: bytes, expected: object) -> bool:
        self._tick()
        return super().replace_if_unchanged(path, data, expected)  # type: ignore[arg-type]  # as given


def save_with_a_freeze(place: str, moment: int, environ: Mapping[str, str]) -> None:
    """Save step 4, frozen before one of its writes; end with 6 when the run was taken over meanwhile."""
    os.environ.update(environ)
    session = opened(place)
    assert session.resume(ToyEngine(CONFIG, Mesh()), data_of(0)) == 3
    assert session.schedule is not None and session.store is not None
    session.schedule.writer._store = _Frozen(session.store, moment)  # the process is frozen within a save
    try:
        session.save(engine_at(4), data_of(4), wait=True)
    except TakenOver:
        os._exit(Exit.TAKEN_OVER)
    os._exit(0)


@pytest.fixture(params=["file", "s3", "gs"])
def root(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, Mapping[str, str]]]:
    """The URI of a bucket of each kind, and the environment that leads to it."""
    if request.param == "file":
        yield f"file://{tmp_path}", {}
        return
    with gcs_server(create=True) if request.param == "gs" else s3_server(create=True) as bucket:
        variable = "STORAGE_EMULATOR_HOST" if request.param == "gs" else "AWS_ENDPOINT_URL"
        environ = {**ENVIRONMENT, variable: bucket.url}
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        yield f"{request.param}://b", environ


def contents(place: str) -> dict[str, bytes]:
    """Every part and manifest, by path."""
    store = open_store(place)
    paths = [entry.path for entry in store.list_objects("") if entry.path.startswith("step-")]
    return {path: found.data for path in paths if (found := store.find(path)) is not None}


def _stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except (FileNotFoundError, ProcessLookupError):  # it has just ended
        return False


@pytest.mark.promise("P16")
def test_a_writer_frozen_at_any_write_of_a_save_and_continued_after_a_take_over_destroys_nothing(
    root: tuple[str, Mapping[str, str]],
) -> None:
    uri, environ = root
    moments = 0
    while True:
        place = f"{uri}/{moments}/checkpoints"
        save(place, CONFIG, Mesh(), 1, 3)
        process = server().Process(target=save_with_a_freeze, args=(place, moments, environ))
        process.start()
        assert process.pid is not None
        until = time.monotonic() + 60
        while process.is_alive() and not _stopped(process.pid):
            assert time.monotonic() < until
            time.sleep(0.01)
        if not process.is_alive():
            break
        taker = opened(place, attempt=2)
        assert taker.resume(ToyEngine(CONFIG, Mesh()), data_of(0)) == 3
        assert taker.save(engine_at(4), data_of(4), wait=True)
        before, latest = contents(place), pointer.read_latest(open_store(place))
        assert latest == Latest(4, manifest_of(4, 3, 2), 3)
        os.kill(process.pid, signal.SIGCONT)
        process.join(60)
        assert process.exitcode == Exit.TAKEN_OVER
        assert before.items() <= contents(place).items()
        assert pointer.read_latest(open_store(place)) == latest
        found = reader.find_newest_checkpoint(open_store(place), ALONE, lambda _: None)
        assert found is not None and found.manifest.folder == folder_of(4, 3, 2)
        moments += 1
    assert process.exitcode == 0
    assert moments == 3, "part, manifest and pointer were met"


def test_a_checkpoint_that_latest_never_named_is_not_resumed_from(tmp_path: Path) -> None:
    place = f"file://{tmp_path}/run/checkpoints"
    save(place, CONFIG, Mesh(), 1, 3, 9)
    store = open_store(place)
    store.put(LATEST, Latest(3, manifest_of(3), 1).to_json())  # its writer was overtaken before it moved the pointer
    done, _, lines = resume(place, CONFIG, Mesh(), 1)
    assert done == 3
    assert lines[0] == "skipped checkpoint 9: latest.json never named it"


def test_without_a_pointer_the_newest_complete_checkpoint_counts(tmp_path: Path) -> None:
    place = f"file://{tmp_path}/run/checkpoints"
    save(place, CONFIG, Mesh(), 1, 3, 9)
    open_store(place).delete([LATEST])
    assert resume(place, CONFIG, Mesh(), 1)[0] == 9
    assert pointer.read_latest(open_store(place)) == Latest(9, manifest_of(9), 2)


def test_checkpoints_of_an_earlier_orch_are_resumed_and_kept_until_they_are_old(tmp_path: Path) -> None:
    place = f"file://{tmp_path}/run/checkpoints"
    save(place, CONFIG, Mesh(), 1, 3, 6)
    folder = tmp_path / "run/checkpoints"
    for step in (3, 6):
        (folder / folder_of(step)).rename(folder / StepFolder(step).name)
    (folder / LATEST).write_text('{"step": 6, "manifest": "step-00000006/manifest.json"}')
    (tmp_path / "run" / EPOCH).unlink()
    before = files(tmp_path)
    session = opened(place, attempt=2)
    assert session.resume(ToyEngine(CONFIG, Mesh()), data_of(0)) == 6
    assert session.save(engine_at(7), data_of(7), wait=True)
    assert before.items() <= files(tmp_path).items()
    assert resume(place, CONFIG, Mesh(), 1)[0] == 7


def test_pruning_leaves_a_later_epoch_alone(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/c", create=True)
    write(store, 1, attempt=2)
    store.put(LATEST, Latest(9, manifest_of(9), 1).to_json())
    assert pointer.prune_checkpoints(store, 1, 0, 1) == []
    store.put(LATEST, Latest(9, manifest_of(9), 3).to_json())
    assert pointer.prune_checkpoints(store, 1, 0, 2) == [], "latest is of a later epoch"
    assert store.list_folders() == [folder_of(1, 2, 2)]


def test_the_beat_changes_while_a_start_holds_the_run_and_ends_it_when_it_was_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, "BEAT_SECONDS", 0.05)
    session, beat = opened(f"file://{tmp_path}/run/checkpoints"), tmp_path / "run" / BEAT
    with session.beating():
        _wait_for(beat.exists)
        first = beat.stat().st_mtime_ns
        _wait_for(lambda: beat.stat().st_mtime_ns != first)
        session.raise_failure()
        hold(f"file://{tmp_path}/run", 2, "laptop")

        def noticed() -> bool:
            try:
                session.raise_failure()
            except TakenOver as error:
                return "laptop" in str(error)
            return False

        _wait_for(noticed)
    assert b'"epoch": 1' in beat.read_bytes()


def test_an_epoch_that_cannot_be_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    for content in ("{half", '{"epoch": 1}', "[]"):
        (tmp_path / "run" / EPOCH).write_text(content)
        with pytest.raises(StorageError, match=r"run/epoch\.json: "):
            opened(f"file://{tmp_path}/run/checkpoints")


def _wait_for(seen: object) -> None:
    assert callable(seen)
    until = time.monotonic() + 20
    while not seen():
        assert time.monotonic() < until
        time.sleep(0.01)
