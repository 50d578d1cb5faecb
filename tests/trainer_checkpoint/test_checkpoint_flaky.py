"""Saves and resumes through a network that fails: outages, lost and cut answers, errors after the effect."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from checkpoint_crash import CONFIG
from checkpoint_toy import ToyEngine, as_world, config_of, data_of, folder_of, manifest_of
from support.flaky_proxy import BEFORE, Fault, FlakyProxy, flaky_proxy
from support.s3 import ENVIRONMENT

from orch_fronts.aws.s3 import s3_server
from orch_fronts.buckets import BucketServer
from orch_fronts.google.gcs import gcs_server
from trainer.checkpoint import bucket_client
from trainer.checkpoint.manifest import LATEST, Latest, StepFolder
from trainer.checkpoint.pointer import advance_latest, prune_checkpoints, read_latest
from trainer.checkpoint.session import Checkpoints
from trainer.checkpoint.store import Store, open_store
from trainer.config import Config
from trainer.environment import Run, World
from trainer.errors import StorageError
from trainer.shape.mesh import Mesh
from trainer.tcp_team import SingleProcessTeam
from trainer.team import Team

ALONE = SingleProcessTeam(World())
QUICK = ("checkpoint.every=5", "checkpoint.retry_minutes=0.1")  # 6 s


@dataclass(frozen=True)
class Place:
    """A bucket behind a flaky network."""

    uri: str
    server: BucketServer
    network: FlakyProxy


@pytest.fixture(params=["s3", "gs"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with (
        gcs_server(create=True) if request.param == "gs" else s3_server(create=True) as server,
        flaky_proxy(server.url) as network,
    ):
        variable = "STORAGE_EMULATOR_HOST" if request.param == "gs" else "AWS_ENDPOINT_URL"
        for name, value in {**ENVIRONMENT, variable: network.url}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(bucket_client, "_PAUSE_SECONDS", 0.05)
        monkeypatch.setattr(bucket_client, "_LONGEST_PAUSE_SECONDS", 0.2)
        yield Place(f"{request.param}://b/run/checkpoints", server, network)


OPERATIONS: dict[str, Callable[[Store], object]] = {
    "find": lambda store: store.find("there"),
    "find-absent": lambda store: store.find("absent"),
    "put": lambda store: store.put("new", b"1"),
    "put-large": lambda store: store.put("large", b"1" * (17 << 20)),
    "create": lambda store: store.create("new", b"1"),
    "list_objects": lambda store: store.list_objects(""),
    "list_folders": lambda store: store.list_folders(),
    "read_ranges": lambda store: store.read_ranges("there", [0], [2]),
    "read_into": lambda store: store.read_into("there", 0, memoryview(bytearray(2))),
    "delete": lambda store: store.delete(["there"]),
}


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_operation_survives_more_faults_than_obstore_retries(place: Place, operation: str, fault: Fault) -> None:
    calm = open_store(place.uri, retry_seconds=30)
    calm.put("there", b"12")
    expected = OPERATIONS[operation](calm)
    if operation == "create":
        calm.delete(["new"])
    if operation == "delete":
        calm.put("there", b"12")
    left = iter(range(4))
    place.network.fail(fault, only=lambda method, path: next(left, None) is not None)
    assert OPERATIONS[operation](calm) == expected
    assert place.network.failed == 4 or fault in (Fault.SLOW, Fault.CUT), "a cut answer without a body is complete"


def opened(place: Place, *words: str, lines: list[str] | None = None, team: Team = ALONE) -> Checkpoints:
    report = (lambda _: None) if lines is None else lines.append
    return Checkpoints.open(config_of(*words), Run(run_id="run", checkpoint_uri=place.uri), team, report)


def train(
    session: Checkpoints,
    first: int,
    last: int,
    *,
    seconds: float = 0.02,
    process: int = 0,
    size: int = 1,
    is_end: bool = True,
) -> None:
    """Do what the loop does, without computing; the save at the end of a training is waited for."""
    for step in range(first, last + 1):
        time.sleep(seconds)
        session.raise_failure()
        ends = is_end and step == last
        if ends or session.is_due(step):
            engine = ToyEngine(CONFIG, Mesh(fsdp=size), process, size, step)
            session.save(engine, data_of(step), wait=ends)


def steps_in(place: Place) -> list[int]:
    keys = place.server.buckets["b"]
    return sorted({int(key.split("step-")[1][:8]) for key in keys if key.endswith("manifest.json")})


@pytest.mark.parametrize("fault", [Fault.BUSY, Fault.LOST, Fault.CUT, Fault.BROKEN_AFTER])
def test_training_continues_through_an_outage_and_the_save_is_completed(place: Place, fault: Fault) -> None:
    lines: list[str] = []
    session = opened(place, *QUICK, lines=lines)
    train(session, 1, 6)
    place.network.fail(fault, seconds=2)
    train(session, 7, 39, is_end=False)
    assert session.stall < 1, "training did not wait for the bucket, which fails for 2 s"
    train(session, 40, 40)
    assert place.network.failed > 8
    assert session.failed_saves == 0
    assert steps_in(place)[-1] == 40
    assert any("is put off: the bucket fails" in line for line in lines)
    assert read_latest(open_store(place.uri)) == Latest(40, manifest_of(40), 1)


def test_a_failed_save_is_noted_and_the_next_one_comes_sooner(place: Place) -> None:
    lines: list[str] = []
    session = opened(place, "checkpoint.every=50", "checkpoint.retry_minutes=0.01", lines=lines)
    place.network.fail(Fault.BUSY, seconds=2.0)
    train(session, 49, 99, seconds=0.1)
    assert session.failed_saves >= 1
    noted = [line for line in lines if "training continues, and saves again soon" in line]
    assert len(noted) == session.failed_saves and "checkpoint 50 was not written" in noted[0]
    assert [step for step in steps_in(place) if 50 < step < 99], "not only at the next multiple of 50"


def test_all_ranks_try_again_at_the_same_step(place: Place) -> None:
    lines: list[str] = []

    def rank(team: Team) -> int:
        session = opened(place, "checkpoint.every=10", "checkpoint.retry_minutes=0.01", team=team, lines=lines)
        team.gather(None)
        if team.world.is_first:
            place.network.fail(Fault.BUSY, Fault.LOST, seconds=1.5)
        train(session, 9, 60, seconds=0.05, process=team.world.rank, size=2)
        team.gather(None)
        return session.failed_saves

    failed = as_world(2, rank)
    assert failed[0] >= 1 and len({*failed}) == 1
    assert steps_in(place)[-1] == 60


def test_the_run_ends_after_too_many_failed_saves_in_a_row(place: Place) -> None:
    session = opened(place, "checkpoint.every=10", "checkpoint.retry_minutes=0.002", "checkpoint.failures=3")
    place.network.fail(Fault.BUSY)
    with pytest.raises(StorageError, match=r"failed saves in a row: 3"):
        train(session, 1, 10_000, seconds=0.01)
    assert session.failed_saves == 3


def test_the_run_ends_after_too_long_without_a_save(place: Place) -> None:
    words = ("checkpoint.every=10", "checkpoint.retry_minutes=0.002", "checkpoint.unsaved_minutes=0.02")
    session = opened(place, *words, "checkpoint.failures=1000")
    place.network.fail(Fault.BUSY)
    begun = time.monotonic()
    with pytest.raises(StorageError, match=r"failed saves in a row: \d+"):
        train(session, 1, 10_000, seconds=0.01)
    assert 1.2 <= time.monotonic() - begun < 8


def test_the_last_save_is_repeated_to_its_limit(place: Place) -> None:
    session = opened(place, *QUICK)
    place.network.fail(Fault.LOST, Fault.BUSY, Fault.BROKEN_AFTER, seconds=3)
    train(session, 11, 11)
    assert steps_in(place) == [11]
    place.network.fail(Fault.LOST)
    session = opened_quickly(place)
    with pytest.raises(StorageError, match="was not written"):
        train(session, 12, 12)


def opened_quickly(place: Place) -> Checkpoints:
    place.network.recover()
    session = opened(place, "checkpoint.every=5", "checkpoint.retry_minutes=0.005")
    place.network.fail(Fault.LOST)
    return session


def test_a_cut_listing_or_a_failed_delete_while_pruning_fails_no_save(place: Place) -> None:
    lines: list[str] = []
    session = opened(place, "checkpoint.every=1", "checkpoint.keep=1", "checkpoint.retry_minutes=0.01", lines=lines)
    train(session, 1, 2)
    listing = threading.Event()

    def of_pruning(method: str, path: str) -> bool:
        listed = method == "GET" and "list-type" in path
        if listed:
            listing.set()
        return listed or method == "DELETE" or "delete" in path.partition("?")[2]

    place.network.fail(Fault.CUT, Fault.BUSY, only=of_pruning)
    train(session, 3, 3)
    assert listing.is_set()
    assert session.failed_saves == 0
    assert [line for line in lines if line.startswith("note: checkpoint 3 is written, but")]
    place.network.recover()
    train(session, 4, 4)
    assert steps_in(place) == [4], "the next save prunes what the last one could not"


@pytest.mark.parametrize("seed", range(4))
def test_with_a_third_of_all_requests_failing_every_save_is_right(place: Place, seed: int) -> None:
    session = opened(place, *QUICK)
    place.network.fail(*Fault, share=0.33, seed=seed)
    train(session, 1, 12)
    place.network.fail(*Fault, share=0.33, seed=seed + 100)
    engine = ToyEngine(CONFIG, Mesh())
    again = Checkpoints.open(
        config_of(*QUICK), Run(run_id="run", attempt=2, checkpoint_uri=place.uri), ALONE, lambda _: None
    )
    assert again.resume(engine, data_of(0)) == 12
    engine.check(12)
    assert place.network.failed > 5
    assert {*place.network.seen} & BEFORE


@pytest.mark.parametrize("lost", ["manifest", "part"])
def test_a_latest_that_names_a_lost_checkpoint_is_repaired_and_pruning_resumes(place: Place, lost: str) -> None:
    session = opened(place, "checkpoint.every=10", "checkpoint.keep=2")
    train(session, 10, 100, seconds=0)
    objects = place.server.buckets["b"]
    for key in [key for key in objects if folder_of(100) in key and (lost == "part") == ("part-" in key)]:
        del objects[key]
    lines: list[str] = []
    config = config_of("checkpoint.every=1", "checkpoint.keep=2")
    engine, again = ToyEngine(CONFIG, Mesh()), started_again(place, config, lines)
    done = again.resume(engine, data_of(0))
    assert done < 100 and done == max(step for step in steps_in(place) if step < 100)
    assert read_latest(open_store(place.uri)) == Latest(done, manifest_of(done), 2)
    assert [line for line in lines if "it is repaired" in line]
    train(again, done + 1, done + 4)
    complete = [step for step in steps_in(place) if step < 100]
    assert complete == [done + 3, done + 4]


def test_a_latest_that_names_nothing_at_all_is_repaired_too(place: Place) -> None:
    open_store(place.uri).put(LATEST, Latest(500, manifest_of(500), 1).to_json())
    lines: list[str] = []
    session = started_again(place, config_of("checkpoint.every=1", "checkpoint.keep=1"), lines)
    assert session.resume(ToyEngine(CONFIG, Mesh()), data_of(0)) == 0
    train(session, 1, 3)
    assert steps_in(place) == [3]


def started_again(place: Place, config: Config, lines: list[str]) -> Checkpoints:
    run = Run(run_id="run", attempt=2, checkpoint_uri=place.uri)
    return Checkpoints.open(config, run, ALONE, lines.append)


def test_an_answer_lost_at_the_manifest_is_no_second_checkpoint(place: Place) -> None:
    session = opened(place, "checkpoint.every=5", "checkpoint.retry_minutes=0.005")
    sent = threading.Event()

    def from_the_manifest_on(method: str, path: str) -> bool:
        if method == "PUT" and "manifest" in path:
            sent.set()
        return "manifest" in path and sent.is_set()

    place.network.fail(Fault.LOST_AFTER, only=from_the_manifest_on)
    session.save(ToyEngine(CONFIG, Mesh(), steps=5), data_of(5), wait=False)
    deadline = time.monotonic() + 20
    assert session.schedule is not None
    while session.schedule.writer.inspect()[0] != "failed":
        assert time.monotonic() < deadline
        time.sleep(0.02)
    place.network.recover()
    session.save(ToyEngine(CONFIG, Mesh(), steps=5), data_of(5), wait=True)
    assert read_latest(open_store(place.uri)) == Latest(5, manifest_of(5), 1)
    assert advance_latest(open_store(place.uri), StepFolder(6, 1, 1))
    assert prune_checkpoints(open_store(place.uri), 1, epoch=1) == []
