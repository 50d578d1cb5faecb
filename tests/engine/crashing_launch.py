"""One launch that kills itself with SIGKILL at the n-th point where a crash could matter (a program, not a test).

Points: before every commit of the store; before and after every call of the provider and of the job layer.
Usage: crashing_launch.py VERB N COMMAND. Prints "points M" when it came to its end alive.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine, event
from support.driving import Listener, local_task

import orchestrator.remote.jobs as jobs
import orchestrator.remote.sync as syncing
from orchestrator.engine.loop.drive import drive_cluster
from orchestrator.engine.preparation import commands
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.providers.local import provider as local

_counter = itertools.count(1)
_deadly = int(sys.argv[2])


def point(*_args: object) -> None:
    if next(_counter) == _deadly:
        os.kill(os.getpid(), signal.SIGKILL)


def guarded(call: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        point()
        result = call(*args, **kwargs)
        point()
        return result

    return wrapped


event.listen(Engine, "commit", point)
for owner, name in (
    (local.LocalProvider, "create"),
    (local.LocalProvider, "end"),
    (jobs, "start_job"),
    (jobs, "kill_job"),
    (syncing, "sync_tree"),
):
    setattr(owner, name, guarded(getattr(owner, name)))

verb, _, command = sys.argv[1:4]
if verb == "launch":
    task = local_task(2, run=command, setup="true", workdir=sys.argv[4])
    ending = drive_cluster(commands.prepare_launch(task, cluster="c", after=TeardownPolicy.KEEP), Listener())
else:
    ending = drive_cluster(commands.prepare_down("c"), Listener())
print("points", next(_counter) - 1, "status", ending.status)
