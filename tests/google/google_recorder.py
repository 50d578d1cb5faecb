"""A server on this computer that takes any request of the TPU API, answers that the work has begun, and notes it."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from support.served import Seen, served


@dataclass(slots=True)
class Recorder:
    url: str = ""
    seen: list[Seen] = field(default_factory=list[Seen])

    def take(self) -> list[Seen]:
        found, self.seen = self.seen, []
        return found


@contextmanager
def recorder() -> Generator[Recorder]:
    notes = Recorder()

    def handle(method: str, target: str, raw: bytes) -> tuple[int, dict[str, Any]]:
        parts = urlsplit(target)
        query = {key: values[0] for key, values in parse_qs(parts.query).items() if key not in ("alt", "$alt")}
        notes.seen.append(Seen(method, parts.path, query, json.loads(raw) if raw.strip() else {}))
        place = parts.path.split("/nodes")[0].split("/queuedResources")[0]
        place = place.removeprefix("/v2/").removeprefix("/v2alpha1/")
        return 200, {"name": f"{place}/operations/op-1", "done": False}

    with served(handle) as notes.url:
        yield notes
