"""How fast all devices of a run add up a tensor with JAX: on TPUs over their own network, ICI."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from trainer.all_reduce import AllReduceRate, compute_bus_bandwidth
from trainer.config import Config
from trainer.environment import World
from trainer.errors import DeviceError
from trainer.jax_engine.devices import open_devices, translate_errors
from trainer.jax_engine.library import jax, jnp, lax
from trainer.team import Team

MEBIBYTES: Mapping[str, int] = MappingProxyType({"cpu": 4})  # of fp32, of each device
_MEBIBYTES = 64
WARM_UP, ROUNDS = 3, 10
_ALL = "all"


def measure_all_reduce(config: Config, world: World, team: Team, *, chips: int) -> AllReduceRate | None:
    """Add up one tensor over all devices of all ranks several times, and return the median rate.

    Args:
        config: Of the run.
        world: Which rank this process is.
        team: All ranks.
        chips: Accelerators that this host should have; 0 when unknown.

    Returns:
        The rate; None with one device.

    Raises:
        DeviceError: A chip is missing, or a sum is wrong.
        PeerError: A rank was lost.
    """
    devices = open_devices(config, world, team)
    platform = devices[0].platform
    check_local_devices(platform, len(jax.local_devices()), chips)
    count = len(devices)
    if count == 1:
        return None
    mebibytes = MEBIBYTES.get(platform, _MEBIBYTES)
    with translate_errors(world):
        grid = jax.sharding.Mesh(np.array(devices, object), (_ALL,))
        each = jax.sharding.PartitionSpec(_ALL)
        sharding = jax.sharding.NamedSharding(grid, each)
        # Made on the devices: each has one row.
        values = jax.jit(lambda: jnp.ones((count, mebibytes << 18), jnp.float32), out_shardings=sharding)()
        add = jax.jit(jax.shard_map(_add_rows, mesh=grid, in_specs=each, out_specs=each))
        # A sum of 2 x count at one place and of 0 at another must not look right, so both ends count.
        extremes = jax.jit(_find_extremes)
        sums: Any = values
        seconds: list[float] = []
        for _ in range(WARM_UP + ROUNDS):
            began = time.perf_counter()
            sums = jax.block_until_ready(add(values))
            seconds.append(time.perf_counter() - began)
        least, most = (float(number) for number in extremes(sums))
    if (least, most) != (count, count):
        raise DeviceError(f"rank {world.rank}: {count} devices add ones up to {least:g} to {most:g}")
    slowest = [max(times) for times in zip(*team.gather(seconds[WARM_UP:]), strict=True)]
    return AllReduceRate(
        device=platform,
        backend="jax",
        ranks=count,
        members="devices",
        mebibytes=mebibytes,
        gigabytes_per_second=compute_bus_bandwidth(mebibytes << 20, count, statistics.median(slowest)),
    )


def _add_rows(row: Any) -> Any:
    return lax.psum(row, _ALL)


def _find_extremes(sums: Any) -> Any:
    return sums.min(), sums.max()


def check_local_devices(platform: str, seen: int, chips: int) -> None:
    """Check that JAX drives every chip of this host.

    Raises:
        DeviceError: It sees fewer devices than the host should have chips.
    """
    if platform == "tpu" and seen < chips:
        raise DeviceError(
            f"JAX sees {seen} devices on this host, which should have {chips} chips: launch again for others, or "
            "set ORCH_TPU_CHECK=0 in envs to continue"
        )
