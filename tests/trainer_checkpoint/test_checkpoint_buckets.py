"""Complete checkpoints in gs:// and s3://, over sockets: killed while saving, resumed, pruned, damaged."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from checkpoint_crash import CONFIG, server, write, write_until_killed
from checkpoint_toy import ToyEngine, folder_of, manifest_of, resume, save
from support.s3 import ENVIRONMENT

from orch_fronts.aws.s3 import s3_server
from orch_fronts.buckets import BucketServer
from orch_fronts.google.gcs import gcs_server
from trainer.checkpoint import reader
from trainer.checkpoint.layout import part_name
from trainer.checkpoint.manifest import Manifest, StepFolder
from trainer.checkpoint.regions import open_contents
from trainer.checkpoint.store import Store, open_store
from trainer.environment import World
from trainer.shape.mesh import Mesh
from trainer.tcp_team import SingleProcessTeam


@dataclass(frozen=True)
class Place:
    """A folder of a strict simulated bucket and the environment that leads to it."""

    uri: str
    server: BucketServer
    environ: dict[str, str]

    def key(self, path: str) -> str:
        return f"run/checkpoints/{path}"

    def content(self, path: str) -> bytes:
        return self.server.buckets["b"][self.key(path)].data

    def harm(self, path: str) -> None:
        """Change one bit."""
        data = bytearray(self.content(path))
        data[len(data) // 2] ^= 4
        self.server.corrupt("b", self.key(path), bytes(data))


@pytest.fixture(params=["gs", "s3"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with gcs_server(create=True) if request.param == "gs" else s3_server(create=True) as bucket:
        variable = "STORAGE_EMULATOR_HOST" if request.param == "gs" else "AWS_ENDPOINT_URL"
        environ = {**ENVIRONMENT, variable: bucket.url}
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        yield Place(f"{request.param}://b/run/checkpoints", bucket, environ)


def taken(store: Store, reasons: list[str]) -> int | None:
    """The step that a resume takes; its tensors must be those of that step."""
    found = reader.find_newest_checkpoint(store, SingleProcessTeam(World()), reasons.append, room=1 << 30)
    if found is None:
        return None
    engine, contents = ToyEngine(CONFIG, Mesh()), open_contents(store, found.manifest, found.kept)
    engine.load(contents.read_pieces({piece.name: [piece] for piece in engine.needed()}))
    engine.check(found.manifest.step)
    return found.manifest.step


def test_killed_while_saving_then_resumed_pruned_and_damaged(place: Place) -> None:
    store = open_store(place.uri)
    outcomes = set[int | None]()
    for step, moment in ((3, 1), (6, 4), (9, 6), (12, 9)):  # looking for the manifest; part; manifest; pointer
        for earlier in (step - 2, step - 1):
            write(store, earlier, attempt=step)
        arguments = (place.uri, step, moment, step, place.environ)
        process = server().Process(target=write_until_killed, args=arguments)
        process.start()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
        outcome = taken(store, [])
        assert outcome in (step - 1, step)
        outcomes.add(step - outcome)
    assert outcomes == {0, 1}
    write(store, 14, attempt=14)
    write(store, 15, attempt=14)
    assert sorted(store.list_folders()) == [folder_of(step, 14, 14) for step in (14, 15)], (
        "leftovers of killed writers are removed"
    )
    place.harm(f"{folder_of(15, 14, 14)}/{part_name(0, 0)}")
    reasons: list[str] = []
    assert taken(store, reasons) == 14
    assert reasons == [f"skipped checkpoint 15: {part_name(0, 0)} does not have its checksum"]


def test_processes_of_the_same_mesh_read_each_byte_once(place: Place) -> None:
    save(place.uri, CONFIG, Mesh(fsdp=2), 2, 1, 2, 3)
    place.harm(f"{folder_of(3)}/{part_name(1, 0)}")
    manifest = Manifest.from_json(place.content(manifest_of(2)), StepFolder(2, 1, 1))
    place.server.seen.clear()
    done, engines, lines = resume(place.uri, CONFIG, Mesh(fsdp=2), 2)
    assert done == 2
    for engine in engines:
        engine.check(2)
    assert lines[0] == f"skipped checkpoint 3: {part_name(1, 0)} does not have its checksum"
    parts = {place.key(f"{folder_of(2)}/{part.name}") for part in manifest.parts}
    ranges = [seen.headers["range"] for seen in place.server.seen if seen.method == "GET" and seen.key in parts]
    requested = sum(int(last) - int(first) + 1 for text in ranges for first, last in re.findall(r"(\d+)-(\d+)", text))
    assert requested == manifest.size


def test_another_mesh_reads_what_is_in_the_bucket(place: Place) -> None:
    save(place.uri, CONFIG, Mesh(fsdp=2), 2, 1)
    done, engines, _ = resume(place.uri, CONFIG, Mesh(data=2), 2)
    assert done == 1
    for engine in engines:
        engine.check(1)
