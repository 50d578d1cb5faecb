"""Notes of a plan about buckets in other regions, from what was learned before; without a network."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from orch_fronts.google.gcs import gcs_server
from orchestrator.catalog.buckets import BucketPlace
from orchestrator.engine.preparation.bucket_locations import (
    FILE,
    SIZE_AGE,
    KnownBuckets,
    bucket_of,
    learn_bucket_locations,
    list_services,
    load_known_buckets,
    region_variable,
    save_bucket_location,
)
from orchestrator.engine.preparation.bucket_notes import bucket_notes
from orchestrator.errors import CloudError
from orchestrator.storage.bucket import Bucket
from orchestrator.task.model import Task
from orchestrator.task.parse import parse_task

NOW = 1_800_000_000.0
TASK = """\
resources: {infra: gcp/us-west4, accelerators: v5litepod-16}
file_mounts:
  ~/data: {source: gs://data/books, mode: %s}
checkpoint: {bucket: gs://runs}
run: x
"""


def task(mode: str = "COPY", infra: str = "gcp/us-west4") -> Task:
    text = (TASK % mode).replace("gcp/us-west4", infra)
    return parse_task(text, file="t.yaml", env={}).only


def test_programs_get_the_known_region_of_a_bucket_in_s3(tmp_path: Path) -> None:
    for uri, location in (("s3://runs/a", "us-west-2"), ("gs://runs", "US-WEST4")):
        save_bucket_location(uri, BucketPlace(location), tmp_path)
    (pair,) = region_variable("s3://runs/b", tmp_path)
    assert (pair[0], pair[1].preview()) == ("ORCH_BUCKET_REGION", "us-west-2")
    assert region_variable("s3://other", tmp_path) == region_variable("gs://runs", tmp_path) == ()


def test_an_unknown_bucket_region_is_not_guessed() -> None:
    notes = bucket_notes(task(), KnownBuckets())
    assert [note.partition(":")[0] for note in notes] == ["gs", "gs"]
    assert "gs://data: region unknown until the first launch (no egress estimate)" in notes


def test_a_bucket_in_the_same_region_needs_no_note() -> None:
    places = {"gs://data": BucketPlace("US-WEST4"), "gs://runs": BucketPlace("us-west4")}
    assert bucket_notes(task(), KnownBuckets(places)) == []


def test_each_bucket_of_a_mixture_is_noted() -> None:
    text = """\
resources: {infra: gcp/us-west4, accelerators: v5litepod-16}
checkpoint: {bucket: gs://runs}
train: {args: {data: "gs://one/a,gs://two/b", data.weights: "0.7,0.3"}}
"""
    places = {
        f"gs://{name}": BucketPlace(place)
        for name, place in (("one", "US-EAST1"), ("two", "US-EAST1"), ("runs", "US-WEST4"))
    }
    notes = bucket_notes(parse_task(text, file="t.yaml", env={}).only, KnownBuckets(places))
    assert [note.split()[0] for note in notes] == ["gs://one", "gs://two"]


def test_another_region_is_noted_with_size_and_price() -> None:
    places = {"gs://data": BucketPlace("US-EAST1"), "gs://runs": BucketPlace("US-WEST4")}
    (note,) = bucket_notes(task(), KnownBuckets(places, {"gs://data/books": 5 << 30}))
    assert note.startswith("gs://data is in US-EAST1, not in us-west4 ($0.02 per GiB, price of 2024-01-31): ")
    assert "~/data (5.0 GiB) is copied by each of 4 hosts, about $0.40" in note
    assert note.endswith("a bucket in us-west4 is read for free")


def test_a_mount_is_read_on_demand_so_no_total_cost_is_claimed() -> None:
    places = {"gs://data": BucketPlace("US-EAST1"), "gs://runs": BucketPlace("US-WEST4")}
    (note,) = bucket_notes(task("MOUNT"), KnownBuckets(places, {"gs://data/books": 5 << 30}))
    assert "~/data (5.0 GiB) is read where it is" in note
    assert "about" not in note


def test_a_multi_region_in_reach_is_charged_nevertheless() -> None:
    places = {"gs://data": BucketPlace("US-WEST4"), "gs://runs": BucketPlace("US")}
    (note,) = bucket_notes(task(), KnownBuckets(places))
    assert "gs://runs is in US, a multi-region, where reading is always charged ($0.02 per GiB" in note
    assert "checkpoints are read at each resume" in note


def test_an_unknown_price_is_not_zero() -> None:
    places = {"gs://data": BucketPlace("EUROPE-WEST4"), "gs://runs": BucketPlace("US-WEST4")}
    (note,) = bucket_notes(task(), KnownBuckets(places, {"gs://data/books": 5 << 30}))
    assert "(price not known)" in note
    assert "$" not in note


def test_every_possible_region_is_compared() -> None:
    text = (TASK % "COPY").replace("infra: gcp/us-west4", "any_of: [{infra: gcp/us-west4}, {infra: gcp/us-east1}]")
    spec = parse_task(text, file="t.yaml", env={}).only
    places = {"gs://data": BucketPlace("US-EAST1"), "gs://runs": BucketPlace("US-EAST1")}
    notes = bucket_notes(spec, KnownBuckets(places))
    assert len(notes) == 2
    assert all("not in us-west4" in note for note in notes)


ON_AWS = """\
resources: {infra: aws/us-west-2, accelerators: H100:8}
num_nodes: 2
file_mounts:
  ~/data: {source: s3://data/books, mode: COPY}
  ~/more: {source: gs://far, mode: COPY}
checkpoint: {bucket: s3://runs}
run: x
"""


def test_a_bucket_of_s3_is_compared_with_the_region_of_the_machines() -> None:
    spec = parse_task(ON_AWS, file="t.yaml", env={}).only
    unknown = bucket_notes(spec, KnownBuckets())
    assert [note.partition(": ")[0] for note in unknown] == ["s3://data", "s3://runs"]
    assert unknown[0].endswith("until the first launch (no egress estimate)")
    places = {"s3://data": BucketPlace("us-east-1"), "s3://runs": BucketPlace("us-west-2")}
    (note,) = bucket_notes(spec, KnownBuckets(places, {"s3://data/books": 5 << 30}))
    assert note.startswith("s3://data is in us-east-1, not in us-west-2 ($0.02 per GiB, price of 2026-01-13): ")
    assert "~/data (5.0 GiB) is copied by each of 2 hosts, about $0.20" in note
    assert note.endswith("a bucket in us-west-2 is read for free")


@pytest.mark.parametrize("key", ["data", "data.source"])
def test_data_of_the_trainer_in_another_region_is_priced(key: str) -> None:
    text = (
        f"resources: {{infra: gcp/us-west4, accelerators: v5litepod-16}}\ntrain: {{args: {{{key}: gs://data/books}}}}\n"
    )
    spec = parse_task(text, file="t.yaml", env={}).only
    (note,) = bucket_notes(spec, KnownBuckets({"gs://data": BucketPlace("US-EAST1")}, {"gs://data/books": 5 << 30}))
    assert "the data (5.0 GiB) is read in each pass over it, about $0.10" in note


@pytest.mark.parametrize("infra", ["local", "gcp"])
def test_without_a_region_there_is_no_note(infra: str) -> None:
    places = {"gs://data": BucketPlace("US-EAST1"), "gs://runs": BucketPlace("US")}
    assert bucket_notes(task(infra=infra), KnownBuckets(places)) == []


def test_a_learned_location_is_cached_and_not_requested_again(tmp_path: Path) -> None:
    queried: list[str] = []

    def ask(name: str) -> BucketPlace:
        queried.append(name)
        if name == "closed":
            raise CloudError("no", "", "")
        return BucketPlace("US", ("us-east1", "us-west1"))

    for _ in range(2):
        learn_bucket_locations(["gs://runs/", "gs://runs", "gs://closed", "s3://runs", "file:///x"], ask, tmp_path)
    assert queried == ["runs", "closed", "runs", "closed"]
    place = BucketPlace("US", ("us-east1", "us-west1"))
    assert load_known_buckets(tmp_path) == KnownBuckets({"gs://runs": place, "s3://runs": place})
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"buckets": 3}', '{"buckets": {"gs://aaa": {}}}', "\udcff"])
def test_an_unreadable_cache_file_counts_as_empty(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_bytes(text.encode("utf-8", "surrogateescape"))
    assert load_known_buckets(tmp_path) == KnownBuckets()
    save_bucket_location("gs://aaa/b", BucketPlace("EU"), tmp_path)
    assert load_known_buckets(tmp_path).places == {"gs://aaa": BucketPlace("EU")}


def test_a_buckets_name_is_found_in_any_address() -> None:
    assert [bucket_of(uri) for uri in ("gs://aaa/b/c", "gs://aaa", "gs://", "s3://aaa", "file:///a", "a")] == [
        "gs://aaa",
        "gs://aaa",
        "",
        "s3://aaa",
        "",
        "",
    ]


def test_each_service_is_queried_by_its_own_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stand_in(service: str) -> ModuleType:
        module = ModuleType(service)

        def place_of(name: str) -> BucketPlace:
            return BucketPlace(f"{service}/{name}")

        module.__dict__["place_of"] = place_of
        return module

    folders = {"gcp": "google", "aws": "aws"}
    for service, name in list_services().items():
        monkeypatch.setitem(sys.modules, f"orchestrator.providers.{folders[name]}.buckets", stand_in(service))
    learn_bucket_locations(["gs://aaa", "s3://bbb"], state=tmp_path)
    assert load_known_buckets(tmp_path).places == {"gs://aaa": BucketPlace("gs/aaa"), "s3://bbb": BucketPlace("s3/bbb")}


def test_the_size_of_a_folder_is_learnt_from_the_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with gcs_server() as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        server.create_bucket("data")
        Bucket.open("gs://data").put("books/a", b"x" * 1000)
        Bucket.open("gs://data").put("books/deep/b", b"x" * 24)
        Bucket.open("gs://data").put("other", b"x")
        learn_bucket_locations(["gs://data/books", "gs://data/none"], lambda _: BucketPlace("EU"), tmp_path)
    assert load_known_buckets(tmp_path).sizes == {"gs://data/books": 1024}


def test_an_old_size_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def learn(now: float) -> int | None:
        learn_bucket_locations(["gs://data/books"], lambda _: BucketPlace("EU"), tmp_path, now=now)
        return load_known_buckets(tmp_path).sizes.get("gs://data/books")

    known = {"buckets": {}, "sizes": {"gs://data/books": 1}, "measured": {"gs://data/books": 1.0}}
    (tmp_path / FILE).write_text(json.dumps(known))
    with gcs_server() as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        server.create_bucket("data")
        bucket = Bucket.open("gs://data")
        bucket.put("books/a", b"x" * 10)
        assert learn(NOW) == 10
        bucket.put("books/b", b"x" * 10)
        assert learn(NOW + SIZE_AGE - 1) == 10
        assert learn(NOW + SIZE_AGE) == 20
        bucket.put("books/c", b"x" * 10)
        assert learn(NOW) == 30, "a date in the future says nothing"
        bucket.delete_all(["books/a", "books/b", "books/c"])
        assert learn(NOW + SIZE_AGE) is None, "what is empty now has no size"
    assert load_known_buckets(tmp_path).measured == {}


def test_a_size_stays_when_its_bucket_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with gcs_server() as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        known = {"buckets": {}, "sizes": {"gs://none/books": 1}, "measured": {"gs://none/books": 1.0}}
        (tmp_path / FILE).write_text(json.dumps(known))
        learn_bucket_locations(["gs://none/books"], lambda _: BucketPlace("EU"), tmp_path, now=NOW)
    assert load_known_buckets(tmp_path).sizes == {"gs://none/books": 1}


def test_no_bucket_is_queried_after_its_time(tmp_path: Path) -> None:
    names: list[str] = []

    def ask(name: str) -> BucketPlace:
        names.append(name)
        time.sleep(0.1)
        return BucketPlace("EU")

    learn_bucket_locations([f"gs://bucket-{number}" for number in range(20)], ask, tmp_path, seconds=0.15)
    assert len(names) == 2, "a plan of 10,000 buckets left a thread behind that ran for hours"
