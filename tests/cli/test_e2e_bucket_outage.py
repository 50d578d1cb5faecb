"""A training of the command line whose bucket fails for a while: real commands, hosts and sockets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.flaky_proxy import Fault, FlakyProxy, flaky_proxy
from support.heard import Heard, listening
from support.orch_process import Orch
from support.s3 import ENVIRONMENT

from orch_fronts.aws.s3 import S3Server, s3_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
TINY = ("model=tiny", "model.dim=32", "model.layers=1", "seq_len=16", "batch=4", "threads=1", "log_every=20")


@pytest.fixture
def bucket() -> Iterator[S3Server]:
    with s3_server(create=True) as server:
        server.create_bucket_in("eu-west-1", "runs")
        yield server


@pytest.fixture
def network(bucket: S3Server) -> Iterator[FlakyProxy]:
    with flaky_proxy(bucket.url) as proxy:
        yield proxy


@pytest.fixture
def orch(tmp_path: Path, network: FlakyProxy) -> Iterator[Orch]:
    orch = Orch(tmp_path, {**ENVIRONMENT, "AWS_ENDPOINT_URL_S3": network.url})
    (tmp_path / "text.txt").write_text("a line to learn from\n" * 2000)
    yield orch
    network.recover()
    orch("down", "train")


@pytest.fixture
def start(orch: Orch) -> Iterator[Callable[..., Heard]]:
    with listening(orch) as start:
        yield start


def train(orch: Orch, *words: str) -> list[str]:
    given = [f"--env={name}={value}" for name, value in orch.more.items() if "REGION" not in name]
    data = f"data={orch.folder}/text.txt"
    return ["train", "local:2", *given, "--bucket", "s3://runs", *TINY, data, "checkpoint.every=20", *words, "--yes"]


def newest(bucket: S3Server) -> int:
    latest = [data.data for key, data in bucket.buckets["runs"].items() if key.endswith("checkpoints/latest.json")]
    return int(json.loads(latest[0])["step"])


def test_an_outage_longer_than_eight_retries_costs_no_step(
    orch: Orch, bucket: S3Server, network: FlakyProxy, start: Callable[..., Heard]
) -> None:
    training = start(*train(orch, "steps=3000"))
    training.until(r"checkpoint 40 written")
    network.fail(Fault.BUSY, Fault.LOST, Fault.CUT, Fault.BROKEN_AFTER, seconds=12)
    assert training.status() == 0, training.text
    assert network.failed > 8
    assert newest(bucket) == 3000
    assert "attempt 2" not in training.text


def test_a_bucket_that_stays_away_restarts_the_trainer_which_resumes(
    orch: Orch, bucket: S3Server, network: FlakyProxy, start: Callable[..., Heard]
) -> None:
    short = ("checkpoint.retry_minutes=0.02", "checkpoint.failures=1")
    training = start(*train(orch, "steps=4000", *short))
    training.until(r"checkpoint 40 written")
    saves = "checkpoints"
    network.fail(Fault.BUSY, seconds=8, only=lambda method, path: saves in path and method in ("PUT", "POST"))
    assert training.status() == 0, training.text
    assert "error[storage]" in training.text and "resumed from step" in training.text
    assert newest(bucket) == 4000
