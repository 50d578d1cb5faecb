"""A command on a terminal, answered question by question as a person does."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(kw_only=True)
class Terminal:
    """A running command; `seen` is all that it has written."""

    process: subprocess.Popen[bytes]
    main: int
    seen: str = ""
    read_to: int = 0

    def expect(self, pattern: str, seconds: float = 60.0) -> str:
        """Wait until the pattern stands in what was written since the last one, and return that text."""
        end = time.monotonic() + seconds
        while (found := re.search(pattern, self.seen[self.read_to :])) is None:
            assert time.monotonic() < end, f"no {pattern!r} in:\n{self.seen[self.read_to :]}"
            assert self._read(), f"it ended without {pattern!r}:\n{self.seen[self.read_to :]}"
        text = self.seen[self.read_to : self.read_to + found.end()]
        self.read_to += found.end()
        return text

    def type(self, text: str) -> None:
        """Type a line."""
        os.write(self.main, f"{text}\n".encode("utf-8", "surrogateescape"))

    def interrupt(self) -> None:
        """Press Ctrl-C, once the program reads: Python handles a signal just before a read only after it."""
        time.sleep(0.5)
        os.write(self.main, b"\x03")

    def finish(self, seconds: float = 60.0) -> int:
        """Wait for the end, and return the exit status."""
        end = time.monotonic() + seconds
        while self._read():
            assert time.monotonic() < end, f"it does not end:\n{self.seen[self.read_to :]}"
        return self.process.wait(10)

    def _read(self) -> bool:
        if not select.select([self.main], [], [], 1.0)[0]:
            return True
        try:
            new = os.read(self.main, 65536)
        except OSError:  # Linux reports the end of a terminal as EIO
            return False
        self.seen += new.decode("utf-8", "replace").replace("\r\n", "\n")
        return bool(new)


@contextmanager
def on_terminal(command: Sequence[str], *, env: Mapping[str, str], cwd: Path, columns: int = 80) -> Iterator[Terminal]:
    """Run a command on its own terminal, which it controls, until the end of the block."""
    main, side = pty.openpty()
    shown = {**env, "COLUMNS": str(columns), "TERM": "xterm"}
    # setsid and the controlling terminal: else Ctrl-C would be no signal. HUP: the tests may run under nohup.
    program = ["env", "--default-signal=HUP", "setsid", "--ctty", "--wait", *command]
    process = subprocess.Popen(program, stdin=side, stdout=side, stderr=side, env=shown, cwd=cwd)
    os.close(side)
    try:
        yield Terminal(process=process, main=main)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(10)
        os.close(main)
