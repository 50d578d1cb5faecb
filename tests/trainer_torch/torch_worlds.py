"""Groups of torch processes for tests, forked from one server that has loaded torch; many cases run per start."""

from __future__ import annotations

import multiprocessing as mp
import os
import socket
import sys
import traceback
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]


def server() -> ForkServerContext:
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(["trainer.torch_engine.engine", "torch._inductor"])
    parts = [str(REPOSITORY), str(REPOSITORY / "tests"), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, parts)))
    return context


def in_world(
    size: int, function: Callable[..., Any], *arguments: Any, timeout: float = 120, together: bool = True
) -> list[Any]:
    """`function(world, team, *arguments)` in `size` ranks that met; what each returned, in rank order.

    The function and its arguments are pickled. together: the ranks leave together.
    """
    context = server()
    answers: Any = context.Queue()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    processes = [
        context.Process(target=_rank, args=(rank, size, port, answers, function, arguments, together))
        for rank in range(size)
    ]
    for process in processes:
        process.start()
    try:
        found = dict(answers.get(timeout=timeout) for _ in range(size))
    finally:
        for process in processes:
            process.join(5)
            if process.is_alive():
                process.kill()
                process.join(5)
    failed = {rank: answer for rank, answer in found.items() if isinstance(answer, _Failure)}
    assert not failed, "\n".join(f"rank {rank}:\n{failure}" for rank, failure in failed.items())
    return [found[rank] for rank in range(size)]


class _Failure(str):
    __slots__ = ()


def _rank(
    rank: int,
    size: int,
    port: int,
    answers: Any,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    together: bool,
) -> None:
    import torch

    from trainer.config import DistConfig
    from trainer.environment import World
    from trainer.tcp_team import join_team
    from trainer.torch_engine.process_group import exit_process

    torch.set_num_threads(1)
    alone = size == 1
    world = World(rank=rank, size=size, sharers=size, coordinator="" if alone else f"127.0.0.1:{port}", launcher="orch")
    try:
        team = join_team(world, DistConfig(join_timeout=30, timeout=30))
        answer = function(world, team, *arguments)
        answers.put((rank, answer))
        if together:
            team.gather(None)
    except BaseException:
        answers.put((rank, _Failure(traceback.format_exc())))
    answers.close()
    answers.join_thread()
    sys.stdout.flush()
    exit_process(0)
