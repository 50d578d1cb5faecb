"""Commands that run beside the test, and all that they say."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from support.orch_process import Orch, until


@dataclass
class Heard:
    """A command that runs, and all that it says."""

    process: subprocess.Popen[str]
    said: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self._readers = [threading.Thread(target=self._read, args=(pipe,), daemon=True) for pipe in self._pipes()]
        for reader in self._readers:
            reader.start()

    def _pipes(self) -> list[Any]:
        return [self.process.stdout, self.process.stderr]

    def _read(self, pipe: Any) -> None:
        self.said += (line for line in pipe)

    @property
    def text(self) -> str:
        return "".join(list(self.said))

    def until(self, pattern: str, seconds: float = 150.0) -> None:
        def there() -> bool:
            assert self.process.poll() is None or re.search(pattern, self.text), self.text
            return bool(re.search(pattern, self.text))

        until(f"{pattern!r} in: {self.text}", there, seconds)

    def status(self, seconds: float = 150.0) -> int:
        status = self.process.wait(seconds)
        for reader in self._readers:
            reader.join(10)
        return status


@contextmanager
def listening(orch: Orch) -> Generator[Callable[..., Heard]]:
    """Starts commands; those that still run in the end are killed."""
    heard: list[Heard] = []

    def start(*words: str) -> Heard:
        heard.append(Heard(orch.start(*words)))
        return heard[-1]

    yield start
    for one in heard:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


def losses(text: str) -> list[tuple[int, float]]:
    """What the trainer's step lines say: step and loss."""
    return [(int(step), float(loss)) for step, loss in re.findall(r"step (\d+)/\d+  loss ([0-9.]+)", text)]
