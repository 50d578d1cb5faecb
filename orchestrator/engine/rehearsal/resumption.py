"""Whether a program of the user's resumes: the steps that its heartbeats show in each attempt of a rehearsal."""

from __future__ import annotations

import re
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from orchestrator.remote.host_folder import JOB_FILES
from orchestrator.simulator.bodies import read_heartbeat_step

_PERIOD = 0.05  # seconds between two readings: a quick program is past its first steps soon
_HEARTBEATS = f"local/*/hosts/*/home/{JOB_FILES}/heartbeat*"
_LOGS = f"local/*/hosts/*/home/{JOB_FILES}/log"
_MOST_LOG = 16 << 20  # bytes of one read
_DIGITS = re.compile(r"[0-9]{1,15}")
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


class LogSteps:
    """Writes the heartbeats of programs that write none, from the steps in their logs."""

    def __init__(self, cloud: Path, pattern: re.Pattern[str]) -> None:
        self._cloud, self._pattern = cloud, pattern
        self._read: dict[Path, tuple[int, int]] = {}  # bytes that were read of each log, and the newest step in them

    def write_heartbeats(self) -> None:
        """Read what the logs have got since the last call; the last match counts."""
        for log in self._cloud.glob(_LOGS):
            done, step = self._read.get(log, (0, 0))
            try:
                with log.open("rb") as file:
                    file.seek(done)
                    lines, _, _ = file.read(_MOST_LOG).rpartition(b"\n")
            except OSError:
                continue  # its host was just deleted
            texts = [match[1] or "" for match in self._pattern.finditer(lines.decode(errors="replace"))]
            found = [int(text) for text in texts if _DIGITS.fullmatch(text)]  # a group may match words, too
            self._read[log] = done + len(lines), found[-1] if found else step
            if found and found[-1] != step:
                with suppress(OSError):
                    (log.parent / "heartbeat").write_text(f"{found[-1]}\n", encoding="utf-8")


class HeartbeatWatch:
    """Thread that reads the heartbeats of all simulated hosts, which vanish with their host.

    Attributes:
        attempts: What was seen, by attempt.
    """

    def __init__(self, cloud: Path, bucket: Path, pattern: re.Pattern[str] | None = None) -> None:
        """Take the folders of the simulated cloud and the bucket.

        Args:
            cloud: Holds the hosts.
            bucket: Holds the checkpoints.
            pattern: Of the step in a line of the program's log, as its first group; None for programs with heartbeats.
        """
        self.attempts: dict[int, AttemptSteps] = {}
        self._logs = LogSteps(cloud, pattern) if pattern is not None else None
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
            if self._logs is not None:
                self._logs.write_heartbeats()
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
