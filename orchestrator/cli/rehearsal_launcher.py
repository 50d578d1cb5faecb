"""The launcher of a rehearsal: what `orch launch` does, in a process of its own that may be killed at any moment."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.failures import explain
from orchestrator.errors import OrchError
from orchestrator.exits import Exit
from orchestrator.plan.steps import GiveUp

if TYPE_CHECKING:
    from orchestrator.engine.ready import Ready


def main(argv: list[str]) -> int:
    """argv: the path of a JSON file with the task and the cluster's name."""
    from orchestrator.engine.prepare import launch, with_secrets
    from orchestrator.plan.desired import After
    from orchestrator.spec.task import Task

    spec = json.loads(Path(argv[0]).read_text(encoding="utf-8"))
    task = with_secrets(Task.from_json(spec["task"]))
    try:
        return _run(launch(task, cluster=spec["cluster"], after=After.DOWN))
    except OrchError as error:
        return explain(error, debug=False)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED


def _run(ready: Ready) -> int:
    """As `orch launch` does it; but its advice is for clusters that stay, and this one goes with the rehearsal."""
    from orchestrator.cli.narrator import TerminalNarrator
    from orchestrator.cli.outcomes import tell
    from orchestrator.engine.drive import drive

    with TerminalNarrator(sys.stdout) as narrator:
        for note in ready.notes:
            narrator.note(note)
        ending = drive(ready, narrator)
    if isinstance(ending.step, GiveUp):
        ending = replace(ending, step=replace(ending.step, next_step="orch rehearse --keep   keeps its logs"))
    tell(ending)
    return ending.status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
