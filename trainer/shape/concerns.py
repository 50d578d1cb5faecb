"""Likely problems and wasted money of a run, each with the settings that fix it."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from trainer.config import AUTO, Config
from trainer.errors import ConfigError
from trainer.shape.hardware import Hardware
from trainer.shape.limits import refuse_experts
from trainer.shape.memory import TIGHT, Memory, estimate_memory, estimate_usable_memory, list_levels
from trainer.shape.mesh import Mesh, Topology, check_batch, refuse_context, resolve_mesh
from trainer.shape.pipeline import compute_slowdown, refuse_pipeline
from trainer.shape.step_memory import Engine
from trainer.shape.timing import Timing

Code: TypeAlias = Literal[
    "memory",
    "memory-tight",
    "head-dim",
    "padding",
    "fp32",
    "uncompiled",
    "exact",
    "small-batch",
    "network",
    "vocabulary",
    "mesh",
    "optimizer",
    "lora",
    "documents",
    "loss",
    "window",
    "pipeline",
]
GIB = 1 << 30
LANES = 128  # TPU: width of the matrix unit (256 from v6e on) and of a vector register's row
CUDA_STEP = 8  # CUDA: tensor cores need multiples of 16 bytes
FEW_TOKENS = 512  # per micro-batch and device; below about 300 reading the weights takes longer than the products
CONTEXTS = (2, 4, 8, 16, 32, 64)  # tried where a row does not fit otherwise
HALF = 0.5
WAITING = 0.2  # share of a step that stages of a pipeline may wait without a concern
NEGLIGIBLE = 0.02  # share of a product's time that padding may waste without a concern


@dataclass(frozen=True, slots=True, kw_only=True)
class Concern:
    """One problem.

    Attributes:
        code: Stable short name.
        words: The message.
        fix: KEY=VALUE settings that fix it; empty when none is known.
        fatal: Whether the run would end because of it.
    """

    code: Code
    words: str
    fix: tuple[str, ...] = ()
    fatal: bool = False

    @property
    def line(self) -> str:
        return f"{self.words}: {' '.join(self.fix)}" if self.fix else self.words


def choose_mesh(config: Config, hardware: Hardware) -> Mesh:
    """Choose the mesh as the engines do.

    Raises:
        ConfigError: It does not fit the devices, the model or the batch.
    """
    topology = Topology(hardware.devices, _fast(config, hardware), shard_weights=hardware.kind != "cpu")
    mesh = resolve_mesh(config.mesh, topology, config.model)
    device = _name_untried(config, hardware)
    if device:
        refuse_context(mesh, device)
        refuse_experts(config.model, device)
    refuse_pipeline(config, mesh, "JAX" if config.engine == "jax" else device)
    check_batch(config, mesh)
    return mesh


def _name_untried(config: Config, hardware: Hardware) -> str:
    """Name what computes, where some programs were never tried; else nothing."""
    if config.device == "xla":
        return "torch_xla"
    if hardware.kind == "tpu" and config.engine == "torch":
        return "torch on a TPU"
    return "Neuron" if hardware.kind == "neuron" else ""


def _fast(config: Config, hardware: Hardware) -> int:
    """Return the number of devices over which one copy of the weights is sharded.

    Devices that torch drives itself are grouped by host; those of torch_xla and JAX by slice.
    """
    native = config.engine == "torch" and config.device != "xla"
    return hardware.devices_per_host if native else hardware.fast_devices


def find_concerns(
    config: Config, mesh: Mesh, hardware: Hardware, engine: Engine, need: Memory, time: Timing
) -> tuple[Concern, ...]:
    """Return all concerns, the gravest first."""
    found = [
        *_of_memory(config, hardware, engine, need),
        *_of_arithmetic(config, hardware),
        *_of_shapes(config, mesh, hardware),
        *_of_batch(config, mesh, hardware, time),
        *_of_stages(config, mesh),
        *_of_vocabulary(config),
        *_of_adapters(config),
        *_of_window(config),
        *_of_torch_xla(config, hardware),
    ]
    return tuple(sorted(found, key=lambda concern: not concern.fatal))


def _of_window(config: Config) -> Iterator[Concern]:
    """Name a setting of blocks without a window where no block has one."""
    if config.model.full_every and not config.model.window:
        words = "model.full_every has no effect without model.window, as each block attends to all tokens"
        yield Concern(code="window", words=words, fix=("model.full_every=0",))


def _of_memory(config: Config, hardware: Hardware, engine: Engine, need: Memory) -> Iterator[Concern]:
    usable = estimate_usable_memory(hardware)
    if usable is None or need.total <= TIGHT * usable:
        return
    has = f"about {need.total / GIB:.1f} GiB of the {usable / GIB:.1f} GiB that a device has"
    fix = find_fitting_settings(config, hardware, engine)
    if need.total > usable:
        words = f"does not fit: needs {has}"
        yield Concern(
            code="memory",
            words=words if fix else f"{words}, also with remat and smaller micro-batches: use more devices",
            fix=fix,
            fatal=True,
        )
    else:
        yield Concern(code="memory-tight", words=f"memory is tight: {has}", fix=fix)


def find_fitting_settings(config: Config, hardware: Hardware, engine: Engine) -> tuple[str, ...]:
    """Return the smallest known change that makes a step fit with a margin.

    Returns:
        KEY=VALUE settings; empty when no change is sufficient.
    """
    usable = estimate_usable_memory(hardware)
    if usable is None:
        return ()
    for words, changed in _changes(config, hardware):
        try:
            mesh = choose_mesh(changed, hardware)
        except ConfigError:
            continue
        if estimate_memory(changed, mesh, engine).total <= TIGHT * usable:
            return words
    return ()


def _changes(config: Config, hardware: Hardware) -> Iterator[tuple[tuple[str, ...], Config]]:
    """Yield changes from the cheapest: more micro-batches, recomputation, both, more sharding, the tensor axis.

    Then rows are divided over devices, for which nothing else is sufficient. Numbers of micro-batches beyond the usual
    doublings come last.
    """
    divisions: list[tuple[tuple[str, ...], Config]] = [((), config)]
    devices = hardware.devices // config.mesh.pipeline
    divided = dataclasses.replace(config.mesh, data=AUTO, fsdp=devices)
    if devices > 1 and config.mesh.fsdp != devices:
        divisions.append(((f"mesh.fsdp={devices}",), dataclasses.replace(config, mesh=divided)))
    for tensor in (2, 4, 8):
        if tensor > config.mesh.tensor and hardware.fast_devices % tensor == 0:
            fsdp = devices // tensor
            mesh = dataclasses.replace(config.mesh, data=AUTO, fsdp=fsdp, tensor=tensor)
            words = (f"mesh.fsdp={fsdp}", f"mesh.tensor={tensor}")
            divisions.append((words, dataclasses.replace(config, mesh=mesh)))
    for context in CONTEXTS:
        if context > config.mesh.context and devices % (context * config.mesh.tensor) == 0:
            fsdp = devices // config.mesh.tensor
            mesh = dataclasses.replace(config.mesh, data=AUTO, fsdp=fsdp, context=context)
            words = (f"mesh.fsdp={fsdp}", f"mesh.context={context}")
            divisions.append((words, dataclasses.replace(config, mesh=mesh)))
    levels = list_levels(config)
    levels = levels[levels.index(config.recomputed) :]
    usual = [config.accumulate * times for times in (1, 2, 4, 8, 16, 32, 64)]
    for accumulations in (usual, _list_further_accumulations(config, usual)):
        for (division, base), level, accumulate in itertools.product(divisions, levels, accumulations):
            words = (
                *division,
                *((f"remat={level}",) if level != config.recomputed else ()),
                *((f"accumulate={accumulate}",) if accumulate > base.accumulate else ()),
            )
            if words and level in list_levels(base):
                yield words, dataclasses.replace(base, accumulate=accumulate, remat=level)


def _list_further_accumulations(config: Config, usual: Sequence[int]) -> list[int]:
    """Return the larger numbers of micro-batches that divide the batch and are not among the usual ones."""
    small = [count for count in range(1, math.isqrt(config.batch) + 1) if config.batch % count == 0]
    divisors = sorted({*small, *(config.batch // count for count in small)})
    return [count for count in divisors if count > config.accumulate and count not in usual]


def _of_arithmetic(config: Config, hardware: Hardware) -> Iterator[Concern]:
    if config.products == "fp32" and hardware.kind != "cpu" and hardware.has_bf16:
        yield Concern(
            code="fp32", words="products in fp32 take several times as long as in bf16 here", fix=("dtype=bf16",)
        )
    if hardware.kind == "cuda" and config.engine == "torch" and not config.compiled:
        yield Concern(code="uncompiled", words="an uncompiled step takes about a quarter longer", fix=("compile=true",))
    if hardware.kind == "cuda" and config.engine == "torch" and config.exact:
        yield Concern(code="exact", words="repeatable kernels take about a tenth longer", fix=("exact=false",))


def _of_shapes(config: Config, mesh: Mesh, hardware: Hardware) -> Iterator[Concern]:
    model = config.model
    if hardware.kind == "tpu" and model.head_dim % LANES:
        heads = model.dim // LANES
        fits = not model.head and model.dim % LANES == 0 and heads % _near_divisor(heads, model.kv_heads) == 0
        fix = (f"model.heads={heads}", f"model.kv_heads={_near_divisor(heads, model.kv_heads)}") if fits else ()
        words = f"a head is {model.head_dim} wide; TPUs compute 128 at a time and pad the rest"
        yield Concern(code="head-dim", words=words, fix=fix)
    step = LANES if hardware.kind in ("tpu", "neuron") else CUDA_STEP
    if hardware.kind == "cpu":
        return
    sizes = (
        ("model.dim", model.dim, 1),
        ("model.expert_hidden", model.expert_dim, 1) if model.experts else ("model.ffn", model.hidden, mesh.tensor),
        ("seq_len", config.seq_len, 1),
        ("model.vocab", model.tokens, mesh.tensor),
    )
    odd = [(name, size, parts) for name, size, parts in sizes if size % (step * parts)]
    for name, size, parts in odd:
        unit = step * parts
        better = -(-size // unit) * unit
        if name == "model.vocab" and model.vocab == AUTO:
            continue
        if hardware.kind == "tpu" and better - size < NEGLIGIBLE * size:
            continue
        words = f"{name}={size} is not a multiple of {unit}; the compiler pads every product to it"
        yield Concern(code="padding", words=words, fix=(f"{name}={better}",))


def _near_divisor(heads: int, most: int) -> int:
    return max(n for n in range(1, max(1, min(heads, most)) + 1) if heads % n == 0)


def _of_batch(config: Config, mesh: Mesh, hardware: Hardware, time: Timing) -> Iterator[Concern]:
    if hardware.kind == "cpu":
        return
    rows = config.rows_per_micro_batch(mesh.shards)
    tokens = rows * config.seq_len // mesh.context
    can_halve = config.accumulate // 2 >= mesh.pipeline
    if tokens < FEW_TOKENS and hardware.kind in ("tpu", "cuda", "neuron"):
        more = _multiple(config.batch, FEW_TOKENS / tokens)
        fix = (f"accumulate={config.accumulate // 2}",) if can_halve else (f"batch={more}",)
        words = f"a device computes only {tokens} tokens at a time, too few to fill its matrix units"
        yield Concern(code="small-batch", words=words, fix=fix)
    elif time.network_seconds and time.seconds and time.network_seconds > HALF * time.seconds[1]:
        share = f"the network takes {time.network_seconds:.2g} s of a step, the products {_products(time):.2g} s"
        fix = (f"accumulate={config.accumulate // 2}",) if can_halve else (f"batch={2 * config.batch}",)
        yield Concern(code="network", words=f"{share}; more tokens per exchange would help", fix=fix)


def _of_stages(config: Config, mesh: Mesh) -> Iterator[Concern]:
    """Name a pipeline whose stages wait for much of a step, and the fewest micro-batches with which they do not."""
    share = 1 - 1 / compute_slowdown(mesh, config.accumulate)
    if share <= WAITING:
        return
    rows = config.rows_per_micro_batch(mesh.shards) * config.accumulate
    counts = (count for count in range(config.accumulate + 1, rows + 1) if rows % count == 0)
    enough = next((count for count in counts if 1 - 1 / compute_slowdown(mesh, count) <= WAITING), None)
    words = f"each stage of the pipeline waits for {100 * share:.0f} % of a step"
    if enough is None:
        yield Concern(code="pipeline", words=f"{words}: use more rows in a batch, and more micro-batches")
    else:
        yield Concern(code="pipeline", words=f"{words}, less with more micro-batches", fix=(f"accumulate={enough}",))


def _products(time: Timing) -> float:
    """Return the longest seconds of a step without the network."""
    longest = time.seconds[1] if time.seconds else 0.0
    return longest - (time.network_seconds or 0.0)


def _multiple(batch: int, factor: float) -> int:
    times = 1
    while times < factor:
        times *= 2
    return batch * times


def _of_vocabulary(config: Config) -> Iterator[Concern]:
    if not is_vocabulary_known(config):
        words = f"the vocabulary depends on the data; assumed to be {config.model.tokens}, as for bytes"
        yield Concern(code="vocabulary", words=f"{words}. For other tokenizers set", fix=("model.vocab=SIZE",))


def _of_adapters(config: Config) -> Iterator[Concern]:
    if config.lora.rank and config.optim.kind == "muon":
        words = "Muon updates the matrices that LoRA freezes: the run ends when it starts"
        yield Concern(code="optimizer", words=words, fix=("optim.kind=adamw",), fatal=True)


def _of_torch_xla(config: Config, hardware: Hardware) -> Iterator[Concern]:
    """Yield what trainer/xla_engine/engine.py refuses at its start.

    With device=auto torch takes it on TPUs without TorchTPU, and what will be installed there is unknown here.
    """
    if config.device == "xla":
        for code, words, fix in _list_torch_xla_refusals(config):
            yield Concern(code=code, words=f"torch_xla {words} ends when it starts", fix=(fix,), fatal=True)
    elif config.device == "auto" and config.engine == "torch" and hardware.kind == "tpu":
        where = "where TorchTPU is not installed, device=auto is torch_xla, which"
        for code, words, _ in _list_torch_xla_refusals(config):
            yield Concern(code=code, words=f"{where} {words} ends when it starts", fix=("device=tpu",))


def _list_torch_xla_refusals(config: Config) -> Iterator[tuple[Code, str, str]]:
    """Yield the code of each refusal, what torch_xla lacks, and the setting that avoids it."""
    if config.optim.kind != "adamw":
        yield "optimizer", f"has only AdamW: a run with optim.kind={config.optim.kind}", "optim.kind=adamw"
    if config.lora.rank:
        yield "lora", "has no LoRA: a run with it", "lora.rank=0"
    if config.data.document_mask:
        yield "documents", "has no document masks: a run with them", "data.document_mask=false"
    if config.marked:
        yield "loss", "trains on all tokens: a run with data.loss=marked", "data.loss=all"


def is_vocabulary_known(config: Config) -> bool:
    """Return whether the size of the vocabulary follows from the settings, and not only from the data."""
    in_bytes = config.data.tokenizer == "bytes" or config.data.source.partition(":")[0] == "python-stdlib"
    return config.model.vocab != AUTO or in_bytes


def ordinary(found: Sequence[Concern]) -> tuple[Concern, ...]:
    """Those that the run would survive."""
    return tuple(concern for concern in found if not concern.fatal)
