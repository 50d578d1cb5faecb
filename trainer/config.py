"""The settings of a run as frozen values: every key of the command line is a field of one of these classes.

trainer/options.py parses the command line into a Config; trainer/help.py prints the same table.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from trainer.errors import ConfigError

Scalar: TypeAlias = bool | int | float | str
DTypeName: TypeAlias = Literal["fp32", "bf16"]
Switch: TypeAlias = Literal["auto", "true", "false"]
RematLevel: TypeAlias = Literal["none", "selective", "full"]
DeviceName: TypeAlias = Literal["auto", "cpu", "cuda", "tpu", "neuron", "xla"]
EngineName: TypeAlias = Literal["auto", "torch", "jax"]
Float8Name: TypeAlias = Literal["none", "tensorwise", "rowwise"]
OptimName: TypeAlias = Literal["adamw", "muon", "adafactor"]
RopeScaling: TypeAlias = Literal["none", "llama3", "linear"]
Activation: TypeAlias = Literal["silu", "gelu_tanh"]
LossTokens: TypeAlias = Literal["auto", "all", "marked"]
ControlTokenUse: TypeAlias = Literal["text", "keep"]
ScheduleName: TypeAlias = Literal["cosine", "wsd", "constant"]

BYTE_VOCAB = 256
_BEYOND_RETRIES = 300.0  # seconds for the last try itself
AUTO = 0  # value of an integer key that was given as `auto`


@dataclass(frozen=True, slots=True, kw_only=True)
class Doc:
    """Help text and allowed range of a key.

    Attributes:
        text: One line for people.
        least: Smallest allowed value; None for no limit.
        most: Largest allowed value; None for no limit.
        auto: The key is an integer and also takes `auto`.
        synonyms: Other words for a choice, each with the word that it stands for.
    """

    text: str
    least: float | None = None
    most: float | None = None
    auto: bool = False
    synonyms: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Size and shape of the model."""

    dim: Annotated[int, Doc(text="width of the model", least=2)] = 128
    layers: Annotated[int, Doc(text="number of blocks", least=1)] = 4
    heads: Annotated[int, Doc(text="attention heads", least=1)] = 4
    kv_heads: Annotated[int, Doc(text="key and value heads; divides heads", least=1)] = 2
    head: Annotated[int, Doc(text="width of a head; auto: dim / heads", least=2, auto=True)] = AUTO
    ffn: Annotated[
        int, Doc(text="width of the feed-forward layer; auto: 8/3 of dim, rounded up to 8", least=1, auto=True)
    ] = AUTO
    vocab: Annotated[int, Doc(text="size of the vocabulary; auto: as the data needs", least=2, auto=True)] = AUTO
    tied: Annotated[bool, Doc(text="the output layer is the embedding")] = True
    rope_theta: Annotated[float, Doc(text="base of the rotary position angles", least=1)] = 10_000.0
    norm_eps: Annotated[float, Doc(text="added to the mean square in RMS norms", least=0)] = 1e-5
    qkv_bias: Annotated[bool, Doc(text="queries, keys and values have a bias, as in Qwen 2")] = False
    qk_norm: Annotated[bool, Doc(text="an RMS norm of each head's queries and keys, as in Qwen 3")] = False
    window: Annotated[int, Doc(text="newest tokens to which each token attends, itself included; 0: all", least=0)] = 0
    full_every: Annotated[int, Doc(text="every how many blocks one has no window, as in Gemma; 0: none", least=0)] = 0
    local_rope_theta: Annotated[
        float,
        Doc(text="base of the rotary angles, without scaling, in blocks with a window; 0: as the others", least=0),
    ] = 0.0
    activation: Annotated[Activation, Doc(text="of the feed-forward layer's gate; gelu_tanh: as in Gemma")] = "silu"
    post_norm: Annotated[
        bool, Doc(text="an RMS norm of the results of attention and feed-forward, too, as in Gemma 2")
    ] = False
    norm_offset: Annotated[bool, Doc(text="RMS norms multiply by 1 + weight, as in Gemma")] = False
    embed_scale: Annotated[bool, Doc(text="embeddings are multiplied by the root of dim, as in Gemma")] = False
    query_scale: Annotated[
        float, Doc(text="attention's scores are divided by the root of this; 0: the width of a head", least=0)
    ] = 0.0
    attention_softcap: Annotated[
        float, Doc(text="bound of attention's scores, c * tanh(score / c), as in Gemma 2; 0: none", least=0)
    ] = 0.0
    softcap: Annotated[float, Doc(text="bound of the logits, c * tanh(logit / c), as in Gemma 2; 0: none", least=0)] = (
        0.0
    )
    experts: Annotated[
        int, Doc(text="feed-forward experts of a block, of which a router chooses for each token; 0: none", least=0)
    ] = 0
    experts_per_token: Annotated[int, Doc(text="experts that the router chooses for each token", least=1)] = 2
    expert_hidden: Annotated[int, Doc(text="width of an expert; auto: that of model.ffn", least=1, auto=True)] = AUTO
    normalize_experts: Annotated[
        bool, Doc(text="the chosen experts' shares are divided by their sum, as in Mixtral")
    ] = True
    router_loss: Annotated[
        float, Doc(text="coefficient of the loss that balances experts; the loss in metrics is without it", least=0)
    ] = 0.01
    rope_scaling: Annotated[
        RopeScaling,
        Doc(text="slower rotary angles for longer rows; llama3: as Llama 3.1; linear: all by rope_factor"),
    ] = "none"
    rope_factor: Annotated[float, Doc(text="rope_scaling: how much slower the slow angles are", least=1)] = 8.0
    rope_low_freq: Annotated[
        float, Doc(text="rope_scaling: angles with at most this many turns in rope_context are slow ones", least=0.001)
    ] = 1.0
    rope_high_freq: Annotated[
        float, Doc(text="rope_scaling: angles with at least this many turns keep their speed", least=0.001)
    ] = 4.0
    rope_context: Annotated[int, Doc(text="rope_scaling: length of rows before it", least=1)] = 8192

    @property
    def hidden(self) -> int:
        return self.ffn or -(-self.dim * 8 // 3 // 8) * 8

    @property
    def expert_dim(self) -> int:
        """Width of an expert; 0 without experts."""
        return (self.expert_hidden or self.hidden) if self.experts else 0

    @property
    def head_dim(self) -> int:
        return self.head or self.dim // self.heads

    @property
    def score_scale(self) -> float:
        """Factor of attention's scores."""
        return float((self.query_scale or self.head_dim) ** -0.5)

    def get_window(self, layer: int) -> int:
        """Return the window of a block; 0 for none."""
        return 0 if self.full_every and (layer + 1) % self.full_every == 0 else self.window

    @property
    def tokens(self) -> int:
        """Size of the vocabulary; 256 bytes until the data sets another."""
        return self.vocab or BYTE_VOCAB


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimConfig:
    """Optimizer and learning rate."""

    kind: Annotated[OptimName, Doc(text="optimizer; muon: AdamW for all but the matrices of blocks")] = "adamw"
    lr: Annotated[float, Doc(text="peak learning rate", least=0)] = 3e-3
    schedule: Annotated[ScheduleName, Doc(text="learning rate after the warm-up; wsd: level, then linear decay")] = (
        "cosine"
    )
    warmup: Annotated[int, Doc(text="steps of linear warm-up", least=0)] = 20
    decay: Annotated[float, Doc(text="wsd: share of all steps in which the rate decays", least=0, most=1)] = 0.2
    floor: Annotated[float, Doc(text="last learning rate as a share of the peak", least=0, most=1)] = 0.1
    beta1: Annotated[float, Doc(text="AdamW beta 1", least=0, most=0.999999)] = 0.9
    beta2: Annotated[float, Doc(text="AdamW beta 2; Adafactor: of the second moments", least=0, most=0.999999)] = 0.95
    eps: Annotated[float, Doc(text="AdamW epsilon", least=0)] = 1e-8
    momentum: Annotated[float, Doc(text="Muon: of the hidden matrices", least=0, most=0.999999)] = 0.95
    weight_decay: Annotated[float, Doc(text="weight decay of the matrices", least=0)] = 0.1
    ema: Annotated[float, Doc(text="keep averaged weights with this decay; 0: none", least=0, most=0.999999)] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraConfig:
    """Adapters of low rank, which are trained instead of the weights (Hu et al. 2021, arXiv 2106.09685)."""

    rank: Annotated[
        int, Doc(text="rank of LoRA adapters, which are trained instead of the weights; 0: none", least=0)
    ] = 0
    alpha: Annotated[
        int, Doc(text="an adapter's result is multiplied with alpha / rank; auto: twice the rank", least=1, auto=True)
    ] = AUTO
    targets: Annotated[
        str, Doc(text="layers with an adapter: all, attention, or some of query,key,value,out,gate,up,down")
    ] = "all"

    @property
    def scale(self) -> float:
        """Factor of an adapter's result."""
        return (self.alpha or 2 * self.rank) / self.rank


@dataclass(frozen=True, slots=True)
class MeshConfig:
    """Layout of all hosts' devices; see trainer/shape/mesh.py."""

    data: Annotated[int, Doc(text="model replicas, each with a share of the tokens", least=1, auto=True)] = AUTO
    fsdp: Annotated[int, Doc(text="devices over which a replica's weights are sharded", least=1, auto=True)] = AUTO
    tensor: Annotated[int, Doc(text="devices that compute one row together (tensor parallelism)", least=1)] = 1
    context: Annotated[
        int, Doc(text="devices of data x fsdp that divide the tokens of each row (context parallelism)", least=1)
    ] = 1
    pipeline: Annotated[
        int, Doc(text="stages of the model's blocks, each on its devices (pipeline parallelism)", least=1)
    ] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointConfig:
    """Where, how often and how many checkpoints are kept."""

    uri: Annotated[str, Doc(text="file://, s3:// or gs:// folder, or a path; default: $ORCH_CHECKPOINT_URI")] = ""
    start: Annotated[str, Doc(text="where a new run begins: a step's folder of another run, or of an import")] = ""
    every: Annotated[int, Doc(text="steps between checkpoints; 0: only by minutes, and at the end", least=0)] = 50
    minutes: Annotated[float, Doc(text="also save when the last save began so many minutes ago; 0: never", least=0)] = (
        0.0
    )
    keep: Annotated[int, Doc(text="newest complete checkpoints that are kept", least=1)] = 3
    keep_every: Annotated[int, Doc(text="also keep each checkpoint at a multiple of this; 0: none", least=0)] = 0
    timeout: Annotated[float, Doc(text="seconds that ranks wait for each other when they start and save", least=1)] = (
        1800.0
    )
    retry_minutes: Annotated[
        float,
        Doc(text="minutes for which a save, or another request to the bucket, is repeated while it fails", least=0),
    ] = 15.0
    failures: Annotated[
        int, Doc(text="failed saves in a row after which the run ends; training continues before", least=1)
    ] = 5
    unsaved_minutes: Annotated[
        float, Doc(text="minutes of failing saves after which the run ends, however many they were", least=0)
    ] = 60.0

    @property
    def retry_seconds(self) -> float:
        return 60 * self.retry_minutes

    @property
    def patience(self) -> float:
        """Seconds that ranks wait for each other: one of them may be repeating its requests."""
        return max(self.timeout, self.retry_seconds + _BEYOND_RETRIES)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    """What is trained on."""

    source: Annotated[str, Doc(text="python-stdlib, a path, a bucket folder, or hf://NAME; :GLOB may follow")] = (
        "python-stdlib"
    )
    weights: Annotated[
        str, Doc(text="several sources, data=A,B: shares of the rows that are from each, such as 0.7,0.3")
    ] = ""
    epochs: Annotated[
        float, Doc(text="passes over any source, at most; a run whose steps need more is refused; 0: any", least=0)
    ] = 0.0
    tokenizer: Annotated[str, Doc(text="bytes, or a tokenizer.json; for text that `prepare` tokenized: auto")] = "auto"
    column: Annotated[
        str, Doc(text="where the text is in JSON, Parquet, Arrow and hf:// data; empty: JSON itself is the text")
    ] = "text"
    max_bad: Annotated[int, Doc(text="rows of such data that are skipped where they cannot be read", least=0)] = 0
    control_tokens: Annotated[
        ControlTokenUse, Doc(text="special tokens that such data has are text; keep: they are tokens")
    ] = "text"
    loss: Annotated[
        LossTokens,
        Doc(text="tokens that are trained on; marked: the replies of chat data; auto: marked where data has marks"),
    ] = "auto"
    document_mask: Annotated[
        bool, Doc(text="tokens attend only within their document; false: to all earlier tokens of the row")
    ] = False
    ahead: Annotated[int, Doc(text="steps whose rows are read in advance", least=0)] = 2
    allow_change: Annotated[
        bool, Doc(text="continue although the corpus or the data order differs from the checkpoint's")
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalConfig:
    """How the model is evaluated on text that it does not train on."""

    every: Annotated[int, Doc(text="steps between two evaluations; 0: none", least=0)] = 0
    batches: Annotated[int, Doc(text="batches of an evaluation, at most; of each source", least=1)] = 8
    share: Annotated[
        float, Doc(text="share of the data, at its end, that is evaluated and not trained on", least=0, most=0.5)
    ] = 0.01
    source: Annotated[
        str, Doc(text="other data to evaluate on, as data.source; then all of data.source is trained on")
    ] = ""
    keep_best: Annotated[bool, Doc(text="also keep the checkpoint with the lowest loss of an evaluation")] = True


@dataclass(frozen=True, slots=True)
class DistConfig:
    """How long ranks wait for each other."""

    join_timeout: Annotated[float, Doc(text="seconds until all ranks must have met", least=1)] = 120.0
    timeout: Annotated[float, Doc(text="seconds that a rank waits for the others within a step", least=1)] = 300.0
    watchdog: Annotated[
        float, Doc(text="seconds without a step after which the stacks are written and the run ends; 0: never", least=0)
    ] = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    """Where numbers are written."""

    file: Annotated[str, Doc(text="local file to which rank 0 appends; empty: none")] = "metrics.jsonl"
    tensorboard: Annotated[str, Doc(text="folder for TensorBoard's event files; empty: none")] = ""
    wandb: Annotated[str, Doc(text="project in Weights & Biases; empty: none")] = ""
    mlflow: Annotated[str, Doc(text="experiment in MLflow; empty: none")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All settings of a run."""

    steps: Annotated[int, Doc(text="optimizer steps in all", least=1)] = 200
    batch: Annotated[int, Doc(text="rows of one optimizer step over all ranks", least=1)] = 32
    seq_len: Annotated[int, Doc(text="predicted tokens of a row", least=1)] = 128
    accumulate: Annotated[int, Doc(text="micro-batches of one optimizer step", least=1)] = 1
    grad_clip: Annotated[float, Doc(text="largest gradient norm; 0: no limit", least=0)] = 1.0
    dtype: Annotated[
        Literal["auto", DTypeName],
        Doc(text="matrix products; weights stay fp32; auto: bf16 on accelerators that have it, else fp32"),
    ] = "auto"
    float8: Annotated[
        Float8Name,
        Doc(text="products of blocks in float8, on NVIDIA GPUs since Ada: scaled by tensor, or by row (more exact)"),
    ] = "none"
    residual: Annotated[
        DTypeName,
        Doc(text="values between blocks; bf16 needs dtype=bf16, and keeps half as much for the backward pass"),
    ] = "fp32"
    engine: Annotated[EngineName, Doc(text="framework; auto: jax on TPUs and on Trainium's JAX images")] = "auto"
    device: Annotated[DeviceName, Doc(text="where to train")] = "auto"
    seed: Annotated[int, Doc(text="seed of the weights and of the data order", least=0, most=2**63 - 1)] = 0
    threads: Annotated[
        int, Doc(text="processor threads of a rank; auto: cores / ranks on the machine", least=1, auto=True)
    ] = AUTO
    remat: Annotated[
        Literal["auto", RematLevel],
        Doc(
            text="computed again in the backward pass, to save memory; selective: all but products and attention; "
            "auto: the least that fits",
            synonyms=(("true", "full"), ("false", "none")),
        ),
    ] = "auto"
    compile: Annotated[Switch, Doc(text="compile the model (torch; JAX and XLA always do); auto: on NVIDIA GPUs")] = (
        "auto"
    )
    exact: Annotated[
        bool,
        Doc(text="repeat a run on the same devices bit for bit, and multiply fp32 in full precision: slower on GPUs"),
    ] = False
    log_every: Annotated[int, Doc(text="steps between two lines", least=1)] = 10
    resume: Annotated[Literal["auto", "never", "required"], Doc(text="start from the newest complete checkpoint")] = (
        "auto"
    )
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    optim: OptimConfig = dataclasses.field(default_factory=OptimConfig)
    lora: LoraConfig = dataclasses.field(default_factory=LoraConfig)
    mesh: MeshConfig = dataclasses.field(default_factory=MeshConfig)
    checkpoint: CheckpointConfig = dataclasses.field(default_factory=CheckpointConfig)
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    eval: EvalConfig = dataclasses.field(default_factory=EvalConfig)
    dist: DistConfig = dataclasses.field(default_factory=DistConfig)
    metrics: MetricsConfig = dataclasses.field(default_factory=MetricsConfig)

    @property
    def products(self) -> DTypeName:
        """Type of the matrix products; without a device to resolve `auto`, that of a processor."""
        return "fp32" if self.dtype == "auto" else self.dtype

    @property
    def orthogonalized(self) -> DTypeName:
        """Type of the products by which Muon orthogonalizes."""
        return "fp32" if self.exact else self.products

    @property
    def marked(self) -> bool:
        """Whether the loss is that of marked tokens alone; without data to resolve `auto`, of all."""
        return self.data.loss == "marked"

    @property
    def compiled(self) -> bool:
        """Whether torch compiles the model; without a device to resolve `auto`, as on a processor."""
        return self.compile == "true"

    @property
    def recomputed(self) -> RematLevel:
        """What the backward pass computes again; without a device to resolve `auto`, nothing."""
        return "none" if self.remat == "auto" else self.remat

    def check_row(self, context: int, tensor: int) -> None:
        """Check that the tokens of a row divide over so many devices of the context and tensor axes.

        Raises:
            ConfigError: They do not; the message names the nearest length that does.
        """
        parts = 2 * context if context > 1 else 1  # an early and a late one for each device
        step = math.lcm(parts, context * tensor)
        near = f"use seq_len={-(-self.seq_len // step) * step}"
        if self.seq_len % parts:
            raise ConfigError(
                f"seq_len={self.seq_len} does not divide into {parts} parts, two for each device of "
                f"mesh.context={context}: {near}"
            )
        if self.seq_len % step:
            own = self.seq_len // context
            raise ConfigError(f"mesh.tensor={tensor} does not divide the {own} tokens of a row on a device: {near}")

    def rows_per_micro_batch(self, shards: int) -> int:
        """Return the rows that one of `shards` equal shares passes through the model together.

        Raises:
            ConfigError: The batch does not divide; the message names the nearest ones that do.
        """
        share = shards * self.accumulate
        if self.batch % share:
            below, above = self.batch // share * share, -(-self.batch // share) * share
            near = f"{below} or {above}" if below else str(above)
            raise ConfigError(
                f"batch={self.batch} does not divide over {shards} shares x accumulate={self.accumulate}: "
                f"use batch={near}"
            )
        return self.batch // share
