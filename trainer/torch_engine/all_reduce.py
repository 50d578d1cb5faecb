"""How fast the ranks of a run add up gradients with torch."""

from __future__ import annotations

import statistics
import time

import torch

from trainer.accelerators.discovery import discover_devices
from trainer.accelerators.registry import choose_engine, open_native_device
from trainer.all_reduce import AllReduceRate, compute_bus_bandwidth
from trainer.config import Config
from trainer.environment import World
from trainer.errors import DeviceError
from trainer.team import Team
from trainer.torch_engine.process_group import join_process_group, translate_errors
from trainer.torch_engine.untyped import dist

MEBIBYTES = {"cpu": 4, "cuda": 64, "neuron": 16}  # of fp32; AWS publishes its own figures at 64 MiB
WARM_UP, ROUNDS = 3, 10


def measure_all_reduce(config: Config, world: World, team: Team) -> AllReduceRate:
    """Add up one tensor over all ranks several times, and return the median rate.

    Raises:
        DeviceError: A sum is wrong.
        PeerError: A rank was lost.
    """
    found = discover_devices() if config.device == "auto" else ()
    _, word = choose_engine(config, found)
    if word == "xla":
        raise DeviceError("network: torch_xla is not measured; use device=cuda, neuron or cpu")
    accelerator = open_native_device(word, world)
    torch.set_num_threads(world.threads(config.threads))
    join_process_group(accelerator.device, accelerator.backend, team, config.dist)
    mebibytes = MEBIBYTES[accelerator.name]
    with translate_errors(world, config.dist.timeout):
        values = torch.ones(mebibytes << 18, dtype=torch.float32, device=accelerator.device)
        seconds: list[float] = []
        for _ in range(WARM_UP + ROUNDS):
            values.fill_(1.0)
            accelerator.synchronize()
            dist.barrier()
            began = time.perf_counter()
            dist.all_reduce(values)
            accelerator.synchronize()
            seconds.append(time.perf_counter() - began)
        if not bool((values == float(world.size)).all()):
            raise DeviceError(f"rank {world.rank}: {world.size} ranks add ones up to {float(values[0])}")
    slowest = [max(each) for each in zip(*team.gather(seconds[WARM_UP:]), strict=True)]
    return AllReduceRate(
        device=accelerator.name,
        backend=accelerator.backend,
        ranks=world.size,
        mebibytes=mebibytes,
        gigabytes_per_second=compute_bus_bandwidth(mebibytes << 20, world.size, statistics.median(slowest)),
    )
