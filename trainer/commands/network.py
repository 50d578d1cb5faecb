"""`python -m trainer network key=value ...`: measures how fast all ranks add up a tensor, before a run is paid for."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from trainer.engines import choose_engine_and_device
from trainer.environment import World, read_run, read_world
from trainer.errors import ConfigError, DeviceError, Exit
from trainer.options import parse_config

if TYPE_CHECKING:
    from trainer.all_reduce import AllReduceRate
    from trainer.config import Config
    from trainer.team import Team

SUMMARY = "measure an all-reduce between all ranks, and compare it with what the machines' network can do"

HELP = """\
Measure an all-reduce between all ranks, with JAX between all devices.

  python -m trainer network [key=value ...] [--json]

$ORCH_NETWORK_GBPS is the network of one host in Gbit/s, and $ORCH_NETWORK_EXPECTED a published rate in GB/s; the result
is only compared with both. With $ORCH_NETWORK_FLOOR (GB/s) a slower network ends the command with status 4.
"""


def run(words: Sequence[str]) -> int:
    """Measure, and print the rate on rank 0.

    Raises:
        DeviceError: The rate is below the floor, the sums are wrong, or a chip is missing.
        PeerError: A rank was lost.
    """
    config, world = parse_config([word for word in words if word != "--json"]), read_world(os.environ)
    floor = _read_number(os.environ, "ORCH_NETWORK_FLOOR")
    jax = choose_engine_and_device(config).engine == "jax"
    if world.size == 1 and not jax:
        sys.stdout.write("network: one rank, nothing to measure\n")
        return Exit.OK
    from trainer.tcp_team import join_team

    team = join_team(world, config.dist, f"{read_run(os.environ).identity} network")
    rate = _measure_with_jax(config, world, team) if jax else _measure_with_torch(config, world, team)
    (found, *_) = team.gather(rate.gigabytes_per_second if rate else None)
    if world.is_first:
        sys.stdout.write(f"{json.dumps(asdict(rate)) if '--json' in words and rate else describe(rate, os.environ)}\n")
    team.close()
    if floor and found is not None and found < floor:
        raise DeviceError(f"all-reduce: {found:.1f} GB/s is below ORCH_NETWORK_FLOOR={floor:g}")
    return Exit.OK


def _measure_with_torch(config: Config, world: World, team: Team) -> AllReduceRate:
    from trainer.torch_engine.all_reduce import measure_all_reduce

    return measure_all_reduce(config, world, team)


def _measure_with_jax(config: Config, world: World, team: Team) -> AllReduceRate | None:
    from trainer.jax_engine.all_reduce import measure_all_reduce
    from trainer.jax_engine.devices import close_devices

    checked = os.environ.get("ORCH_TPU_CHECK") != "0"
    rate = measure_all_reduce(config, world, team, chips=int(_read_number(os.environ, "ORCH_CHIPS_PER_HOST")) * checked)
    close_devices(world)
    return rate


def describe(rate: AllReduceRate | None, environ: Mapping[str, str]) -> str:
    """Return the rate in words, with what is known of the network."""
    if rate is None:
        return "network: one device, nothing to measure"
    speed, members = rate.gigabytes_per_second, f"{rate.ranks} {rate.members}"
    parts = [f"network: all-reduce of {rate.mebibytes} MiB over {members}: {speed:.1f} GB/s ({rate.backend})"]
    if gbps := _read_number(environ, "ORCH_NETWORK_GBPS"):
        parts.append(f"{speed / (gbps / 8):.0%} of one host's {gbps:,.0f} Gbit/s")
    if expected := _read_number(environ, "ORCH_NETWORK_EXPECTED"):
        parts.append(f"published for two such machines: {expected:g} GB/s")
    return "; ".join(parts)


def _read_number(environ: Mapping[str, str], name: str) -> float:
    text = environ.get(name, "")
    try:
        return float(text or 0)
    except ValueError as error:
        raise ConfigError(f"{name}={text} is not a number") from error
