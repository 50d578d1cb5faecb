"""Who drives a run: epoch.json and beat.json in the run's folder, shared by trainer and orchestrator.

This module needs only the standard library. A run that is started twice, by two computers or after a freeze, has two
writers. Each start claims the next epoch by compare-and-swap of epoch.json, before it reads or writes a checkpoint:

    epoch.json  {"epoch": 3, "attempt": 2, "installation": "3f2c…", "host": "laptop", "job": "c91f…/1",
                 "time": "2026-11-23T18:30:00Z", "ended": ""}
    beat.json   {"epoch": 3, "attempt": 2, "by": "trainer", "time": "2026-11-23T18:41:30Z"}

Writers of a lower epoch stop: their checkpoints lie in their own folders, and latest.json refuses them. The beat is
written about every BEAT_SECONDS while an epoch is driven; only whether it changes counts, so clocks need not agree.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timezone
from typing import Any

EPOCH = "epoch.json"
BEAT = "beat.json"
BEAT_SECONDS = 30.0
_LARGEST = 1_000_000_000  # no run has as many starts; databases hold it
_LONGEST = 300  # characters of a text; a host's name has at most 253


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """One start of a run; the content of epoch.json.

    Attributes:
        epoch: From 1, one more than that of the start before.
        attempt: The attempt that was started.
        installation: Id of the orch that drives it; "" for a trainer that was started by hand.
        host: Name of the computer.
        job: The job there: cluster and number; "" for a trainer that was started by hand.
        time: Of the claim, in UTC.
        ended: When its driver ended, in UTC; "" while it drives, and when it was killed.
    """

    epoch: int
    attempt: int
    installation: str
    host: str
    job: str
    time: str
    ended: str = ""

    def to_json(self) -> bytes:
        """Return the content of epoch.json."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Epoch:
        """Parse the content of epoch.json.

        Raises:
            ValueError: It is not valid.
        """
        try:
            content: Any = json.loads(text)
            epoch = cls(**{field.name: content[field.name] for field in fields(cls)})
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"{EPOCH} cannot be read: {shorten(error)}") from error
        for field in fields(cls):
            value: object = getattr(epoch, field.name)
            if not (_is_number(value) if field.name in ("epoch", "attempt") else _is_line(value)):
                raise ValueError(f"{EPOCH} cannot be read: its {field.name} is {shorten(value)}")
        return epoch

    @property
    def driver(self) -> str:
        """Who drives it, in words."""
        return f"{self.host} (orch {self.installation[:8]})" if self.installation else f"{self.host} (by hand)"

    def to_beat(self, by: str) -> bytes:
        """Return the content of beat.json as of now."""
        return json.dumps({"epoch": self.epoch, "attempt": self.attempt, "by": by, "time": utc_timestamp()}).encode()


def shorten(value: object, longest: int = 120) -> str:
    """Return a value from a bucket as Python writes it, cut: whoever wrote it may have written much."""
    if isinstance(value, UnicodeDecodeError):
        return "it is not UTF-8"  # the text of the error holds all that was read
    text = repr(value)
    return text if len(text) <= longest else f"{text[:longest]}..."


def _is_number(value: object) -> bool:
    return type(value) is int and 1 <= value <= _LARGEST


def _is_line(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST and value.isprintable()


def utc_timestamp() -> str:
    """Return the current time as UTC text, like 2026-11-20T18:30:00Z."""
    now = datetime.now(timezone.utc)  # noqa: UP017  # own programs may have Python 3.10
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")
