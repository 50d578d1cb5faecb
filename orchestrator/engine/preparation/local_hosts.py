"""Where hosts that are processes of one computer cannot be used: in a store that several servers drive."""

from __future__ import annotations

import os
from collections.abc import Sequence

from orchestrator.computer import name_engine
from orchestrator.engine.state.recorded import open_reader
from orchestrator.errors import UserError
from orchestrator.messages import join_some
from orchestrator.slices import Candidate
from orchestrator.task.infra import LOCAL


def find_local_error(candidates: Sequence[Candidate], project: str) -> UserError | None:
    """Return the error of hosts on this computer for a store that several servers drive; None where it may have them.

    Each server would see the processes of one computer alone.
    """
    if not any(one.provider == LOCAL for one in candidates):
        return None
    with open_reader(project) as reader:
        others = reader.other_engines(name_engine(os.environ)) if reader.file is None else ()
    if not others:
        return None
    return UserError(
        "`infra: local` does not work with several servers of one store",
        f"its hosts are processes of one computer, and {join_some(others, 3)} could not end them",
        "rented machines, or `infra: hosts`; for a trial on this computer: unset ORCH_STORE, ORCH_SERVER",
    )
