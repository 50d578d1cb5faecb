"""How long a step takes: between what others have published for such devices and what the networks allow.

Nothing here was measured on the machine in question, so the answer is a range and names its source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from trainer.config import Config
from trainer.shape.architecture import flops_per_token, parameters
from trainer.shape.hardware import Hardware, Kind
from trainer.shape.mesh import Mesh

DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Utilisation:
    """Share of the peak that a well-filled step reaches. source: whose figures."""

    least: float
    most: float
    source: str


@dataclass(frozen=True, slots=True)
class Timing:
    """tokens: of one step. flops: of one step, useful ones. seconds: of a step, (shortest, longest); None where no
    peak is known. mfu: (least, most); None for fp32, too, of which no peak is published. network_seconds: collectives
    alone. tokens_per_day: (least, most)."""

    tokens: int
    flops: float
    seconds: tuple[float, float] | None
    mfu: tuple[float, float] | None
    network_seconds: float | None
    tokens_per_day: tuple[float, float] | None
    source: str


def utilisation(hardware: Hardware) -> Utilisation | None:
    """None for a device without published training figures of its family."""
    return _BY_CHIP.get(hardware.chip) or _BY_KIND.get(hardware.kind)


# Where the publisher gives tokens or FLOP a second, the share is reckoned with our own count of FLOPs and our peak.
# TPU7x: AI-Hypercomputer/tpu-recipes, training/ironwood/README.md, the dense models in bf16 (2026). Trainium:
# aws-neuron-sdk, benchmarks/trn1/training_data_decoder.csv, Llama 2 and 3.1 from 7B to 70B (Neuron 2.16 and 2.24).
# Blackwell: NVIDIA Megatron Bridge, performance summary, releases 25.09 to 26.02: dense models only in fp8, of whose
# peak they reach 34 to 40 %; mixtures of experts in bf16, 30 to 39 %.
_BLACKWELL = Utilisation(0.28, 0.42, "NVIDIA's published Blackwell runs, 30 to 40 %, none of a dense model in bf16")
_H100 = Utilisation(0.30, 0.46, "torchtitan's and nanochat's published H100 runs, 33 to 46 %")
_BY_CHIP: Mapping[str, Utilisation] = MappingProxyType(
    {
        "v2": Utilisation(0.30, 0.54, "levanter's published v3 runs, 42 to 54 %"),
        "v3": Utilisation(0.30, 0.54, "levanter's published v3 runs, 42 to 54 %"),
        "v4": Utilisation(0.39, 0.57, "MaxText's and torch_xla's published v4 runs, 39 to 57 %"),
        "v5e": Utilisation(0.40, 0.61, "MaxText's published v5e runs, 46 to 67 % with full attention counted"),
        "v5p": Utilisation(0.40, 0.65, "MaxText's published v5p runs, 65 to 72 % with full attention counted"),
        "v6e": Utilisation(0.35, 0.50, "MaxText's published v6e runs, 35 to 50 %"),
        "tpu7x": Utilisation(0.35, 0.55, "Google's published TPU7x runs of dense models, 39 to 55 %"),
        "A100": Utilisation(0.35, 0.57, "PyTorch's published A100 runs, 57 %, and lower for smaller models"),
        "A100-80GB": Utilisation(0.35, 0.57, "PyTorch's published A100 runs, 57 %, and lower for smaller models"),
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

# Bytes a second that one device sends to its neighbours. TPU: Google's system architecture pages, ICI bandwidth of a
# chip over all links, half of it outward. CUDA: NVLink of the data sheets, one direction. Trainium: NeuronLink.
_FAST: Mapping[str, float] = MappingProxyType(
    {
        "v2": 62e9,
        "v3": 80e9,
        "v4": 150e9,
        "v5e": 100e9,
        "v5p": 300e9,
        "v6e": 200e9,
        "tpu7x": 300e9,
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
_DCN = 12.5e9  # bytes a second of a host between slices: 100 Gbit/s, v5e hosts (Cloud TPU documentation)
_REACHED = 0.7  # share of a link's rate that large collectives reach; rings of NCCL and XLA reach 60 to 85 %

_STEP = (0.001, 0.01)  # seconds that a step takes whatever it computes: starting its programs, short messages; a guess

# What fp32 products cost in bf16 ones: TPUs take six passes for full precision; A100 312 / 19.5, H100 989 / 67
# TFLOP/s without TF32 (data sheets); Trainium 95 / 24 a core.
_FP32_COST: Mapping[Kind, float] = MappingProxyType({"tpu": 6.0, "cuda": 16.0, "neuron": 4.0, "cpu": 1.0})


def timing(config: Config, mesh: Mesh, hardware: Hardware) -> Timing:
    tokens = config.batch * config.seq_len
    flops = flops_per_token(config.model, config.seq_len) * tokens
    known = utilisation(hardware)
    if hardware.peak_flops is None or known is None:
        return Timing(tokens, flops, None, None, None, None, "no published peak for this device")
    peak = hardware.peak_flops * mesh.devices
    if config.dtype == "fp32":
        peak /= _FP32_COST[hardware.kind]
    network = network_seconds(config, mesh, hardware)
    again = 4 / 3 if config.remat else 1.0  # the forward pass once more; the published runs have it in their figures
    shortest = max(flops / (peak * known.most), network or 0.0, _STEP[0])
    longest = flops * again / (peak * known.least) + (network or 0.0) + _STEP[1]
    mfu = None if config.dtype == "fp32" else (flops / (peak * longest), flops / (peak * shortest))
    return Timing(
        tokens,
        flops,
        (shortest, longest),
        mfu,
        network,
        (DAY * tokens / longest, DAY * tokens / shortest),
        known.source,
    )


def network_seconds(config: Config, mesh: Mesh, hardware: Hardware) -> float | None:
    """Seconds of a step's collectives, were nothing else done meanwhile; None when the rates are not known."""
    if mesh.devices == 1:
        return 0.0
    fast = _FAST.get(hardware.chip)
    slow = (hardware.network or (_DCN if hardware.kind == "tpu" else None)) if hardware.devices > hardware.fast else 0.0
    if fast is None or slow is None:
        return None
    near = fast * _REACHED
    far = slow * hardware.hosts / hardware.devices * _REACHED if slow else near

    def rate(span: int) -> float:
        """Of an axis whose members stand so many devices apart, first to last."""
        return near if span <= hardware.fast else far

    traffic = Traffic.of(config, mesh)
    inner = mesh.tensor * mesh.fsdp
    return traffic.tensor / rate(mesh.tensor) + traffic.fsdp / rate(inner) + traffic.data / rate(inner * mesh.data)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that each device sends in a step, along each axis of the mesh."""

    data: float
    fsdp: float
    tensor: float

    @classmethod
    def of(cls, config: Config, mesh: Mesh) -> Traffic:
        """fsdp: weights gathered for the forward pass and again for the backward pass of each micro-batch, gradients
        reduced and scattered in fp32. data: gradients summed once. tensor: two sums of the stream in each pass of a
        block. A ring sends (n - 1) / n of what it gathers."""
        width = 4 if config.dtype == "fp32" else 2
        whole = sum(p.size for p in parameters(config.model)) / mesh.tensor
        stream = config.batch / mesh.shards * config.seq_len * config.model.dim * width
        passes = 3 if config.remat else 2
        return cls(
            data=2 * 4 * whole / mesh.fsdp * _ring(mesh.data),
            fsdp=config.accumulate * (2 * width + 4) * whole * _ring(mesh.fsdp),
            tensor=2 * 2 * passes * stream * config.model.layers * _ring(mesh.tensor),
        )


def _ring(members: int) -> float:
    return (members - 1) / members
