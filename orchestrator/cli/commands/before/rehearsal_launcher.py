"""The launcher of a rehearsal: what `orch launch` does, in a process that may be killed at any moment."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.failures import print_error
from orchestrator.errors import OrchError
from orchestrator.exits import Exit
from orchestrator.next_step import NextStep
from orchestrator.plan.steps import GiveUp

if TYPE_CHECKING:
    from orchestrator.engine.preparation.prepared import PreparedCommand


def main(argv: list[str]) -> int:
    """Run the launch of a rehearsal and return its exit status.

    Args:
        argv: The path of a JSON file with the task and the name of the cluster.
    """
    from orchestrator.engine.preparation.commands import add_secrets_from_environment, prepare_launch
    from orchestrator.paths import load_paths
    from orchestrator.plan.teardown import TeardownPolicy
    from orchestrator.providers.local.owner import end_with_owner
    from orchestrator.task.model import Task

    end_with_owner(load_paths().state / "simulated")
    spec = json.loads(Path(argv[0]).read_text(encoding="utf-8"))
    task = add_secrets_from_environment(Task.from_json(spec["task"]))
    try:
        return _run(prepare_launch(task, cluster=spec["cluster"], after=TeardownPolicy.DOWN))
    except OrchError as error:
        return print_error(error, debug=False)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED


def _run(ready: PreparedCommand) -> int:
    """Launch as `orch launch` does, but with advice for a cluster that is deleted with the rehearsal."""
    from orchestrator.cli.drawing.narrator import TerminalNarrator
    from orchestrator.cli.drawing.outcomes import print_ending
    from orchestrator.engine.loop.drive import drive_cluster

    with TerminalNarrator(sys.stdout) as narrator:
        for note in ready.notes:
            narrator.note(note)
        ending = drive_cluster(ready, narrator)
    if isinstance(ending.step, GiveUp):
        step = ending.step.next_step
        advice = step.words.splitlines()[1 if step.command else 0 :]  # without the words about the command
        kept = NextStep("orch rehearse --keep", "\n".join(["keeps its logs", *advice]))
        ending = replace(ending, step=replace(ending.step, next_step=kept))
    print_ending(ending)
    return ending.status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
