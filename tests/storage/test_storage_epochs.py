"""Who drives a run: one of many claims of an epoch wins, on every kind of bucket, and a kill leaves no gap."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engine.loop.epoch import RunHold
from orchestrator.errors import StorageError
from orchestrator.storage.bucket import Bucket
from orchestrator.storage.epochs import (
    Claim,
    Epoch,
    make_epoch,
    mark_ended,
    read_beat,
    read_claim,
    write_beat,
    write_claim,
)
from orchestrator.storage.objects import ObjectInfo, Version
from orchestrator.store.records import JobRecord

RUN = "run-1"
FIELDS = {"kind": "launch", "digest": "", "task": "", "started": True, "opened_at": 0, "state": "running"}
FIELDS |= {"status": None, "code": "", "what": "", "why": "", "next_step": "", "created": 0.0, "ended": None}


def job(uid: str) -> JobRecord:
    rest: dict[str, Any] = {**FIELDS, "ranks": None, "after_end": "keep", "bucket": "x", "attempt": 1}
    return JobRecord(cluster_uid=uid, id=1, run_id=RUN, **rest)


def hold(bucket: Bucket, who: str, replaceable: int = 0) -> RunHold:
    made = RunHold(bucket, who, job(who), replaceable)
    made._ended.set()  # without the thread: each step is the test's
    return made


def test_of_many_computers_that_claim_a_run_one_gets_it(bucket: Bucket) -> None:
    holds = [hold(bucket, f"installation-{number}") for number in range(8)]
    won: list[int] = []

    def claim(number: int) -> None:
        if holds[number].claim(1):
            won.append(number)

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    now = read_claim(bucket, RUN).epoch
    assert now is not None and (now.epoch, now.attempt) == (1, 1)
    assert now.installation == f"installation-{won[0]}"
    losers = [one.taken_over for number, one in enumerate(holds) if number != won[0]]
    assert all(f"run {RUN} was taken over by {now.driver} at {now.time} (epoch 1)" == words for words in losers)


def test_an_epoch_rises_with_each_attempt_and_holds_for_one_that_is_claimed_twice(bucket: Bucket) -> None:
    first = hold(bucket, "a")
    assert first.claim(1) and first.claim(1) and first.number == 1
    assert first.claim(2) and first.number == 2
    second = hold(bucket, "b", replaceable=2)
    assert second.claim(3) and second.number == 3
    assert not first.claim(3) and "was taken over by" in first.taken_over
    now = read_claim(bucket, RUN).epoch
    assert now is not None and (now.installation, now.attempt) == ("b", 3)


def test_the_end_is_marked_by_the_driver_alone(bucket: Bucket) -> None:
    assert hold(bucket, "a").claim(1)
    mark_ended(bucket, RUN, "b/1", "b")
    assert read_claim(bucket, RUN).epoch == (before := read_claim(bucket, RUN).epoch) and before and not before.ended
    mark_ended(bucket, RUN, "a/1", "a")
    now = read_claim(bucket, RUN).epoch
    assert now is not None and now.ended
    assert hold(bucket, "a").claim(1)
    again = read_claim(bucket, RUN).epoch
    assert again is not None and (again.epoch, again.ended) == (2, "")


def test_a_beat_is_seen_as_a_change_and_names_no_person(bucket: Bucket) -> None:
    assert read_beat(bucket, RUN) is None
    epoch = make_epoch(Claim(), 1, "a", "host", "u/1")
    write_beat(bucket, RUN, epoch)
    assert read_beat(bucket, RUN) is not None
    assert set(json.loads(bucket.get(f"{RUN}/beat.json"))) == {"epoch", "attempt", "by", "time"}
    assert set(json.loads(epoch.to_json())) == {"epoch", "attempt", "installation", "host", "job", "time", "ended"}


def test_an_epoch_that_cannot_be_read_is_never_claimed_over(bucket: Bucket) -> None:
    bucket.put(f"{RUN}/epoch.json", b"{half")
    with pytest.raises(StorageError, match="cannot be read"):
        hold(bucket, "a").claim(1)
    assert bucket.get(f"{RUN}/epoch.json") == b"{half"


class _Dying:
    """A bucket that kills its process at the n-th moment; each request has one before it and one after it."""

    def __init__(self, inner: Bucket, moment: int) -> None:
        self._inner, self._left, self.uri = inner, moment, inner.uri

    def _around(self, name: str, *arguments: Any) -> Any:
        for step in (lambda: None, lambda: getattr(self._inner, name)(*arguments)):
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self._left -= 1
            result = step()
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    def head(self, path: str) -> ObjectInfo | None:
        found: ObjectInfo | None = self._around("head", path)
        return found

    def get_bounded(self, path: str, most: int) -> bytes:
        return bytes(self._around("get_bounded", path, most))

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return bool(self._around("put_if_absent", path, data))

    def replace_if(self, path: str, data: bytes, expected: Version) -> bool:
        return bool(self._around("replace_if", path, data, expected))


def _claim_and_die(uri: str, moment: int, attempt: int) -> None:
    dying: Any = _Dying(Bucket.open(uri), moment)
    hold(dying, "a").claim(attempt)
    os._exit(0)


@pytest.mark.parametrize("attempt", [1, 2])
def test_killed_at_any_step_of_a_claim_the_same_job_continues_it_and_another_may_follow(
    tmp_path: Path, attempt: int
) -> None:
    moments, context = 0, multiprocessing.get_context("fork")
    while True:
        uri = f"file://{tmp_path}/{moments}"
        bucket = Bucket.open(uri)
        bucket.put("x", b"")
        for earlier in range(1, attempt):
            assert hold(bucket, "a").claim(earlier)
        process = context.Process(target=_claim_and_die, args=(uri, moments, attempt))
        process.start()
        process.join(30)
        assert process.exitcode in (0, -signal.SIGKILL)
        left = read_claim(bucket, RUN)
        assert left.number in (attempt - 1, attempt)
        again = hold(bucket, "a")
        assert again.claim(attempt) and again.number == attempt, "one start has one epoch, killed or not"
        assert hold(bucket, "b", replaceable=attempt).claim(attempt + 1)
        assert not again.claim(attempt)
        if process.exitcode == 0:
            break
        moments += 1
    assert moments >= 3


def test_a_claim_that_another_made_in_between_is_not_replaced(bucket: Bucket) -> None:
    before = read_claim(bucket, RUN)
    theirs = make_epoch(before, 1, "b", "host", "b/1")
    assert write_claim(bucket, RUN, theirs, before)
    assert not write_claim(bucket, RUN, make_epoch(before, 1, "a", "host", "a/1"), before)
    now = read_claim(bucket, RUN)
    assert now.epoch == theirs == Epoch.from_json(theirs.to_json())
    assert write_claim(bucket, RUN, make_epoch(now, 2, "a", "host", "a/1"), now)
    assert not write_claim(bucket, RUN, make_epoch(now, 2, "c", "host", "c/1"), now)
