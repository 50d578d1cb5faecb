"""One command of an acceptance run: `orch`, in a process that records what clouds refuse."""

from __future__ import annotations

import sys
from pathlib import Path


def main(argv: list[str]) -> int:
    """Run a command line of orch and return its exit status.

    Args:
        argv: The file for refusals, then the words after `orch`.
    """
    from orchestrator.__main__ import main as run_command_line
    from orchestrator.acceptance.answers import record_answers

    record_answers(Path(argv[0]))
    return run_command_line(argv[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
