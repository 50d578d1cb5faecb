"""Which checkpoint a resume uses, what it refuses with which message, and what it reports."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from checkpoint_crash import CONFIG, write
from checkpoint_toy import ToyEngine, as_world, config_of, data_of, folder_of, manifest_of, resume, save
from checkpoint_wrapped import WrappedStore
from support.s3 import S3Server

from trainer.checkpoint import reader
from trainer.checkpoint.regions import open_contents
from trainer.checkpoint.session import Checkpoints
from trainer.checkpoint.store import Store, open_store
from trainer.config import Config
from trainer.environment import Run, World
from trainer.errors import ConfigError, DataError, StorageError, TrainerError
from trainer.shape.box import Box, TensorRegion
from trainer.shape.mesh import Mesh
from trainer.tcp_team import SingleProcessTeam
from trainer.team import Team

ALONE = SingleProcessTeam(World())


@pytest.fixture
def place(tmp_path: Path) -> str:
    return f"file://{tmp_path}/run/checkpoints"


def refused(place: str, config: Config, kind: type[TrainerError] = ConfigError) -> str:
    with pytest.raises(kind) as caught:
        resume(place, config, Mesh(), 1)
    return str(caught.value)


@pytest.mark.promise("P32")
@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("model.dim=64", "model.dim=64, but the checkpoint was made with model.dim=32: "),
        ("model.layers=3", "model.layers=3, but the checkpoint was made with model.layers=2: "),
        ("model.heads=2", "model.heads=2, but the checkpoint was made with model.heads=4: "),
        ("model.vocab=32", "model.vocab=32, but the checkpoint was made with model.vocab=64: "),
        ("model.tied=false", "model.tied=false, but the checkpoint was made with model.tied=true: "),
        ("optim.kind=adafactor", "optim.kind=adafactor, but the checkpoint was made with optim.kind=adamw, "),
    ],
)
def test_another_model_or_optimizer_is_refused(place: str, word: str, text: str) -> None:
    save(place, CONFIG, Mesh(), 1, 1)
    assert refused(place, config_of(word)).startswith(text)


def test_the_same_shape_written_differently_and_other_settings_are_the_same_model(place: str) -> None:
    save(place, CONFIG, Mesh(), 1, 1)
    words = ("model.head=8", "model.rope_theta=500", "optim.lr=1", "remat=true", "mesh.fsdp=2")
    done, (engine,), lines = resume(place, config_of(*words), Mesh(), 1)
    engine.check(1)
    assert done == 1
    assert lines[0] == "note: model.rope_theta=500, but the checkpoint was made with 10000"
    assert len(lines) == 2


def test_another_arithmetic_than_the_saved_runs_is_noted_in_one_line(place: str, tmp_path: Path) -> None:
    exact, fast = config_of("dtype=fp32"), config_of("dtype=bf16", "float8=rowwise", "residual=bf16")
    save(place, exact, Mesh(), 1, 1)
    assert len(resume(place, exact, Mesh(), 1)[2]) == 1, "nothing is noted where nothing differs"
    done, (engine,), lines = resume(place, fast, Mesh(), 1)
    engine.check(1)
    assert done == 1 and len(lines) == 2
    assert lines[0] == (
        "note: dtype=bf16 float8=rowwise residual=bf16, but the checkpoint was made with dtype=fp32 float8=none "
        "residual=fp32; steps from here on round differently"
    )
    save(place, fast, Mesh(), 1, 2, attempt=2)
    _, _, lines = resume(place, config_of("dtype=bf16", "residual=bf16"), Mesh(), 1)
    assert lines[0].startswith("note: float8=none, but the checkpoint was made with float8=rowwise;")
    _, _, lines = resume(f"file://{tmp_path}/other", exact, Mesh(), 1, f"{place}/{folder_of(1)}")
    assert len(lines) == 1, "another run that begins with the weights does not resume"


def test_a_checkpoint_from_before_float8_and_residual_had_neither(place: str) -> None:
    save(place, config_of("dtype=bf16"), Mesh(), 1, 1)
    path = Path(place.removeprefix("file://"), manifest_of(1))
    content = json.loads(path.read_text())
    del content["config"]["float8"], content["config"]["residual"]
    path.write_text(json.dumps(content))
    assert len(resume(place, config_of("dtype=bf16"), Mesh(), 1)[2]) == 1
    assert "residual=fp32;" in resume(place, config_of("dtype=bf16", "residual=bf16"), Mesh(), 1)[2][0]


def test_averaged_weights_begin_as_the_weights_and_may_be_dropped(place: str) -> None:
    save(place, CONFIG, Mesh(), 1, 1)
    averaging = config_of("optim.ema=0.9")
    _, engines, lines = resume(place, averaging, Mesh(fsdp=2), 2)
    for engine in engines:
        assert any(piece.name.startswith("average/") for piece in engine.state)
        engine.check(1, expected=lambda name: name.replace("average/", "model/"))
    assert lines[0] == "note: the averaged weights begin as the checkpoint's weights: it has none"
    save(place, averaging, Mesh(), 1, 2, attempt=2)
    _, (engine,), lines = resume(place, CONFIG, Mesh(), 1)
    engine.check(2)
    assert lines[0] == "note: the checkpoint's averaged weights are dropped: optim.ema=0"


def test_a_missing_tensor_is_named(place: str) -> None:
    save(place, CONFIG, Mesh(), 1, 1)
    path = Path(place.removeprefix("file://"), manifest_of(1))
    content = json.loads(path.read_text())
    content["config"]["optim.kind"] = "adafactor"
    path.write_text(json.dumps(content))
    message = refused(place, config_of("optim.kind=adafactor"), StorageError)
    assert "the checkpoint has no tensor optimizer/" in message


def test_a_checkpoint_of_an_earlier_trainer_resumes_whose_remat_was_a_flag(place: str) -> None:
    save(place, CONFIG, Mesh(), 1, 1)
    path = Path(place.removeprefix("file://"), manifest_of(1))
    content = json.loads(path.read_text())
    content["config"] = {**content["config"], "remat": True}
    del content["config"]["checkpoint.minutes"]
    path.write_text(json.dumps(content))
    done, (engine,), lines = resume(place, CONFIG, Mesh(), 1)
    engine.check(1)
    assert done == 1 and len(lines) == 1


def test_another_format_is_refused_on_every_rank_and_no_run_starts(place: str) -> None:
    save(place, CONFIG, Mesh(), 1, 1)
    path = Path(place.removeprefix("file://"), manifest_of(1))
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 1}))

    def rank(team: Team) -> str:
        session = Checkpoints.open(CONFIG, Run(run_id="run", attempt=2, checkpoint_uri=place), team, lambda _: None)
        with pytest.raises(StorageError) as caught:
            session.resume(ToyEngine(CONFIG, Mesh(data=2), team.world.rank, 2), data_of(0))
        return str(caught.value)

    first, second = as_world(2, rank)
    assert first == second
    assert first.startswith("checkpoint 1 is of format 1, which only the trainer of orch 0.1.0 reads")


def test_bucket_that_only_rank_0_cannot_read_stops_all_immediately(
    tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)

    def rank(team: Team) -> str:
        place = "s3://never-made/run" if team.world.is_first else str(tmp_path / "whole")
        with pytest.raises(StorageError) as caught:
            Checkpoints.open(CONFIG, Run(run_id="run", attempt=2, checkpoint_uri=place), team, lambda _: None)
        return str(caught.value)

    first, second = as_world(2, rank)
    assert first == second
    assert "s3://never-made/run" in first


@pytest.mark.promise("P32")
def test_other_data_is_refused_or_reported(place: str) -> None:
    save(place, CONFIG, Mesh(), 1, 1)

    def with_other_batch(config: Config) -> list[str]:
        lines: list[str] = []
        data = data_of(0)
        session = Checkpoints.open(config, Run(run_id="run", attempt=2, checkpoint_uri=place), ALONE, lines.append)
        object.__setattr__(data, "vocab", 128)
        session.resume(ToyEngine(config, Mesh()), data)
        return lines

    with pytest.raises(DataError, match="corpus vocabulary 64 -> 128"):
        with_other_batch(CONFIG)
    lines = with_other_batch(config_of("data.allow_change=true"))
    assert lines[0] == "note: corpus vocabulary 64 -> 128; the order of the data is another from here on"


@pytest.mark.parametrize(
    ("before", "now", "named"),
    [
        ("data.loss=marked", "data.loss=all", "give data.loss=marked, or accept"),
        (
            "eval.every=0",
            "eval.share=0.1 eval.every=5",
            "give eval.every=0, or evaluate on other data with eval.source, or accept",
        ),
        ("eval.every=5", "eval.every=0", "give eval.every=5, or accept"),
        ("eval.every=5 eval.share=0.1", "eval.every=9 eval.share=0.2", "give eval.share=0.1, or accept"),
        ("eval.every=5", "eval.every=5 eval.source=x", "give eval.source=, or accept"),
        ("data=hf://a data.column=text", "data=hf://a data.column=body", "give data.column=text, or accept"),
        ("data.source=/a", "data.source=/b", "give data.source=/a, or accept"),
        ("eval.every=5", "eval.every=9 data.column=other", "cannot continue: restore it, or accept"),
    ],
)
def test_other_data_because_of_a_setting_is_refused_with_its_name(
    place: str, before: str, now: str, named: str
) -> None:
    save(place, config_of(*before.split()), Mesh(), 1, 1)
    session = Checkpoints.open(
        config_of(*now.split()), Run(run_id="run", attempt=2, checkpoint_uri=place), ALONE, lambda _: None
    )
    data = replace(data_of(0), fingerprint="other")
    with pytest.raises(DataError, match="corpus fingerprint f -> other") as caught:
        session.resume(ToyEngine(CONFIG, Mesh()), data)
    assert named in str(caught.value)
    changed = [word for word in now.split() if word not in before.split()]
    assert "restore it" in named or changed[-1] in str(caught.value)


def test_never_and_required(place: str) -> None:
    assert "no intact checkpoint" in refused(place, config_of("resume=required"), StorageError)
    save(place, CONFIG, Mesh(), 1, 1)
    assert "already holds checkpoints" in refused(place, config_of("resume=never"))
    assert resume(place, config_of("resume=required"), Mesh(), 1)[0] == 1


def test_resuming_from_a_named_step_and_from_another_run(place: str, tmp_path: Path) -> None:
    save(place, CONFIG, Mesh(), 1, 1, 2, 3)
    assert resume(place, CONFIG, Mesh(), 1, f"{place}/{folder_of(3)}")[0] == 3
    with pytest.raises(ConfigError, match="this run has later checkpoints; leave it out to resume"):
        resume(place, CONFIG, Mesh(), 1, f"{place}/{folder_of(2)}")
    other = f"file://{tmp_path}/other/checkpoints"
    done, (engine,), lines = resume(other, CONFIG, Mesh(), 1, f"{place}/{folder_of(2)}")
    engine.check(2)
    assert done == 2
    assert f"in {place}" in lines[-1]
    with pytest.raises(ConfigError, match="no intact checkpoint there or before it"):
        resume(other, CONFIG, Mesh(), 1, f"{place}/{folder_of(0)}")
    with pytest.raises(ConfigError, match="does not end with a folder like step-00001200"):
        resume(other, CONFIG, Mesh(), 1, place)


def test_new_run_begins_at_the_named_checkpoint_and_resumes_from_its_own(place: str, tmp_path: Path) -> None:
    save(place, CONFIG, Mesh(), 1, 2)
    other = f"file://{tmp_path}/other"
    tuned = config_of(f"checkpoint.start={place}/{folder_of(2)}")
    for resume_from in ("", "latest"):  # the latter in each later attempt, also when the first one saved nothing
        done, (engine,), lines = resume(other, tuned, Mesh(), 1, resume_from)
        engine.check(2)
        assert done == 2 and f"in {place}" in lines[-1]
    with pytest.raises(ConfigError, match="no intact checkpoint there or before it"):
        resume(other, tuned, Mesh(), 1, f"{place}/{folder_of(1)}")  # what the launcher names wins
    save(other, CONFIG, Mesh(), 1, 3)
    assert resume(other, tuned, Mesh(), 1)[0] == 3
    with pytest.raises(ConfigError, match="leave one of them out"):
        resume(f"{other}2", config_of(f"checkpoint.start={place}/{folder_of(2)}", "resume=never"), Mesh(), 1)


def test_fewer_steps_than_another_runs_checkpoint_has_are_refused(place: str, tmp_path: Path) -> None:
    save(place, CONFIG, Mesh(), 1, 3)
    source, other = f"{place}/{folder_of(3)}", f"file://{tmp_path}/other"
    for own in (other, ""):
        with pytest.raises(ConfigError, match="steps=2, but the checkpoint is at step 3: give more steps"):
            resume(own, config_of("steps=2"), Mesh(), 1, source)
    assert resume(other, config_of("steps=4"), Mesh(), 1, source)[0] == 3
    assert resume(place, config_of("steps=2"), Mesh(), 1)[0] == 3, "a run that is done is done"


def test_never_and_a_named_step_do_not_go_together(place: str) -> None:
    never = config_of("resume=never")
    with pytest.raises(ConfigError, match=r"resume=never, but ORCH_RESUME_FROM or checkpoint\.start is "):
        resume(place, never, Mesh(), 1, f"{place}/{folder_of(1)}")
    assert resume(place, never, Mesh(), 1, "latest")[0] == 0


def test_save_in_progress_is_finished_and_its_failure_is_a_note(place: str) -> None:
    lines: list[str] = []
    run = Run(run_id="run", attempt=1, checkpoint_uri=place)
    session = Checkpoints.open(config_of("checkpoint.every=1"), run, ALONE, lines.append)
    session.save(ToyEngine(CONFIG, Mesh(), steps=1), data_of(1), wait=False)
    session.finish_save()
    folder = Path(place.removeprefix("file://"))
    assert (folder / manifest_of(1)).exists()
    (folder / folder_of(2)).write_text("in the way")
    session.save(ToyEngine(CONFIG, Mesh(), steps=2), data_of(2), wait=False)
    session.finish_save()
    assert lines[-1].startswith("note: checkpoint 2 was not written")


def test_after_a_resume_from_elsewhere_the_same_step_is_saved_here(place: str, tmp_path: Path) -> None:
    save(place, CONFIG, Mesh(), 1, 2)
    own = open_store(f"file://{tmp_path}/own", create=True)
    session = Checkpoints.open(
        CONFIG,
        Run(run_id="run", attempt=1, checkpoint_uri=own.uri, resume_from=f"{place}/{folder_of(2)}"),
        ALONE,
        lambda _: None,
    )
    engine = ToyEngine(CONFIG, Mesh(), steps=2)
    assert session.resume(engine, data_of(0)) == 2
    session.save(engine, data_of(2), wait=True)
    assert own.list_folders() == [folder_of(2)]


def test_step_is_saved_once_and_the_stall_is_reported_once(place: str) -> None:
    session = Checkpoints.open(
        config_of("checkpoint.every=4"), Run(run_id="run", attempt=1, checkpoint_uri=place), ALONE, lambda _: None
    )
    assert [step for step in range(1, 10) if session.is_due(step)] == [4, 8]
    engine = ToyEngine(CONFIG, Mesh(), steps=4)
    assert session.save(engine, data_of(4), wait=False)
    assert session.save(engine, data_of(4), wait=True)
    assert session.take_stall() > 0
    assert session.take_stall() == 0
    manifest = Path(place.removeprefix("file://"), manifest_of(4))
    before = manifest.stat().st_mtime_ns
    again = Checkpoints.open(CONFIG, Run(run_id="run", attempt=2, checkpoint_uri=place), ALONE, lambda _: None)
    again.resume(engine, data_of(0))
    again.save(engine, data_of(4), wait=True)
    assert manifest.stat().st_mtime_ns == before


def test_without_a_place_nothing_is_saved() -> None:
    session = Checkpoints.open(config_of("checkpoint.every=1"), Run(), ALONE, lambda _: None)
    assert not session.is_due(1)
    assert not session.save(ToyEngine(CONFIG, Mesh(), steps=1), data_of(1), wait=True)
    assert session.resume(ToyEngine(CONFIG, Mesh()), data_of(0)) == 0


class _Counting(WrappedStore):
    """A store that also notes how many bytes of parts are read."""

    def __init__(self, inner: Store, note: Callable[[int], None]) -> None:
        super().__init__(inner)
        self._note = note

    def read_into(self, path: str, offset: int, target: memoryview) -> None:
        self._note(len(target))
        super().read_into(path, offset, target)


def test_only_the_rows_that_are_needed_are_read(tmp_path: Path) -> None:
    inner = open_store(str(tmp_path / "c"), create=True)
    write(inner, 1)
    counts: list[int] = []
    store = _Counting(inner, counts.append)
    found = reader.find_newest_checkpoint(store, ALONE, lambda _: None)
    assert found is not None
    contents = open_contents(store, found.manifest)
    counts.clear()
    rows = TensorRegion("model/embedding.weight", (64, 32), Box((10, 0), (5, 32)))
    block = TensorRegion("model/blocks.0.ffn.up.weight", (48, 32), Box((3, 30), (2, 2)))
    assert len(list(contents.read_pieces({piece.name: [piece] for piece in (rows, block)}))) == 2
    assert sorted(counts) == [2 * 32 * 4, 5 * 32 * 4]
