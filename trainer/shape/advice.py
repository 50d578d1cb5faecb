"""Advice on a run before anything is rented: what it needs and costs, as one value, as JSON or as a few lines."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from trainer.accelerators.tpu_compiler_options import choose_compiler_options, format_compiler_options
from trainer.arithmetic import resolve_arithmetic
from trainer.config import Config
from trainer.errors import ConfigError
from trainer.shape.architecture import count_active_parameters, count_parameters
from trainer.shape.concerns import GIB, Concern, choose_mesh, find_concerns, is_vocabulary_known
from trainer.shape.float8 import refuse_float8
from trainer.shape.hardware import Hardware
from trainer.shape.lora import count_trained_parameters
from trainer.shape.memory import ESTIMATE_ERROR, Memory, Moment, estimate_memory, estimate_usable_memory, resolve_remat
from trainer.shape.mesh import Mesh
from trainer.shape.step_identity import identify_step, name_framework
from trainer.shape.step_memory import Engine
from trainer.shape.timing import Timing, estimate_timing

TOKENS_PER_PARAMETER = 20  # compute-optimal ratio (Hoffmann et al. 2022)
_BILLION = 1e9
_MOMENTS: Final[Mapping[Moment, str]] = {
    "step": "",
    "loss": " (peak: the loss)",
    "backward-start": " (peak: start of the backward pass)",
    "backward-end": " (peak: end of the backward pass)",
    "embedding": " (peak: gradient of the embedding)",
}
_USUAL_TOKEN_BYTES = 2  # of a vocabulary that depends on the data: usual tokenizers have up to 65,536 tokens


@dataclass(frozen=True, slots=True)
class Cost:
    """US dollars, (lowest, highest), at the list price while the steps run; start-up and lost hosts are not included.

    Attributes:
        run: Of all steps.
        billion: Of 1e9 tokens.
        full: Of 20 tokens per active parameter; None with LoRA, for which there is no such rule.
    """

    run: tuple[float, float]
    billion: tuple[float, float]
    full: tuple[float, float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What a run needs and how long it takes.

    Attributes:
        hardware: The machines.
        engine: The engine that the run uses.
        mesh: The mesh that the engine chooses.
        parameters: Number of parameters.
        active: Number of those that compute a token; fewer with experts.
        memory: Bytes on one device.
        usable: Usable bytes of one device; None when unknown.
        fits: Whether the memory is sufficient; None when `usable` is None.
        misfit: Whether it is insufficient by more than the error of the estimate.
        timing: Of one step.
        run_tokens: Tokens of all steps.
        run_seconds: Of all steps, (shortest, longest); None when unknown.
        cost: None when the price or the time is unknown.
        concerns: Likely problems, the gravest first.
        checkpoint_bytes: Of one checkpoint.
        kept: How many the bucket keeps.
        token_bytes: Of a prepared token.
        speed_settings: Settings by which runs on the same machines differ in speed.
        step: Identity of the step (step_identity.py).
        compiler_options: Of libtpu, with which the step is compiled; empty on other devices than TPUs.
    """

    hardware: Hardware
    engine: Engine
    mesh: Mesh
    parameters: int
    active: int
    trained: int
    memory: Memory
    usable: int | None
    fits: bool | None
    misfit: bool
    timing: Timing
    run_tokens: int
    run_seconds: tuple[float, float] | None
    cost: Cost | None
    concerns: tuple[Concern, ...]
    checkpoint_bytes: int
    kept: int
    token_bytes: int
    speed_settings: str
    step: str
    compiler_options: dict[str, str]

    def as_json(self) -> dict[str, Any]:
        """Return plain values, in which tuples become lists; `text` holds the lines of `lines`."""
        found = dataclasses.asdict(self)
        found["memory"] = self.memory.as_json()
        found["memory_peak"] = self.memory.peak
        found["text"] = self.lines()
        return found

    def lines(self) -> list[str]:
        """Format the advice in at most thirteen lines."""
        return list(_lines(self))


def build_advice(config: Config, hardware: Hardware) -> Advice:
    """Estimate memory, time and cost of a run on the hardware.

    Raises:
        ConfigError: The mesh or the batch does not fit the devices, or they lack the arithmetic.
    """
    engine = resolve_engine(config, hardware)
    config = resolve_arithmetic(replace(config, engine=engine), hardware.kind, has_bf16=hardware.has_bf16)
    refuse_float8(config, hardware.kind, hardware.chip)
    if not hardware.has_bf16 and config.products != "fp32":
        raise ConfigError(
            f"dtype={config.products} is computed in bf16, which {hardware.chip} does not have: dtype=fp32"
        )
    mesh = choose_mesh(config, hardware)
    usable = estimate_usable_memory(hardware)
    config = resolve_remat(config, mesh, engine, usable)
    need, time = estimate_memory(config, mesh, engine), estimate_timing(config, mesh, hardware)
    seconds = (time.seconds[0] * config.steps, time.seconds[1] * config.steps) if time.seconds else None
    return Advice(
        hardware=hardware,
        engine=engine,
        mesh=mesh,
        parameters=count_parameters(config.model),
        active=count_active_parameters(config.model),
        trained=count_trained_parameters(config.model, config.lora),
        memory=need,
        usable=usable,
        fits=None if usable is None else need.total <= usable,
        misfit=usable is not None and need.total > (1 + ESTIMATE_ERROR) * usable,
        timing=time,
        run_tokens=config.steps * time.tokens,
        run_seconds=seconds,
        cost=_cost(config, hardware, time),
        concerns=find_concerns(config, mesh, hardware, engine, need, time),
        checkpoint_bytes=_count_checkpoint_bytes(config, mesh, need),
        kept=config.checkpoint.keep,
        token_bytes=_count_token_bytes(config.model.tokens) if is_vocabulary_known(config) else _USUAL_TOKEN_BYTES,
        speed_settings=_list_speed_settings(config),
        step=identify_step(config, mesh, hardware),
        compiler_options=choose_compiler_options(hardware.chip) if (hardware.kind, engine) == ("tpu", "jax") else {},
    )


def _list_speed_settings(config: Config) -> str:
    """Return the settings; of micro-batches only whether there are several: their number is in the estimate."""
    values = {
        "engine": name_framework(config),
        "dtype": config.products,
        "exact": str(config.exact).lower(),
        "compile": str(config.compiled).lower(),
        "remat": config.remat,
        "accumulate": "1" if config.accumulate == 1 else "several",
    }
    # Kernels and optimizers of another speed are named only where they are chosen: earlier runs have no words for them.
    values |= {
        name: word
        for name, word, usual in (
            ("float8", config.float8, "none"),
            ("optim", config.optim.kind, "adamw"),
            ("residual", config.residual, "fp32"),
            ("document_mask", str(config.data.document_mask).lower(), "false"),
            ("softcap", str(bool(config.model.attention_softcap)).lower(), "false"),
            ("window", str(bool(config.model.window)).lower(), "false"),
            ("lora", str(bool(config.lora.rank)).lower(), "false"),
            ("experts", str(bool(config.model.experts)).lower(), "false"),
            ("context", str(config.mesh.context), "1"),
            ("pipeline", str(config.mesh.pipeline), "1"),
        )
        if word != usual
    }
    return " ".join(f"{name}={value}" for name, value in values.items())


def _count_checkpoint_bytes(config: Config, mesh: Mesh, need: Memory) -> int:
    """Return the size of a checkpoint; adapters are on each device of fsdp, and in it once.

    Stages of a pipeline have unequal shares of the weights, each with as much optimizer state for a weight.
    """
    if mesh.pipeline > 1:
        return 4 * count_parameters(config.model) * need.state // need.weights
    if not config.lora.rank:
        return need.state * mesh.fsdp * mesh.tensor
    values = count_parameters(config.model) + count_trained_parameters(config.model, config.lora)
    return 4 * values + (need.optimizer + need.averages) * mesh.tensor


def _count_token_bytes(vocabulary: int) -> int:
    """Return the width of a prepared token (trainer/data/tokens/tokenizers.py)."""
    return 1 if vocabulary <= 1 << 8 else 2 if vocabulary <= 1 << 16 else 4


def resolve_engine(config: Config, hardware: Hardware) -> Engine:
    """Apply the rule of engine=auto: JAX on TPUs, else torch."""
    if config.engine != "auto":
        return config.engine
    return "jax" if hardware.kind == "tpu" and config.device != "xla" else "torch"


def _cost(config: Config, hardware: Hardware, time: Timing) -> Cost | None:
    if hardware.price is None or time.seconds is None:
        return None
    low, high = (hardware.price / 3600 * seconds / time.tokens for seconds in time.seconds)  # of a token

    def of(tokens: float) -> tuple[float, float]:
        return low * tokens, high * tokens

    return Cost(
        run=of(config.steps * time.tokens),
        billion=of(_BILLION),
        full=None if config.lora.rank else of(TOKENS_PER_PARAMETER * count_active_parameters(config.model)),
    )


def _lines(advice: Advice) -> Iterator[str]:
    hardware, mesh, time = advice.hardware, advice.mesh, advice.timing
    axes = " x ".join(f"{name} {size}" for name, size in dataclasses.asdict(mesh).items() if size > 1) or "one device"
    devices = f"{hardware.devices} device{'s' if hardware.devices > 1 else ''}"
    where = f"engine {advice.engine} on {hardware.name}, {devices} ({axes})"
    trained = f", {_count(advice.trained)} trained" if advice.trained != advice.parameters else ""
    active = f", {_count(advice.active)} active" if advice.active != advice.parameters else ""
    yield f"model    {_count(advice.parameters)} parameters{active}{trained}, {where}"
    yield f"memory   {_memory(advice)}"
    yield f"step     {_count(time.tokens)} tokens, {_flops(time.flops)}{_step(time)}"
    if time.tokens_per_day:
        share = f"{_share(time.mfu)} MFU, " if time.mfu else ""
        yield f"expected {share}{_counts(time.tokens_per_day)} tokens a day ({time.source})"
    run = f"run      {_count(advice.run_tokens)} tokens"
    if advice.run_seconds:
        run += f" in {_times(advice.run_seconds)}"
    if advice.cost:
        run += f", {_dollars(advice.cost.run)}"
    if advice.run_seconds:
        run += " (the steps alone, without set-up and losses)"
    yield run
    yield f"stored   {_stored(advice)}"
    if advice.cost:
        cost = f"cost     {_dollars(advice.cost.billion)} for a billion tokens"
        if advice.cost.full is not None:
            full = _count(TOKENS_PER_PARAMETER * advice.active)
            each = "a parameter" if advice.active == advice.parameters else "an active parameter"
            cost += f", {_dollars(advice.cost.full)} for {full} (20 {each})"
        yield cost
    if advice.compiler_options:
        yield f"libtpu   {format_compiler_options(advice.compiler_options)}"
    shown = advice.concerns[:5] if len(advice.concerns) <= 5 else advice.concerns[:4]
    for concern in shown:
        yield f"{'stop' if concern.fatal else 'mind'}     {concern.line}"
    if hidden := len(advice.concerns) - len(shown):
        yield f"mind     and {hidden} more: python -m trainer advise"


def _memory(advice: Advice) -> str:
    need = advice.memory
    parts = [
        ("state", need.state),
        ("gradients", need.gradients),
        ("activations", need.activations + need.block),
        ("logits", need.logits),
        ("gathered weights", need.gathered),
    ]
    shown = [(name, size) for name, size in parts if size >= need.total / 50]
    rest = need.total - sum(size for _, size in shown)
    shown += [("the rest", rest)] if rest >= need.total / 200 else []
    words = ", ".join(f"{name} {_bytes(size)}" for name, size in shown)
    has = f" of {_bytes(advice.usable)}" if advice.usable else ""
    verdict = {None: "", True: ", fits", False: ", does NOT fit"}[advice.fits]
    return f"{_bytes(need.total)}{has} a device{verdict}: {words}{_MOMENTS[need.peak]}"


def _stored(advice: Advice) -> str:
    size, data = _bytes(advice.checkpoint_bytes), _bytes(advice.run_tokens * advice.token_bytes)
    return f"a checkpoint of about {size}, {advice.kept} kept; the tokens of the run are about {data}"


def _step(time: Timing) -> str:
    return f", {_seconds(time.seconds[0])} to {_seconds(time.seconds[1])}" if time.seconds else f" ({time.source})"


def _bytes(size: int) -> str:
    return f"{size / GIB:.1f} GiB" if size >= GIB / 10 else f"{size / (1 << 20):.1f} MiB"


def _count(number: float) -> str:
    for unit, name in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= 0.9995 * unit:  # rounded to three digits it is one of this unit
            return f"{number / unit:.3g}{name}"
    return f"{number:.0f}"


def _counts(numbers: tuple[float, float]) -> str:
    return f"{_count(numbers[0])} to {_count(numbers[1])}"


def _flops(number: float) -> str:
    for unit, name in ((1e18, "EFLOP"), (1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP")):
        if number >= 0.9995 * unit:
            return f"{number / unit:.3g} {name}"
    return f"{number / 1e6:.3g} MFLOP"


def _share(numbers: tuple[float, float]) -> str:
    return f"{100 * numbers[0]:.0f} to {100 * numbers[1]:.0f} %"


def _seconds(seconds: float) -> str:
    for unit, name in ((86_400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"


def _times(numbers: tuple[float, float]) -> str:
    return f"{_seconds(numbers[0])} to {_seconds(numbers[1])}"


def _dollars(numbers: tuple[float, float]) -> str:
    low, high = (f"{value:,.0f}" if value >= 10 else f"{value:.2f}" for value in numbers)
    return f"${low} to ${high}" if low != high else f"${low}"
