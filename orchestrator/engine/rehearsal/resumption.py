"""Whether a program of the user's resumes: the steps that its heartbeats show in each attempt of a rehearsal."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from orchestrator.simulator.bodies import read_heartbeat_step

_PERIOD = 0.05  # seconds between two readings: a quick program is past its first steps soon
_HEARTBEATS = "local/*/hosts/*/home/.orch/jobs/*/heartbeat*"
_JOB = re.compile(r"-\d+-a(\d+)$")  # see engine/state/names.host_job_name; setups end in a digest
_FEWEST = 8  # steps of an attempt, from which on "begins again" and "resumes near its end" can be distinguished


@dataclass(slots=True)
class AttemptSteps:
    """Steps of one attempt.

    Attributes:
        first: The first step above 0 that was seen. 0 is what programs write before they have loaded a checkpoint.
        last: The last one.
        found_saved: Whether the run's checkpoint folder held a file when the attempt made its first step.
    """

    first: int
    last: int
    found_saved: bool


def begins_again(before: AttemptSteps, after: AttemptSteps) -> bool | None:
    """Return whether the later attempt began where the earlier one had begun; None when that attempt was too short.

    A resumed program begins near the end of the earlier attempt: behind its newest checkpoint.
    """
    made = before.last - before.first
    if made < _FEWEST:
        return None
    return after.first - before.first <= made // 4


class HeartbeatWatch:
    """Thread that reads the heartbeats of all simulated hosts, which vanish with their host.

    Attributes:
        attempts: What was seen, by attempt.
    """

    def __init__(self, cloud: Path, bucket: Path) -> None:
        self.attempts: dict[int, AttemptSteps] = {}
        self._cloud, self._bucket = cloud, bucket
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)

    def __enter__(self) -> HeartbeatWatch:
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(_PERIOD):
            for file in self._cloud.glob(_HEARTBEATS):
                job, step = _JOB.search(file.parent.name), read_heartbeat_step(file)
                if job is not None and step > 0:
                    self._note(int(job[1]), step)

    def _note(self, attempt: int, step: int) -> None:
        known = self.attempts.get(attempt)
        if known is None:
            self.attempts[attempt] = AttemptSteps(step, step, self._has_checkpoint())
        else:
            known.last = max(known.last, step)

    def _has_checkpoint(self) -> bool:
        return any(path.is_file() for path in self._bucket.glob("*/checkpoints/**/*"))
