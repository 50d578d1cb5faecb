"""What the engine of this process last observed of hosts: their steps, heartbeats and chips.

It is kept in memory, not as events: it is new every few seconds, and of no use an hour later. Another process that
drives a job keeps its own, so the page then shows what is on record. Chips are sampled only while someone looks: who
reads the board of a cluster asks for them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median_high

from orchestrator.formatting import format_duration
from orchestrator.hosts import ChipReport, JobPhase
from orchestrator.plan.observed import Contact, HostView
from orchestrator.service.drawing.chips import HostHealth, HostState

KEPT_SECONDS = 120.0  # the loop observes every few seconds
WATCHED_SECONDS = 120.0  # a page that is open reads every 20 s; one without script is read again by a person
SILENT_SECONDS = 60.0  # programs write a heartbeat every few seconds
BEHIND_STEPS = 2  # the steps of one moment differ by one, because hosts are read one after the other


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReport:
    """One host as it was last observed.

    Attributes:
        step: The step of its program; None when it reports none.
        behind: Steps behind the median of the hosts; None when its step is not known.
        beat_age: Seconds since its last heartbeat when it was observed; None when not known.
        contact: Whether it answers.
        chips: Its chips; None where they are not known.
    """

    rank: int
    step: int | None
    behind: int | None
    beat_age: float | None
    contact: Contact
    chips: ChipReport | None = None

    def judge(self) -> HostState:
        """Return its health, with the words for it."""
        if self.contact not in (Contact.OK, Contact.UNTRIED):
            return HostState(health=HostHealth.SILENT, words="does not answer")
        if self.beat_age is not None and self.beat_age >= SILENT_SECONDS:
            return HostState(health=HostHealth.SILENT, words=f"no heartbeat for {format_duration(self.beat_age)}")
        if self.behind is not None and self.behind >= BEHIND_STEPS:
            return HostState(health=HostHealth.BEHIND, words=f"{self.behind} steps behind")
        return HostState(health=HostHealth.READY, words="ready" if self.step is None else f"ready, step {self.step:,}")


@dataclass(kw_only=True)
class HostBoard:
    """The newest observation of each cluster. Safe for several threads.

    Attributes:
        now: The time, in epoch seconds.
    """

    now: Callable[[], float] = time.time
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _seen: dict[str, tuple[float, tuple[HostView, ...]]] = field(
        default_factory=dict[str, tuple[float, tuple[HostView, ...]]]
    )
    _watched: dict[str, float] = field(default_factory=dict[str, float])

    def note(self, cluster_uid: str, hosts: Sequence[HostView]) -> None:
        """Keep an observation in place of the one before."""
        now = self.now()
        with self._lock:
            self._seen[cluster_uid] = now, tuple(hosts)
            for old in [uid for uid, (at, _) in self._seen.items() if now - at > KEPT_SECONDS]:
                del self._seen[old]

    def is_watched(self, cluster_uid: str) -> bool:
        """Return whether someone has looked at a cluster of late."""
        with self._lock:
            return self.now() - self._watched.get(cluster_uid, -WATCHED_SECONDS) < WATCHED_SECONDS

    def read(self, cluster_uid: str) -> Mapping[int, HostReport]:
        """Return the hosts of a cluster by rank; empty when this process has not observed them of late.

        Its chips are sampled from now on, for a while.
        """
        now = self.now()
        with self._lock:
            self._watched[cluster_uid] = now
            for old in [uid for uid, at in self._watched.items() if now - at > WATCHED_SECONDS]:
                del self._watched[old]
            at, hosts = self._seen.get(cluster_uid, (0.0, ()))
        if now - at > KEPT_SECONDS:
            return {}
        steps = [host.step for host in hosts if host.job is JobPhase.RUNNING and host.step is not None]
        middle = median_high(steps) if steps else 0  # of two hosts the one in front
        return {host.rank: _report(host, middle, now - at) for host in hosts}


def _report(host: HostView, middle: int, seconds: float) -> HostReport:
    step = host.step if host.job is JobPhase.RUNNING else None
    return HostReport(
        rank=host.rank,
        step=step,
        behind=None if step is None else max(middle - step, 0),
        beat_age=host.beat_age,
        contact=host.contact,
        chips=None if host.chips is None else replace(host.chips, age=host.chips.age + seconds),
    )
