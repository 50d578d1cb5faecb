"""What is likely to go wrong or to waste money, each with the settings that would mend it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from trainer.config import AUTO, Config
from trainer.errors import ConfigError
from trainer.shape.hardware import Hardware
from trainer.shape.memory import Engine, Memory, memory, usable_memory
from trainer.shape.mesh import Mesh, Topology, resolve
from trainer.shape.timing import Timing

Code: TypeAlias = Literal[
    "memory", "memory-tight", "head-dim", "padding", "fp16", "fp32", "small-batch", "network", "vocabulary", "mesh"
]
GIB = 1 << 30
TIGHT = 0.9  # of what is usable; the estimate itself is good to about a fifth
LANES = 128  # TPU: width of the matrix unit (256 from v6e on) and of a vector register's row
CUDA_STEP = 8  # CUDA: tensor cores want multiples of 16 bytes
FEW_TOKENS = 512  # of a micro-batch on a device; below about 300 reading the weights takes longer than the products
HALF = 0.5
WORTH = 0.02  # share of a product's time that padding may waste unsaid


@dataclass(frozen=True, slots=True)
class Concern:
    """code: stable short name. fatal: the run would end by it. fix: key=value words; () when none is known."""

    code: Code
    words: str
    fix: tuple[str, ...] = ()
    fatal: bool = False

    @property
    def line(self) -> str:
        return f"{self.words}: {' '.join(self.fix)}" if self.fix else self.words


def mesh_for(config: Config, hardware: Hardware) -> Mesh:
    """As the engines choose it. Raises ConfigError when it does not fit the devices, the model or the batch."""
    topology = Topology(hardware.devices, _fast(config, hardware), divide=hardware.kind != "cpu")
    mesh = resolve(config.mesh, topology, config.model)
    config.rows_per_micro_batch(mesh.shards)
    return mesh


def _fast(config: Config, hardware: Hardware) -> int:
    """Devices that a copy's weights are divided among: torch's own devices go by hosts, torch_xla and JAX by slices."""
    native = config.engine == "torch" and config.device != "xla"
    return hardware.devices_per_host if native else hardware.fast


def concerns(
    config: Config, mesh: Mesh, hardware: Hardware, engine: Engine, need: Memory, time: Timing
) -> tuple[Concern, ...]:
    """The gravest first."""
    found = [
        *_of_memory(config, hardware, engine, need),
        *_of_arithmetic(config, hardware),
        *_of_shapes(config, mesh, hardware),
        *_of_batch(config, mesh, hardware, time),
        *_of_vocabulary(config),
    ]
    return tuple(sorted(found, key=lambda concern: not concern.fatal))


def _of_memory(config: Config, hardware: Hardware, engine: Engine, need: Memory) -> Iterator[Concern]:
    usable = usable_memory(hardware)
    if usable is None or need.total <= TIGHT * usable:
        return
    has = f"about {need.total / GIB:.1f} GiB of the {usable / GIB:.1f} GiB that a device has"
    fix = fitting(config, hardware, engine)
    if need.total > usable:
        words = f"does not fit: needs {has}"
        yield Concern("memory", words if fix else f"{words}, and no setting mends that: take more devices", fix, True)
    else:
        yield Concern("memory-tight", f"memory is tight: {has}", fix)


def fitting(config: Config, hardware: Hardware, engine: Engine) -> tuple[str, ...]:
    """The smallest change known to make the step fit with room: words for the command line, () when none does."""
    usable = usable_memory(hardware)
    if usable is None:
        return ()
    for words, changed in _changes(config, hardware):
        try:
            mesh = mesh_for(changed, hardware)
        except ConfigError:
            continue
        if memory(changed, mesh, engine).total <= TIGHT * usable:
            return words
    return ()


def _changes(config: Config, hardware: Hardware) -> Iterator[tuple[tuple[str, ...], Config]]:
    """From what costs least: more micro-batches, recomputation, both, more division of the weights, tensor too."""
    divisions: list[tuple[tuple[str, ...], Config]] = [((), config)]
    divided = dataclasses.replace(config.mesh, data=AUTO, fsdp=hardware.devices)
    if hardware.devices > 1 and config.mesh.fsdp != hardware.devices:
        divisions.append(((f"mesh.fsdp={hardware.devices}",), dataclasses.replace(config, mesh=divided)))
    for tensor in (2, 4, 8):
        if tensor > config.mesh.tensor and hardware.fast % tensor == 0:
            fsdp = hardware.devices // tensor
            mesh = dataclasses.replace(config.mesh, data=AUTO, fsdp=fsdp, tensor=tensor)
            words = (f"mesh.fsdp={fsdp}", f"mesh.tensor={tensor}")
            divisions.append((words, dataclasses.replace(config, mesh=mesh)))
    for division, base in divisions:
        for remat in (False, True):
            for times in (1, 2, 4, 8, 16, 32, 64):
                changed = dataclasses.replace(base, accumulate=base.accumulate * times, remat=base.remat or remat)
                words = (
                    *division,
                    *(("remat=true",) if remat and not base.remat else ()),
                    *((f"accumulate={changed.accumulate}",) if times > 1 else ()),
                )
                if words and (not remat or not base.remat):
                    yield words, changed


def _of_arithmetic(config: Config, hardware: Hardware) -> Iterator[Concern]:
    if config.dtype == "fp16":
        more = ", and Neuron's compiler has no fp16 training" if hardware.kind == "neuron" else ""
        words = f"fp16 needs loss scaling, which is not there{more}; products are in bf16"
        yield Concern("fp16", words, ("dtype=bf16",))
    if config.dtype == "fp32" and hardware.kind != "cpu":
        yield Concern("fp32", "products in fp32 take several times as long as in bf16 here", ("dtype=bf16",))


def _of_shapes(config: Config, mesh: Mesh, hardware: Hardware) -> Iterator[Concern]:
    model = config.model
    if hardware.kind == "tpu" and model.head_dim % LANES:
        heads = model.dim // LANES
        fits = not model.head and model.dim % LANES == 0 and heads % _near_divisor(heads, model.kv_heads) == 0
        fix = (f"model.heads={heads}", f"model.kv_heads={_near_divisor(heads, model.kv_heads)}") if fits else ()
        words = f"a head is {model.head_dim} wide; TPUs compute 128 at a time and fill up the rest"
        yield Concern("head-dim", words, fix)
    step = LANES if hardware.kind in ("tpu", "neuron") else CUDA_STEP
    if hardware.kind == "cpu":
        return
    sizes = (
        ("model.dim", model.dim, 1),
        ("model.ffn", model.hidden, mesh.tensor),
        ("seq_len", config.seq_len, 1),
        ("model.vocab", model.tokens, mesh.tensor),
    )
    odd = [(name, size, parts) for name, size, parts in sizes if size % (step * parts)]
    for name, size, parts in odd:
        unit = step * parts
        better = -(-size // unit) * unit
        if name == "model.vocab" and model.vocab == AUTO:
            continue
        if hardware.kind == "tpu" and better - size < WORTH * size:
            continue
        words = f"{name}={size} is no multiple of {unit}; the compiler fills every product up to it"
        yield Concern("padding", words, (f"{name}={better}",))


def _near_divisor(heads: int, wanted: int) -> int:
    return max(n for n in range(1, max(1, min(heads, wanted)) + 1) if heads % n == 0)


def _of_batch(config: Config, mesh: Mesh, hardware: Hardware, time: Timing) -> Iterator[Concern]:
    if hardware.kind == "cpu":
        return
    rows = config.rows_per_micro_batch(mesh.shards)
    tokens = rows * config.seq_len
    if tokens < FEW_TOKENS and hardware.kind in ("tpu", "cuda", "neuron"):
        more = _multiple(config.batch, FEW_TOKENS / tokens)
        fix = (f"accumulate={max(1, config.accumulate // 2)}",) if config.accumulate > 1 else (f"batch={more}",)
        words = f"a device takes only {tokens} tokens at once, too few to fill its matrix units"
        yield Concern("small-batch", words, fix)
    elif time.network_seconds and time.seconds and time.network_seconds > HALF * time.seconds[1]:
        share = f"the network takes {time.network_seconds:.2g} s of a step, the products {_products(time):.2g} s"
        fix = (f"accumulate={config.accumulate // 2}",) if config.accumulate > 1 else (f"batch={2 * config.batch}",)
        yield Concern("network", f"{share}; more tokens for each exchange would help", fix)


def _products(time: Timing) -> float:
    """Seconds of a step without the network, at the longest."""
    longest = time.seconds[1] if time.seconds else 0.0
    return longest - (time.network_seconds or 0.0)


def _multiple(batch: int, factor: float) -> int:
    times = 1
    while times < factor:
        times *= 2
    return batch * times


def _of_vocabulary(config: Config) -> Iterator[Concern]:
    if config.model.vocab == AUTO and config.data.tokenizer != "bytes" and not _is_bytes(config.data.source):
        words = f"the vocabulary comes from the data; counted as {config.model.tokens}, which is bytes"
        yield Concern("vocabulary", f"{words}. For tokens give", ("model.vocab=SIZE",))


def _is_bytes(source: str) -> bool:
    return source.partition(":")[0] == "python-stdlib"


def ordinary(found: Sequence[Concern]) -> tuple[Concern, ...]:
    """Those that the run would survive."""
    return tuple(concern for concern in found if not concern.fatal)
