"""Sums as long as history, each made in a separate process, so that every other request is answered meanwhile.

A table by cluster, run or slice has as many rows as there are machines on record: to sum and write it takes seconds,
in which the threads of this process would wait for each other. One is made at a time. Who asks what is being summed,
or waits for its turn, gets the same document.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from pathlib import Path

from orchestrator.documents.ledger import spending_as_json, summarize_spending
from orchestrator.errors import OrchError
from orchestrator.store.location import Location
from orchestrator.store.read import open_reader_at

LONG_HISTORY = 10_000  # events on record: some 1,000 runs. A shorter history is summed sooner than a process starts
_NICE = 5  # of the process: other requests have the processor before it
_LOG = logging.getLogger("uvicorn.error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Costs that are summed: the arguments of `ledger.summarize_spending`.

    Attributes:
        seconds: How long before now the sum begins; None for everything on record.
    """

    seconds: float | None
    by: tuple[str, ...]
    project: str
    owner: str


@dataclass(kw_only=True)
class LongSums:
    """The long sums of one service. Safe for several threads.

    Attributes:
        deadline: Seconds that one may take: those after it wait for their turn.
    """

    deadline: float = 600.0
    _turn: threading.Lock = field(default_factory=threading.Lock)  # one is summed at a time
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _futures: dict[Question, Future[str]] = field(default_factory=dict[Question, "Future[str]"])

    def sum_up(self, location: Location, question: Question, now: float) -> str:
        """Return the document of data/spending.schema.json as text.

        Raises:
            OrchError: The process failed, its error is in the log; or it took too long.
        """
        with self._lock:
            future = self._futures.get(question)
            is_first = future is None
            if future is None:
                future = self._futures[question] = Future()
        if is_first:
            try:
                with self._turn:
                    future.set_result(_run_process(location, question, now, self.deadline))
            except BaseException as error:
                future.set_exception(error)
            finally:
                with self._lock:
                    del self._futures[question]
        return future.result()


def _run_process(location: Location, question: Question, now: float, deadline: float) -> str:
    place = {"path": str(location)} if isinstance(location, Path) else {"address": location}
    text = json.dumps({**place, "now": now, "question": asdict(question)})  # not an argument: it may have a password
    command = [sys.executable, "-P", "-m", __name__]
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=deadline)
    except subprocess.TimeoutExpired as error:
        what, why = f"spending was not summed within {deadline:g} s", "the history is long, or the store is slow"
        raise OrchError(what, why, "ask for fewer days, with --since") from error
    if done.returncode:
        _LOG.error("a long sum failed with status %d: %s", done.returncode, done.stderr[-2000:])
        raise OrchError("spending cannot be summed", "the error is in the log of orch serve", "try again")
    return done.stdout


def main() -> None:
    """Read a question from stdin, and write its document to stdout."""
    os.nice(_NICE)
    given = json.load(sys.stdin)
    question, now = Question(**given["question"]), given["now"]
    location = Path(given["path"]) if "path" in given else given["address"]
    with open_reader_at(location) as store:
        since = 0.0 if question.seconds is None else max(now - question.seconds, 0.0)
        table = summarize_spending(
            store, now, since=since, by=question.by, project=question.project, owner=question.owner
        )
    json.dump(spending_as_json(table), sys.stdout)


if __name__ == "__main__":
    main()
