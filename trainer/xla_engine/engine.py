"""The engine for lazily traced devices: a step is traced once, compiled for the whole mesh, and reused.

The model, the optimizers and their state are the torch engine's. Here they are one logical replica; the compiler shards
it as trainer/shape/layout.py specifies and adds the sums between devices.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainer.accelerators.peaks import find_peak_flops
from trainer.accelerators.usable_memory import find_usable_share
from trainer.agreement import agree_on_memory
from trainer.config import Config, EngineName
from trainer.engine import FloatArray, Numbers, TokenArray
from trainer.environment import World
from trainer.errors import ConfigError, DeviceError
from trainer.shape.architecture import list_parameters
from trainer.shape.box import Box, TensorRegion
from trainer.shape.memory import resolve_remat
from trainer.shape.mesh import Mesh, RowShare, assign_rows, check_batch, refuse_context
from trainer.shape.pipeline import refuse_pipeline
from trainer.team import Team
from trainer.torch_engine.adamw import AdamW
from trainer.torch_engine.loss import compute_mean_loss
from trainer.torch_engine.model import Transformer
from trainer.torch_engine.optimizer import AveragedWeights
from trainer.torch_engine.slots import Slot
from trainer.xla_engine.runtime import Runtime, ShardingMarker, load_module
from trainer.xla_engine.state import State

_READ_EVERY = 10  # reading waits for the devices, and delays the trace of the next step


def open_xla_engine(config: Config, world: World, team: Team) -> XlaEngine:
    """Open the engine with initial values in the weights.

    Raises:
        DeviceError: torch_xla or the device is missing.
        ConfigError: The mesh or the batch does not fit the devices.
        PeerError: Another rank is lost.
    """
    if config.marked:
        raise ConfigError(
            "device=xla trains on all tokens, but the data marks some (chat): use data.loss=all, or another --backend"
        )
    if config.data.document_mask:
        raise ConfigError("device=xla attends across documents: leave data.document_mask out, or use another --backend")
    if config.optim.kind != "adamw":
        raise ConfigError(
            f"device=xla has only optim.kind=adamw, not {config.optim.kind}: use it, or another --backend"
        )
    if config.lora.rank:
        raise ConfigError(
            f"lora.rank={config.lora.rank}: device=xla has no LoRA adapters: use another --backend, or lora.rank=0"
        )
    if config.model.experts:
        raise ConfigError(f"model.experts={config.model.experts}: device=xla has no experts: use another --backend")
    torch.set_num_threads(world.threads(config.threads))
    runtime = Runtime(world, team)
    mesh = runtime.mesh(config)
    refuse_context(mesh, "torch_xla")
    refuse_pipeline(config, mesh, "torch_xla")
    check_batch(config, mesh)
    usable = agree_on_memory(team, find_usable_share(runtime.describe())) if config.remat == "auto" else None
    config = resolve_remat(replace(config, device="xla"), mesh, "torch", usable)
    with translate_errors():
        return XlaEngine(config, runtime, mesh)


class XlaEngine:
    """Implements trainer.engine.Engine on all devices of the process."""

    name: EngineName = "torch"
    read_every = _READ_EVERY

    def __init__(self, config: Config, runtime: Runtime, mesh: Mesh) -> None:
        self._config, self._runtime, self.mesh = config, runtime, mesh
        self.share: RowShare = assign_rows(mesh, runtime.world.rank, runtime.world.size)
        self._marks = ShardingMarker(runtime, mesh)
        self._model = _model(config, runtime.device, self._marks)
        self._slots = _slots(self._model, config)
        with torch.no_grad():
            self._optimizer = AdamW(self._slots, config.optim, fused=False)
            self._averages = AveragedWeights(self._slots, config.optim) if config.optim.ema else None
        devices = range(runtime.first, runtime.first + runtime.local)
        self._state = State(self._slots, self._optimizer, self._averages, mesh, self._marks, devices)
        self._state.fill(config.seed)
        # Loss, norm and stops of a step on the devices; the stops on the host where this process is the only one.
        self._newest: tuple[Tensor, int | None] | None = None

    @property
    def peak_flops(self) -> float | None:
        one = find_peak_flops(self._runtime.describe(), self._config.products)
        return None if one is None else one * self.mesh.devices

    def headline(self) -> str:
        mesh, count = self.mesh, self._runtime.count
        return (
            f"torch_xla {self._runtime.xla.__version__} on {count} {self._runtime.plugin} devices, "
            f"mesh data={mesh.data} fsdp={mesh.fsdp} tensor={mesh.tensor} (SPMD)"
        )

    def notes(self) -> Sequence[str]:
        return ["attention on xla uses torch's plain products: its memory grows with seq_len squared"]

    def program(self) -> str:
        config = self._config
        parts = {
            "model": asdict(config.model),
            "optim": asdict(config.optim),
            "mesh": asdict(self.mesh),
            "step": [config.batch, config.seq_len, config.accumulate, config.grad_clip, config.recomputed],
            "dtype": "fp32" if config.products == "fp32" else "bf16",
            "versions": [torch.__version__, self._runtime.xla.__version__],
            "plugin": self._runtime.plugin,
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def step(self, rows: TokenArray, rate: float, stop: bool, step: int) -> None:
        with translate_errors():
            loss = self._backward(rows)
            gradients = [_gradient(slot) for slot in self._slots]
            norm = torch.sqrt(torch.stack([gradient.square().sum() for gradient in gradients]).sum())
            limit = self._config.grad_clip
            factor = torch.clamp(limit / (norm + 1e-6), max=1.0) if limit else None
            self._optimizer.apply(gradients, factor, rate, step)
            if self._averages is not None:
                with torch.no_grad():
                    self._averages.apply()
            self._state.mark_shardings()
            alone = self._runtime.world.size == 1
            stops = torch.zeros_like(loss) if alone else self._marks.count_stops(stop)
            self._newest = (torch.stack((loss, norm, stops)), int(stop) if alone else None)
            self._marks.run_trace()

    def numbers(self) -> Numbers:
        if self._newest is None:
            raise AssertionError("no step has been run yet")
        numbers, own = self._newest
        with translate_errors():
            loss, norm, stops = (float(number) for number in numbers.cpu())
        return Numbers(loss=loss, grad_norm=norm, stops=round(stops) if own is None else own)

    def evaluate(self, rows: TokenArray) -> float:
        with translate_errors(), torch.no_grad():
            total = sum((loss for loss in self._losses(rows)), torch.zeros((), device=self._runtime.device))
            self._marks.run_trace()
            return float(total.cpu())

    def written(self) -> Sequence[TensorRegion]:
        return self._state.written()

    def copy_out(self, into: Mapping[TensorRegion, FloatArray]) -> None:
        with translate_errors():
            self._state.copy_out(into)

    def needed(self) -> Sequence[TensorRegion]:
        return self._state.needed()

    def load(self, values: Iterable[tuple[TensorRegion, FloatArray]]) -> None:
        with translate_errors():
            self._state.load(values)

    def memory(self) -> int | None:
        try:
            return int(self._runtime.model.get_memory_info(self._runtime.device)["peak_bytes_used"])
        except (RuntimeError, KeyError):  # the CPU's allocator does not count
            return None

    def counters(self) -> Mapping[str, float]:
        """Return the number and seconds of compilations, and of operations that ran on the CPU instead (fallbacks)."""
        data = self._runtime.metrics.metric_data("CompileTime")
        count, nanoseconds = (data[0], data[1]) if data else (0, 0)
        fallbacks = self._runtime.metrics.executed_fallback_ops()
        return {
            "compilations": float(count),
            "compile_seconds": round(nanoseconds / 1e9, 3),
            "fallbacks": float(len(fallbacks)),
        }

    def diagnostics(self) -> Mapping[str, Any]:
        metrics = self._runtime.metrics
        return {
            "device": self._runtime.describe().as_json(),
            "plugin": self._runtime.plugin,
            "torch": torch.__version__,
            "torch_xla": self._runtime.xla.__version__,
            "mesh": asdict(self.mesh),
            "order": list(self._runtime.order),
            "counters": dict(self.counters()),
            "fallback_ops": list(metrics.executed_fallback_ops()),
            "notes": list(self.notes()),
            "library": metrics.short_metrics_report().splitlines(),
        }

    def profile(self, folder: Path) -> AbstractContextManager[object]:
        return _trace(folder)

    def close(self) -> None:
        self._runtime.model.wait_device_ops()

    def _backward(self, rows: TokenArray) -> Tensor:
        """Compute the gradients, and return the mean loss."""
        for slot in self._slots:
            slot.handle.grad = None
        total = torch.zeros((), device=self._runtime.device)
        for loss in self._losses(rows):
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            total = total + loss.detach()
        return total

    def _losses(self, rows: TokenArray) -> Iterator[Tensor]:
        """Yield each micro-batch's part of the mean loss."""
        count = self._config.accumulate
        each = len(rows) // count
        for index in range(count):
            micro = self._marks.send_rows(rows[index * each : (index + 1) * each], self.share).long()
            with self._autocast():
                hidden = self._model(micro[:, :-1])
                head, softcap = self._model.head_weight(), self._config.model.softcap
                loss = compute_mean_loss(hidden, head, micro[:, 1:], softcap) / count
            yield loss

    def _autocast(self) -> AbstractContextManager[object]:
        if self._config.products == "fp32":
            return nullcontext()
        return torch.autocast(device_type="xla", dtype=torch.bfloat16)


@contextmanager
def translate_errors() -> Generator[None]:
    """Translate XLA's errors into DeviceError."""
    try:
        yield
    except RuntimeError as error:
        text = str(error).strip() or type(error).__name__
        if "RESOURCE_EXHAUSTED" in text or "out of memory" in text.lower():
            raise DeviceError(
                f"the devices are out of memory: {text.splitlines()[0]}; use remat=full, a larger accumulate, or "
                "more devices in mesh.fsdp"
            ) from error
        raise


def _model(config: Config, device: torch.device, marks: ShardingMarker) -> Transformer:
    """Build the model on the device, without initial values."""
    with torch.device("meta"):
        rerun = _rerun() if config.recomputed == "full" else None
        model = Transformer(config.model, config.seq_len, rerun, residual=config.residual)
    model.to_empty(device=device)
    with torch.no_grad():
        model.fill_tables()

    def divide(_module: object, _inputs: object, output: Tensor) -> Tensor:
        return marks.mark_rows(output)

    # Activations between blocks stay sharded by rows, so that the compiler chooses no other sharding.
    for part in (model.embedding, *model.blocks):
        part.register_forward_hook(divide)
    return model


def _rerun() -> Callable[..., Tensor]:
    # torch's own version does not support lazy devices; torch_xla's supports only the reentrant kind.
    checkpoint: Any = load_module("torch_xla.utils.checkpoint").checkpoint

    def rerun(function: Callable[..., Tensor], *arguments: Any) -> Tensor:
        result: Tensor = checkpoint(function, *arguments, use_reentrant=True, preserve_rng_state=False)
        return result

    return rerun


def _slots(model: Transformer, config: Config) -> list[Slot]:
    handles = dict(model.named_parameters())
    return [
        Slot(
            position=position,
            parameter=parameter,
            box=Box.whole(parameter.shape),
            handle=handles[parameter.name],
            weight=handles[parameter.name],
        )
        for position, parameter in enumerate(list_parameters(config.model))
    ]


def _gradient(slot: Slot) -> Tensor:
    grad = slot.handle.grad
    return torch.zeros_like(slot.weight) if grad is None else grad


@contextmanager
def _trace(folder: Path) -> Generator[None]:
    """Write a profile for TensorBoard's profile page and xprof."""
    profiler = load_module("torch_xla.debug.profiler")
    folder.mkdir(parents=True, exist_ok=True)
    profiler.start_trace(str(folder))
    try:
        yield
    finally:
        load_module("torch_xla.core.xla_model").wait_device_ops()
        profiler.stop_trace()
