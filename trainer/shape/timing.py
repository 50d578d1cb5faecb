"""Estimate of the time of a step, between the published results for such devices and the limits of the networks.

Nothing was measured on the machine in question, so the result is a range that names its source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from trainer.accelerators.tpu_generations import GENERATIONS
from trainer.config import Config, ModelConfig
from trainer.shape.architecture import count_block_parameters, count_parameters, list_parameters
from trainer.shape.hardware import Hardware, Kind
from trainer.shape.lora import count_run_flops_per_token, count_trained_parameters
from trainer.shape.mesh import Mesh
from trainer.shape.newton_schulz import count_hidden_values, count_orthogonalization_flops
from trainer.shape.pipeline import compute_slowdown

DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Utilisation:
    """Share of the peak that a well-filled step reaches.

    Attributes:
        least: Lower end.
        most: Upper end.
        source: Who published the figures.
    """

    least: float
    most: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Time of a step.

    Attributes:
        tokens: Of one step.
        flops: Useful FLOPs of one step.
        seconds: Of one step, (shortest, longest); None when no peak is known.
        mfu: (lowest, highest); None also for fp32, of which no peak is published.
        network_seconds: Of the collectives alone; None when unknown.
        tokens_per_day: (lowest, highest); None when no peak is known.
        source: Who published the figures.
    """

    tokens: int
    flops: float
    seconds: tuple[float, float] | None
    mfu: tuple[float, float] | None
    network_seconds: float | None
    tokens_per_day: tuple[float, float] | None
    source: str


def find_utilisation(hardware: Hardware, model: ModelConfig) -> Utilisation | None:
    """Return the published utilisation of the device's family; None when there is none."""
    known = _BY_CHIP.get(hardware.chip) or _BY_KIND.get(hardware.kind)
    if known is None or not model.experts:
        return known
    least, most = _WIDE_EXPERTS if model.expert_dim >= _WIDE else _NARROW_EXPERTS
    share = f"{100 * least:.0f} to {100 * most:.0f} %"
    return replace(
        known,
        least=known.least * least,
        most=known.most * most,
        source=f"{known.source}; experts reach {share} of a dense model's",
    )


# Where the publisher gives tokens or FLOP/s, the share is computed with our own count of FLOPs and our peak.
# TPU7x: AI-Hypercomputer/tpu-recipes, training/ironwood/README.md, the dense models in bf16 (2026). Trainium:
# aws-neuron-sdk, benchmarks/trn1/training_data_decoder.csv, Llama 2 and 3.1 from 7B to 70B (Neuron 2.16 and 2.24).
# Blackwell: NVIDIA Megatron Bridge, performance summary, releases 25.09 to 26.02: dense models only in fp8, of whose
# peak they reach 34 to 40 %; mixtures of experts in bf16, 30 to 39 %.
_BLACKWELL = Utilisation(0.28, 0.42, "NVIDIA's published Blackwell runs, 30 to 40 %, none of a dense model in bf16")
# H100 and H200 have the same rates of products. Upper end: this trainer on one H200 (docs/performance.md).
_H100 = Utilisation(0.30, 0.53, "own runs on one H200, 44 to 53 % (2026-11-26); published H100 runs, 33 to 46 %")
# Upper end: MosaicML's llm-foundry, 7b on 8 A100 80GB, 64 % with full attention counted (scripts/train/benchmarking).
_A100 = Utilisation(0.35, 0.64, "MosaicML's and PyTorch's published A100 runs, 45 to 64 %")
_BY_CHIP: Mapping[str, Utilisation] = MappingProxyType(
    {
        **{each.name: Utilisation(*each.utilisation, each.utilisation_source) for each in GENERATIONS},
        "A100": _A100,
        "A100-80GB": _A100,
        "H100": _H100,
        "H200": _H100,
        "B200": _BLACKWELL,
        "B300": _BLACKWELL,
        "Trainium": Utilisation(0.18, 0.34, "AWS's published Trn1 runs, 21 to 34 %"),
    }
)
_BY_KIND: Mapping[Kind, Utilisation] = MappingProxyType(
    {
        "cuda": Utilisation(0.25, 0.46, "no figures for this chip here; as H100, with a margin"),
        "tpu": Utilisation(0.30, 0.50, "no figures for this chip here; as v6e, with a margin"),
        "neuron": Utilisation(0.15, 0.40, "AWS publishes none for this chip; as Trn1, with a margin"),
    }
)

# Utilisation of mixtures of experts relative to that of dense models on the same devices, by the width of an expert.
# Wide: Mixtral 8x7B (14,336) reaches 33 to 35 % on v6e and 53 to 55 % on v5p (MaxText: tiering.md, Run_Mixtral.md, the
# recipe for Trillium), 47 % on H100 (Megatron Core 0.9); experts of 7,168 reach 12 % on two hosts of H200, fully
# recomputed (KempnerForge, benchmarks/moe_packed). Narrow (768 to 2,880): GPT-OSS 120B, Qwen 3 30B and 235B, DeepSeek
# V3 and Gemma 4 26B reach 16 to 27 % on TPU7x (tpu-recipes, training/ironwood), 16 % on H100 and 10 % on B200 in bf16,
# in fp8 up to 34 and 28 % of the same peak (Megatron Bridge, performance summary archive). All read 2026-11-27.
_WIDE = 4096
_WIDE_EXPERTS, _NARROW_EXPERTS = (0.5, 1.0), (0.33, 0.65)

# Bytes per second that one device sends to its neighbours. TPU: Google's system architecture pages, ICI bandwidth of a
# chip over all links, half of it outward. CUDA: NVLink of the data sheets, one direction. Trainium: NeuronLink.
_FAST: Mapping[str, float] = MappingProxyType(
    {
        **{each.name: each.link_bytes for each in GENERATIONS},
        "A100": 300e9,
        "A100-80GB": 300e9,
        "H100": 450e9,
        "H200": 450e9,
        "B200": 900e9,
        "B300": 900e9,
        "Trainium": 48e9,
        "Trainium2": 128e9,
    }
)
_DCN = 12.5e9  # bytes per second of a host between slices: 100 Gbit/s, v5e hosts (Cloud TPU documentation)
_REACHED = 0.7  # share of a link's rate that large collectives reach; rings of NCCL and XLA reach 60 to 85 %

_STEP = (0.001, 0.01)  # seconds of overhead per step (program starts, short messages); a guess

# Time of a step on a GPU relative to the default settings: this trainer on one H200, model=1b, 2026-11-26
# (docs/performance.md). TF32 is the arithmetic of dtype=fp32 there, without `exact`.
_UNCOMPILED, _EXACT, _TF32_COST = 1.25, 1.08, 3.1
# float8 relative to bf16, compiled: 0.81 for 3b by this trainer on one H200 (2026-11-27, docs/performance.md), 0.78 for
# Llama 3.1 8B on 8 H100 by torchtitan (benchmarks/llama3_h100_202412_torchtitan.md); elsewhere 1.13 to 1.6 times the
# speed. Uncompiled, scaling is another pass over each operand; that was not measured.
_FLOAT8, _FLOAT8_UNCOMPILED = (0.7, 0.88), (0.9, 1.3)
# The least that recomputation costs: it makes room for larger micro-batches. llm-foundry's published runs on A100 80GB
# reach 58 to 60 % with it, and 60 to 64 % without. At equal micro-batches it is 1.21 (docs/performance.md).
_REMAT = 1.07
_AGAIN = 4 / 3  # one more forward pass
# Selective recomputation removes over 90 % of that cost (Korthikanti et al. 2022, "Reducing Activation Recomputation in
# Large Transformer Models", arXiv 2205.05198). The upper end has a margin: it was not measured with this trainer.
_SELECTIVE, _SELECTIVE_AGAIN = 1.01, 1.1
# Cost of fp32 products relative to bf16: TPUs take six passes for full precision; A100 312 / 19.5, H100 989 / 67
# TFLOP/s without TF32 (data sheets); Trainium 95 / 24 per core.
_FP32_COST: Mapping[Kind, float] = MappingProxyType({"tpu": 6.0, "cuda": 16.0, "neuron": 4.0, "cpu": 1.0})
# GPUs with few tensor cores for their size (data sheets): A10G 70 / 35, L4 121 / 30.3, L40S 362 / 91.6.
_FP32_COST_OF_CHIP: Mapping[str, float] = MappingProxyType({"A10G": 2.0, "L4": 4.0, "L40S": 4.0})


def estimate_timing(config: Config, mesh: Mesh, hardware: Hardware) -> Timing:
    """Estimate the time of a step."""
    tokens = config.batch * config.seq_len
    flops = count_run_flops_per_token(config.model, config.lora, config.seq_len) * tokens
    known = find_utilisation(hardware, config.model)
    if hardware.peak_flops is None or known is None:
        return Timing(
            tokens=tokens,
            flops=flops,
            seconds=None,
            mfu=None,
            network_seconds=None,
            tokens_per_day=None,
            source="no published peak for this device",
        )
    peak = hardware.peak_flops * mesh.devices / compute_slowdown(mesh, config.accumulate)
    if config.products == "fp32":
        peak /= _find_cost_of_fp32(config, hardware)
    network = estimate_network_seconds(config, mesh, hardware)
    least, most = _find_slowdown(config, hardware)
    extra = _count_optimizer_flops(config, mesh)
    shortest = max((flops * least + extra) / (peak * known.most), network or 0.0, _STEP[0])
    # Kernels of attention reach less than products: the more, the longer the rows.
    attention = flops - count_run_flops_per_token(config.model, config.lora, 0) * tokens
    longest = ((flops + attention) * most + extra) / (peak * known.least) + (network or 0.0) + _STEP[1]
    whole = hardware.peak_flops * mesh.devices  # with the time in which stages wait
    mfu = None if config.products == "fp32" else (flops / (whole * longest), flops / (whole * shortest))
    return Timing(
        tokens=tokens,
        flops=flops,
        seconds=(shortest, longest),
        mfu=mfu,
        network_seconds=network,
        tokens_per_day=(DAY * tokens / longest, DAY * tokens / shortest),
        source=known.source,
    )


def _count_optimizer_flops(config: Config, mesh: Mesh) -> float:
    """Return the FLOPs of Muon's orthogonalization, as if all devices had as much of it as the busiest one.

    torch divides all matrices over the devices, JAX those of each kind, of which there is one a layer.
    """
    if config.optim.kind != "muon":
        return 0.0
    matrices = sum(one.is_hidden_matrix for one in list_parameters(config.model))
    kinds = matrices // config.model.layers if config.engine == "jax" else 1
    each = matrices // kinds
    return count_orthogonalization_flops(config.model) * mesh.devices * -(-each // mesh.devices) / each


def _find_cost_of_fp32(config: Config, hardware: Hardware) -> float:
    cost = _FP32_COST_OF_CHIP.get(hardware.chip, _FP32_COST[hardware.kind])
    return min(cost, _TF32_COST) if hardware.kind == "cuda" and not config.exact else cost


def _find_slowdown(config: Config, hardware: Hardware) -> tuple[float, float]:
    """Return the least and the most time of a step's products relative to one without costly settings."""
    again = {"none": 1.0, "selective": _SELECTIVE_AGAIN, "full": _AGAIN}[config.recomputed]
    if hardware.kind != "cuda" or config.engine == "jax":
        return 1.0, again  # the published figures include recomputation
    chosen = (1.0 if config.compiled else _UNCOMPILED) * (_EXACT if config.exact else 1.0)
    narrow = (1.0, 1.0)
    if config.float8 != "none":
        narrow = _FLOAT8 if config.compiled else _FLOAT8_UNCOMPILED
    least = {"none": 1.0, "selective": _SELECTIVE, "full": _REMAT}[config.recomputed]
    return chosen * narrow[0] * least, chosen * narrow[1] * again


def estimate_network_seconds(config: Config, mesh: Mesh, hardware: Hardware) -> float | None:
    """Estimate the seconds of a step's collectives without overlap; None when the rates are unknown."""
    return time_traffic(Traffic.of(config, mesh), mesh, hardware)


def time_traffic(traffic: Traffic, mesh: Mesh, hardware: Hardware) -> float | None:
    """Return the seconds in which each device sends its traffic, without overlap; None when the rates are unknown."""
    if mesh.devices == 1:
        return 0.0
    fast = _FAST.get(hardware.chip)
    slow = (
        (hardware.network or (_DCN if hardware.kind == "tpu" else None))
        if hardware.devices > hardware.fast_devices
        else 0.0
    )
    if fast is None or slow is None:
        return None
    near = fast * _REACHED
    share = slow * hardware.hosts / hardware.devices * _REACHED if slow else near  # of one device in its host's network

    def rate(stride: int, members: int) -> float:
        """Return the rate along an axis whose neighbours are `stride` devices apart.

        A ring enters each fast group once. So its members there have the network together.
        """
        if stride * members <= hardware.fast_devices:
            return near
        return min(near, share * max(1, min(members, hardware.fast_devices // stride)))

    inner = mesh.tensor * mesh.fsdp
    return (
        traffic.tensor / rate(1, mesh.tensor)
        + traffic.context / rate(mesh.tensor, mesh.context)
        + traffic.fsdp / rate(mesh.tensor, mesh.fsdp)
        + traffic.data / rate(inner, mesh.data)
        + traffic.pipeline / rate(inner * mesh.data, mesh.pipeline)
    )


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that each device sends in a step, along each axis of the mesh."""

    data: float
    fsdp: float
    tensor: float
    context: float
    pipeline: float = 0.0

    @classmethod
    def of(cls, config: Config, mesh: Mesh) -> Traffic:
        """Count the bytes. A ring sends (n - 1) / n of what it gathers.

        Along data, gradients are summed once. Muon moves each hidden matrix to one device, and the result to all. Along
        context, keys and values of a device reach the others in each pass, and their gradients reach it in fp32; full
        recomputation moves them once more. Along the pipeline, the stream moves forward and its gradient back, and a
        tied embedding's gradient between the first and the last stage. Of stages, one with as many other parameters as
        any counts.
        """
        width = 4 if config.products == "fp32" else 2
        lora = config.lora.rank > 0
        # Adapters are summed over all shards once; that is counted along data, and their parts along tensor as whole.
        trained = _count_trained(config, mesh) / (1 if lora else mesh.tensor * mesh.fsdp)
        tokens = config.batch * config.seq_len / mesh.tensor_groups
        muon = count_hidden_values(config.model) * width / mesh.tensor if config.optim.kind == "muon" else 0.0
        gathered = config.accumulate * _count_sharded_bytes(config, mesh, width) / mesh.tensor
        gathered += 2 * muon / mesh.tensor_groups
        return cls(
            data=(2 * 4 * trained + muon / mesh.fsdp) * _ring(mesh.tensor_groups if lora else mesh.data),
            fsdp=gathered * _ring(mesh.fsdp),
            tensor=(_count_stream_bytes(config, mesh, tokens, width) + 2 * muon / mesh.tensor_groups)
            * _ring(mesh.tensor),
            context=_count_ring_bytes(config, mesh, tokens, width),
            pipeline=_count_stage_bytes(config, mesh, tokens),
        )


def _count_stream_bytes(config: Config, mesh: Mesh, tokens: float, width: int) -> float:
    """Return the bytes of all tokens' values that are gathered or scattered over the tensor axis.

    Each pass of a block gathers them before attention and before the feed-forward part, and scatters both results. A
    recomputation does so again but for the last result, and JAX's selective one keeps the other, too. At the ends of
    the model, torch sums gradients of the head in fp32, and embeddings in the type in which it gathers the table.
    """
    jax = config.engine == "jax"
    again = {"none": 0, "selective": 2 if jax else 3, "full": 3}[config.recomputed]
    embedded = width if mesh.fsdp > 1 and not jax else 4
    ends = 2 * embedded + width + (width if jax else 4)
    return tokens * config.model.dim * (config.model.layers // mesh.pipeline * (8 + again) * width + ends)


def _count_stage_bytes(config: Config, mesh: Mesh, tokens: float) -> float:
    """Return what a device of the busiest stage sends to others: one at an end, or in the middle, if there is such."""
    if mesh.pipeline == 1:
        return 0.0
    passed = tokens / mesh.tensor * config.model.dim * (4 if config.residual == "fp32" else 2)
    tied = config.model.tokens * config.model.dim * 4 / (mesh.fsdp * mesh.tensor) if config.model.tied else 0.0
    return max(passed + tied, 2 * passed if mesh.pipeline > 2 else 0.0)


def _count_trained(config: Config, mesh: Mesh) -> float:
    """Return the number of trained values of a stage; without a pipeline, of the model."""
    if mesh.pipeline == 1:
        return count_trained_parameters(config.model, config.lora)
    blocks = config.model.layers * count_block_parameters(config.model)
    return blocks / mesh.pipeline + config.model.tokens * config.model.dim


def _count_ring_bytes(config: Config, mesh: Mesh, tokens: float, width: int) -> float:
    if mesh.context == 1:
        return 0.0
    model = config.model
    keys = 2 * tokens * model.kv_heads * model.head_dim / mesh.tensor
    passes = 3 if config.recomputed == "full" else 2
    return model.layers // mesh.pipeline * keys * (passes * (mesh.context - 1) * width + mesh.context * 4)


def _count_sharded_bytes(config: Config, mesh: Mesh, width: int) -> float:
    """Return the bytes of all weights that a micro-batch gathers, and of the gradients that it scatters, in fp32.

    Weights of blocks are gathered for the forward pass and again for the backward pass. torch gathers the others once.
    JAX gathers the table for the embedding and for the head, and scatters its gradients for each, also where it is one.
    """
    model = config.model
    blocks = model.layers * count_block_parameters(model)
    others: float = count_parameters(model) - blocks
    if mesh.pipeline > 1:
        blocks, others = blocks // mesh.pipeline, model.tokens * model.dim
    scattered = 0 if config.lora.rank else 1  # frozen weights have no gradients
    if config.engine != "jax":
        return (2 * blocks + others) * width + scattered * (blocks + others) * 4
    table = model.tokens * model.dim
    return (2 * blocks + 2 * table) * width + scattered * (blocks + 2 * table) * 4


def _ring(members: int) -> float:
    return (members - 1) / members
