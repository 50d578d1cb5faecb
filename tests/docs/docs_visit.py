"""Reader who follows a page of documentation from its beginning, in one environment."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from docs_page import Command, File, Item

Done: TypeAlias = "subprocess.CompletedProcess[str]"


@dataclass
class Visit:
    """Items before the asked one are done first, once.

    items: of the page. folder: where all is typed, and files lie. filled: the page's text with the reader's own words.
    is_run: whether a command is typed at all. seconds: what a command may take.
    """

    items: tuple[Item, ...]
    folder: Path
    env: Mapping[str, str]
    filled: Callable[[str], str]
    is_run: Callable[[Command], bool]
    seconds: float = 200
    done: dict[Command, Done] = field(default_factory=dict[Command, Done])
    at: int = 0

    def run_to(self, command: Command) -> Done:
        while command not in self.done:
            self._do(self.items[self.at])
            self.at += 1
        return self.done[command]

    def _do(self, item: Item) -> None:
        if isinstance(item, File):
            (self.folder / item.name).write_text(self.filled(item.content))
        elif self.is_run(item):
            self.done[item] = self.type(self.filled(item.text))

    def type(self, text: str) -> Done:
        return subprocess.run(
            ["bash", "-c", text],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=self.seconds,
            check=False,
        )


def done_as_said(visit: Visit, command: Command) -> None:
    """What the page says a command ends with, and no trace of ours."""
    done = visit.run_to(command)
    assert done.returncode == command.status, f"{command.text}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
