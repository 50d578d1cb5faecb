"""SIGTERM as a wish: the first is granted at the end of a step, the second at once."""

from __future__ import annotations

import os
import signal
from types import FrameType, TracebackType

from trainer.errors import Exit


class StopWish:
    """While it is entered, SIGTERM sets `wanted`. Before and after, it ends the process as usual."""

    def __init__(self) -> None:
        self.wanted = False

    def __enter__(self) -> StopWish:
        self._before = signal.signal(signal.SIGTERM, self._received)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGTERM, self._before)

    def _received(self, number: int, frame: FrameType | None) -> None:
        if self.wanted:
            os._exit(Exit.TERMINATED)
        self.wanted = True
