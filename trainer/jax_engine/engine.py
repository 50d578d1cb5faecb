"""The JAX engine; trainer/engine.py documents each method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from jax import Array

from trainer.agreement import agree_on_memory
from trainer.config import Config, EngineName
from trainer.engine import FloatArray, Numbers, TokenArray
from trainer.environment import World
from trainer.jax_engine.arithmetic import AXES
from trainer.jax_engine.compiling import CompilationCounter, Program
from trainer.jax_engine.device_names import get_device_name, get_peak_flops
from trainer.jax_engine.devices import close_devices, find_usable_memory, open_devices, translate_errors
from trainer.jax_engine.grid import (
    Sharding,
    arrange_devices,
    assign_rows,
    detect_topology,
    make_rows_sharding,
    make_sharding,
)
from trainer.jax_engine.library import jax
from trainer.jax_engine.optimizer import make_step_scalars
from trainer.jax_engine.state import StatePlacement
from trainer.jax_engine.step import Step, build_step
from trainer.shape.box import TensorRegion
from trainer.shape.limits import refuse_experts
from trainer.shape.memory import resolve_remat
from trainer.shape.mesh import Mesh, RowShare, refuse_context, resolve_mesh
from trainer.shape.pipeline import refuse_pipeline
from trainer.shape.rotary import make_local_rotary_table, make_rotary_table
from trainer.team import Team

_READ_EVERY = 10  # on accelerators, which compute while the CPU prepares the next steps


def open_jax_engine(config: Config, world: World, team: Team) -> JaxEngine:
    """Open the engine with initial values in the weights.

    Raises:
        DeviceError: The device is missing or fails.
        ConfigError: The mesh or the batch does not fit the devices.
        PeerError: Another rank is lost.
    """
    counter = CompilationCounter()
    devices = open_devices(config, world, team)
    mesh = resolve_mesh(config.mesh, detect_topology(devices), config.model)
    if devices[0].platform == "neuron":
        refuse_context(mesh, "JAX on Neuron")
        refuse_experts(config.model, "JAX on Neuron")
    refuse_pipeline(config, mesh, "JAX")
    usable = agree_on_memory(team, find_usable_memory(world)) if config.remat == "auto" else None
    config = resolve_remat(config, mesh, "jax", usable)
    grid = arrange_devices(devices, mesh)
    share = assign_rows(grid, jax.process_index(), mesh.context)
    with translate_errors(world):
        return JaxEngine(config, world, build_step(config, mesh, grid), share, counter)


class JaxEngine:
    """Implements trainer.engine.Engine on all devices of the process."""

    def __init__(self, config: Config, world: World, step: Step, share: RowShare, counter: CompilationCounter) -> None:
        self._config, self._world, self._step, self._share = config, world, step, share
        self._counter = counter
        self._places = StatePlacement(step.leaves, step.grid, jax.process_index())
        self._state = self._places.first_values(config.seed)
        tables = [make(config.model, config.seq_len) for make in (make_rotary_table, make_local_rotary_table)]
        self._angles = self._replicate(np.concatenate(tables) if config.model.local_rope_theta else tables[0])
        self._stops = {stop: self._stop_flags(stop) for stop in (False, True)}
        self._program = Program(step.function, step.arguments, step.compiler_options)
        self._evaluation: Program | None = None
        self._newest: Array | None = None  # loss, norm and stops of a step

    @property
    def name(self) -> EngineName:
        return "jax"

    @property
    def mesh(self) -> Mesh:
        return self._step.recipe.arithmetic.mesh

    @property
    def share(self) -> RowShare:
        return self._share

    @property
    def read_every(self) -> int:
        return 1 if self._platform == "cpu" else _READ_EVERY

    @property
    def peak_flops(self) -> float | None:
        one = get_peak_flops(self._devices[0], self._config.products)
        return None if one is None else one * self.mesh.devices

    def headline(self) -> str:
        mesh, recipe = self.mesh, self._step.recipe
        threads = f", {self._world.threads(self._config.threads)} threads" if self._platform == "cpu" else ""
        context = f", context {mesh.context}" if mesh.context > 1 else ""
        stream = ", bf16 residual stream" if self._config.residual == "bf16" else ""
        return (
            f"jax {jax.__version__} on {mesh.devices} x {get_device_name(self._devices[0])}{threads}, "
            f"{self._config.products}{stream}, "
            f"mesh data {mesh.data} x fsdp {mesh.fsdp} x tensor {mesh.tensor}{context}, "
            f"{'scanned' if recipe.scanned else 'unrolled'} blocks, {recipe.kernel} attention"
            f"{f', remat {recipe.remat}' if recipe.remat != 'none' else ''}"
        )

    def notes(self) -> Sequence[str]:
        notes: list[str] = []
        if self._config.compiled:
            notes.append("compile=true: JAX always compiles")
        if self._platform == "tpu" and self._step.recipe.kernel == "plain":
            notes.append(
                "attention runs without the fused kernel, which needs bf16 and head_dim and seq_len divisible by 128"
            )
        return notes

    def program(self) -> str:
        return self._program.digest()

    def step(self, rows: TokenArray, rate: float, stop: bool, step: int) -> None:
        with translate_errors(self._world):
            self._state, numbers = self._program.run(
                self._state,
                self._to_devices(rows),
                self._angles,
                self._replicate(make_step_scalars(self._config.optim, rate, step)),
                self._stops[stop],
            )
        self._newest = numbers

    def numbers(self) -> Numbers:
        if self._newest is None:
            raise AssertionError("no step has been run yet")
        with translate_errors(self._world):
            loss, norm, stops, *router = np.asarray(self._newest).tolist()
        router_loss, share = router or (None, None)
        return Numbers(loss=loss, grad_norm=norm, stops=round(stops), router_loss=router_loss, expert_share=share)

    def evaluate(self, rows: TokenArray) -> float:
        step = self._step
        with translate_errors(self._world):
            if self._evaluation is None:
                self._evaluation = Program(step.evaluation, step.evaluation_arguments)
            weights = {key: self._state[key] for key in step.evaluation_arguments[0]}
            return float(np.asarray(self._evaluation.run(weights, self._to_devices(rows), self._angles)))

    def written(self) -> Sequence[TensorRegion]:
        return self._places.written

    def copy_out(self, into: Mapping[TensorRegion, FloatArray]) -> None:
        with translate_errors(self._world):
            self._places.copy_out(self._state, into)

    def needed(self) -> Sequence[TensorRegion]:
        return self._places.needed

    def load(self, values: Iterable[tuple[TensorRegion, FloatArray]]) -> None:
        self._newest = None
        with translate_errors(self._world):
            self._places.load(self._state, values)

    def memory(self) -> int | None:
        known: list[dict[str, int]] = [device.memory_stats() or {} for device in self._local]
        return max((one["peak_bytes_in_use"] for one in known if "peak_bytes_in_use" in one), default=None)

    def counters(self) -> Mapping[str, float]:
        return {"compilations": self._counter.count, "compile_seconds": self._counter.seconds}

    def diagnostics(self) -> Mapping[str, Any]:
        return {
            "platform": self._platform,
            "kind": self._devices[0].device_kind,
            "devices": [
                {"id": device.id, "process": device.process_index, "memory": device.memory_stats()}
                for device in self._local
            ],
            "kernel": self._step.recipe.kernel,
            "scanned": self._step.recipe.scanned,
            "rows_at_once": self._step.micro,
            "compiler_options": dict(self._step.compiler_options),
            "program": {**self._program.memory_sizes(), "compile_seconds": self._program.seconds},
        }

    def profile(self, folder: Path) -> AbstractContextManager[object]:
        recording: AbstractContextManager[object] = jax.profiler.trace(str(folder))
        return recording

    def close(self) -> None:
        self._counter.close()
        with translate_errors(self._world):
            jax.block_until_ready(self._state)
        close_devices(self._world)

    @property
    def _devices(self) -> Sequence[Any]:
        return list(self._step.grid.devices.flat)

    @property
    def _local(self) -> Sequence[Any]:
        return [device for device in self._devices if device.process_index == jax.process_index()]

    @property
    def _platform(self) -> str:
        return str(self._devices[0].platform)

    def _to_devices(self, rows: TokenArray) -> Array:
        """Place this process's rows, as its part of (micro-batches, rows of one, tokens) of the whole batch."""
        parts, width, micro = self._config.accumulate, rows.shape[1], self._step.micro
        shards = rows.reshape(self._share.count, parts, micro, width).astype(np.int32)
        shape = (parts, self.mesh.tensor_groups * micro, width)

        def part(index: tuple[slice, ...]) -> Any:
            start, _, _ = index[1].indices(shape[1])
            return shards[start // micro // self.mesh.context - self._share.first]

        result: Array = jax.make_array_from_callback(shape, make_rows_sharding(self._step.grid), part)
        return result

    def _replicate(self, values: FloatArray) -> Array:
        return self._array(values, make_sharding(self._step.grid))

    def _stop_flags(self, stop: bool) -> Array:
        """Make one number per device; this process's first device holds its stop request."""
        devices = self._devices
        flags = np.zeros(len(devices), np.float32)
        flags[devices.index(self._local[0])] = float(stop)
        return self._array(flags, make_sharding(self._step.grid, AXES))

    def _array(self, values: FloatArray, place: Sharding) -> Array:
        """Make a global array, without device_put's comparison of the values of all processes at each step."""

        def part(index: tuple[slice, ...]) -> FloatArray:
            return values[index]

        result: Array = jax.make_array_from_callback(values.shape, place, part)
        return result
