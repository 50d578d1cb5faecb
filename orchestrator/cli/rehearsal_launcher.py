"""The launcher of a rehearsal: what `orch launch` does, in a process of its own that may be killed at any moment."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from orchestrator.cli.act import Perform, carry_out
from orchestrator.cli.failures import explain
from orchestrator.errors import OrchError
from orchestrator.exits import Exit


def main(argv: list[str]) -> int:
    """argv: the path of a JSON file with the task and the cluster's name."""
    from orchestrator.engine.prepare import launch, with_secrets
    from orchestrator.plan.desired import After
    from orchestrator.spec.task import Task

    spec = json.loads(Path(argv[0]).read_text(encoding="utf-8"))
    task = with_secrets(Task.from_json(spec["task"]))
    try:
        return carry_out(launch(task, cluster=spec["cluster"], after=After.DOWN), Perform(consent=True))
    except OrchError as error:
        return explain(error, debug=False)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
