"""Estimate of the bytes that a step needs on one device, by counting what an engine keeps.

The counts follow the engines (trainer/torch_engine, trainer/jax_engine). The factors that cannot be counted were fitted
to the TPU compiler's results for this trainer's step; docs/performance.md has the table.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, TypeAlias

from trainer.accelerators.usable_memory import find_usable_bytes
from trainer.config import Config, ModelConfig, RematLevel
from trainer.errors import ConfigError
from trainer.shape.architecture import Parameter, count_block_parameters
from trainer.shape.attention_chunks import choose_ring_chunk, list_attention_chunks
from trainer.shape.hardware import Hardware
from trainer.shape.layout import get_layout
from trainer.shape.limits import LOGITS_BYTES
from trainer.shape.lora import list_run_parameters, list_targets
from trainer.shape.mesh import Mesh
from trainer.shape.pipeline import Stage, list_stage_parameters, list_stages

Engine: TypeAlias = Literal["torch", "jax"]
Moment: TypeAlias = Literal["step", "loss", "backward-start", "backward-end", "embedding"]
"""Moment of a step: the loss is computed; the last block's backward pass begins; the first block's ends; then comes the
embedding's gradient. Of a compiled step, "step": a compiler places all of its memory together."""
FLOAT = 4
ESTIMATE_ERROR = 0.2  # tests compare the estimate with compilers and allocators; docs/performance.md has the ratios
TIGHT = 0.9  # share of the usable memory, because of ESTIMATE_ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes on one device at the moment of a step that needs the most; the parts add up to `total`.

    Attributes:
        weights: In fp32.
        optimizer: Moments of the optimizer.
        averages: Averaged weights.
        gradients: With a second set where a sum over micro-batches needs one.
        gathered: Whole weights and gradients of the current blocks and tables, and copies in bf16.
        activations: Kept for the backward pass.
        block: Working memory of the backward pass of one block, and the mask of attention, which all blocks read.
        logits: With their gradient, and what else the loss needs.
        peak: The moment.
    """

    weights: int
    optimizer: int
    averages: int
    gradients: int = 0
    gathered: int = 0
    activations: int = 0
    block: int = 0
    logits: int = 0
    peak: Moment = "step"

    @property
    def state(self) -> int:
        """Bytes that are kept between two steps."""
        return self.weights + self.optimizer + self.averages

    @property
    def total(self) -> int:
        return self.state + self.gradients + self.gathered + self.activations + self.block + self.logits

    def as_json(self) -> dict[str, int | str]:
        return {**dataclasses.asdict(self), "total": self.total}


def estimate_usable_memory(hardware: Hardware) -> int | None:
    """Return the bytes of one device that a program can use; None when the size is unknown."""
    return find_usable_bytes(hardware.kind, hardware.chip, hardware.memory_bytes)


def estimate_memory(config: Config, mesh: Mesh, engine: Engine) -> Memory:
    """Estimate the memory that one device of the mesh needs; of a pipeline, one of the stage that needs the most.

    Raises:
        ConfigError: The batch does not divide.
    """
    stages = list_stages(config.model, mesh)  # the first has the most micro-batches in flight, the last the logits
    found = [_estimate_stage(_Count(config, mesh, engine, stage)) for stage in {stages[0], stages[-1]}]
    return max(found, key=lambda memory: memory.total)


def _estimate_stage(count: _Count) -> Memory:
    config, mesh, stage = count.config, count.mesh, count.stage
    local = _count_local(count.parameters, mesh.fsdp, mesh.tensor)
    trained = _count_local(count.trained, mesh.fsdp, mesh.tensor)
    in_flight = stage.count_in_flight(config.accumulate)
    activations = in_flight * len(stage.layers) * count.kept_of_block(config.recomputed) + count.passed_between_stages()
    step = Memory(
        weights=FLOAT * local,
        optimizer=count.optimizer(trained),
        averages=FLOAT * trained if config.optim.ema else 0,
        gradients=count.gradients(trained),
        gathered=count.gathered(local),
        activations=activations,
        block=count.working_of_block() + count.recomputed_of_block() + in_flight * count.attention_mask(),
        logits=count.logits() if stage.is_last else 0,
    )
    if count.engine == "jax":  # the compiler allocates for all of the step, and the factors were fitted to that
        return step
    return max(_list_moments(count, step, local), key=lambda moment: moment.total)


def _list_moments(count: _Count, step: Memory, local: int) -> Iterator[Memory]:
    """Yield what torch needs at each moment of a step that may need the most, given all that the step needs."""
    late = count.gradients_come_late()
    step = replace(step, activations=step.activations + count.kept_of_last_norm())
    mask = count.stage.count_in_flight(count.config.accumulate) * count.attention_mask()
    if count.stage.is_last:
        yield replace(
            step,
            peak="loss",
            gradients=0 if late else step.gradients,
            gathered=count.gathered_for_loss(local),
            block=mask,
            logits=count.loss(),
        )
    backward = replace(step, logits=0)
    yield replace(
        backward,
        peak="backward-start",
        gradients=step.gradients if not late else count.head_gradient() if count.mesh.fsdp == 1 else 0,
        gathered=count.gathered_for_block(0 if count.config.recomputed != "none" else local),
    )
    yield replace(
        backward,
        peak="backward-end",
        gathered=count.gathered_for_block(0),
        activations=count.kept_of_block(count.config.recomputed) + count.passed_between_stages(),
    )
    yield replace(
        backward,
        peak="embedding",
        gathered=count.gathered_for_tables(late=late),
        activations=count.passed_between_stages(),
        block=mask,
    )


def list_levels(config: Config) -> tuple[RematLevel, ...]:
    """Return the levels of recomputation that the engine has, from the fastest to the smallest.

    torch_xla and float8 have no selective one. On a tensor axis torch recomputes compiled blocks from outside, and so
    whole.
    """
    if (
        config.float8 != "none"
        or config.device == "xla"
        or (config.engine != "jax" and config.compiled and config.mesh.tensor > 1)
    ):
        return ("none", "full")
    return ("none", "selective", "full")


def resolve_remat(config: Config, mesh: Mesh, engine: Engine, usable: int | None) -> Config:
    """Resolve `remat=auto`: the fastest level with which a step fits with a margin.

    Args:
        config: The settings.
        mesh: The mesh.
        engine: The engine.
        usable: Usable bytes of one device; None when unknown: nothing is recomputed.

    Raises:
        ConfigError: The engine does not have the level, or the batch does not divide.
    """
    levels = list_levels(config)
    if config.remat != "auto":
        if config.remat not in levels:
            why = "torch_xla has no" if config.device == "xla" else "compiled blocks on a tensor axis have no"
            raise ConfigError(f"remat={config.remat}: {why} selective recomputation: remat=full")
        return config
    tried = [dataclasses.replace(config, remat=level) for level in levels]
    if usable is None:
        return tried[0]
    fitting = (one for one in tried if estimate_memory(one, mesh, engine).total <= TIGHT * usable)
    return next(fitting, tried[-1])


@lru_cache(maxsize=256)
def _count_local(parameters: tuple[Parameter, ...], fsdp: int, tensor: int) -> int:
    """Return the number of values of the parameters on one device."""
    return sum(
        one.size
        // (fsdp if get_layout(one).fsdp is not None else 1)
        // (tensor if get_layout(one).tensor is not None else 1)
        for one in parameters
    )


@dataclass(frozen=True, slots=True)
class _Count:
    config: Config
    mesh: Mesh
    engine: Engine
    stage: Stage

    @property
    def model(self) -> ModelConfig:
        return self.config.model

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        if self.stage.count == 1:
            return list_run_parameters(self.model, self.config.lora)
        return tuple(one for _, one in list_stage_parameters(self.model, self.config.lora, self.stage))

    @property
    def trained(self) -> tuple[Parameter, ...]:
        return tuple(one for one in self.parameters if not one.frozen)

    @property
    def width(self) -> int:
        """Bytes of a number in the matrix products."""
        return FLOAT if self.config.products == "fp32" else 2

    @property
    def operand_width(self) -> int:
        """Bytes of an operand of a block's products that is kept for nothing else: with float8, a compiler keeps that.

        Measured on an H200: 3b with 4 rows of 4,096 tokens allocates 64.3 GiB, the estimate is 73.
        """
        return 1 if self.config.float8 != "none" and self.fuses else self.width

    @property
    def stream(self) -> int:
        """Bytes of a number in the residual stream."""
        return FLOAT if self.config.residual == "fp32" else 2

    @property
    def fuses(self) -> bool:
        """Whether a compiler recomputes what costs no product: copies of weights, and an activation function."""
        return self.engine == "jax" or self.config.compiled

    @property
    def normalized(self) -> int:
        """Bytes of a number that a norm keeps beside its input and its output: on a processor torch has no kernel for it,
        and keeps the input times its factor."""
        return FLOAT if self.config.device == "cpu" and not (self.fuses or self.config.lora.rank) else 0

    @property
    def may_have_gpu(self) -> bool:
        return self.config.device in {"auto", "cuda"}

    @property
    def repeats_heads(self) -> bool:
        """Whether torch repeats keys and values for each query head: CUDA's kernel for fp32 and for masks needs it."""
        own = self.engine == "jax" or self.model.attention_softcap or self.mesh.context > 1
        return not own and self.may_have_gpu and (self.width == FLOAT or self.attention_mask() > 0)

    @property
    def tokens(self) -> int:
        """Tokens of one micro-batch on one device, in products."""
        return self.rows * self.config.seq_len // self.mesh.context

    @property
    def own_tokens(self) -> int:
        """Tokens of one micro-batch on one device between products: the tensor axis divides them, but in torch_xla."""
        return self.tokens // (1 if self.config.device == "xla" else self.mesh.tensor)

    @property
    def rows(self) -> int:
        """Rows of one micro-batch on one device, which has some of their tokens."""
        return self.config.rows_per_micro_batch(self.mesh.shards)

    def optimizer(self, local: int) -> int:
        """Return the bytes of the moments, given the number of trained values on one device.

        AdamW has two for each value, Muon one for those of hidden matrices. Adafactor has a number for each row and
        column of a matrix, and for each value of a vector.
        """
        if self.config.optim.kind == "adafactor":
            return FLOAT * sum(sum(p.shape) for p in self.trained)
        hidden = tuple(p for p in self.trained if p.is_hidden_matrix) if self.config.optim.kind == "muon" else ()
        return FLOAT * (2 * local - _count_local(hidden, self.mesh.fsdp, self.mesh.tensor))

    def gradients(self, local: int) -> int:
        """Return the bytes of all gradients.

        torch sums micro-batches in place, and replicas have buckets beside that sum. JAX holds the sum, the next
        gradients, and the new sum.
        """
        if self.config.accumulate == 1:
            return FLOAT * local
        return FLOAT * local * (3 if self.engine == "jax" else 2 if self.has_buckets else 1)

    @property
    def has_buckets(self) -> bool:
        """Whether torch sums the gradients of replicas in flat buffers."""
        return self.mesh.data > 1 and self.mesh.fsdp == 1

    def gradients_come_late(self) -> bool:
        """Return whether a gradient's memory is allocated only when it is computed.

        JAX's loops over layers and torch's buckets allocate all of it before, and a sum over micro-batches is kept.
        """
        return self.engine == "torch" and self.config.accumulate == 1 and not self.has_buckets

    @property
    def table(self) -> int:
        """Values of the embedding or the head on one device of the tensor axis, gathered over the other axes."""
        return self.model.tokens * self.model.dim // self.mesh.tensor

    @property
    def tables(self) -> int:
        """Number of tables of the stage: a tied head is the embedding."""
        return sum(one.role in ("embedding", "head") for one in self.parameters)

    @property
    def trains_tables(self) -> bool:
        return not self.config.lora.rank

    def gathered(self, local: int) -> int:
        """Return the bytes of weights that JAX gathers, and of gradients before they are scattered.

        They are of two blocks (the next is prefetched), and of the larger of embedding and head. Without sharding only
        the copies in bf16 are extra.
        """
        copies = local * self.width if self.width < FLOAT else 0
        if self.mesh.fsdp == 1:
            return copies
        block = count_block_parameters(self.model) // self.mesh.tensor
        gradients = 0 if self.config.lora.rank else (block + self.table) * FLOAT
        return 2 * block * self.width + gradients + self.table * self.width + copies

    def gathered_for_loss(self, local: int) -> int:
        """Return the bytes of the tables, which FSDP2 keeps from the forward to the backward pass.

        Without sharding autocast keeps its copies of all weights; compiled blocks have none.
        """
        if self.mesh.fsdp > 1:
            summed = FLOAT if self.config.accumulate > 1 and self.trains_tables else 0
            return self.tables * self.table * (self.width + summed)
        return 0 if self.width == FLOAT or self.config.compiled else local * self.width

    def gathered_for_block(self, local: int) -> int:
        """Return the bytes of the tables, with the head's gradient; of two blocks' weights, one of which is prefetched;
        and of the last block's gradients in fp32, which are scattered meanwhile."""
        if self.mesh.fsdp == 1:
            return self.gathered_for_loss(local)
        block = count_block_parameters(self.model) // self.mesh.tensor
        gradients = block * FLOAT if self.trains_tables else 0
        return self.gathered_for_loss(0) + 2 * block * self.width + gradients + self.head_gradient()

    def gathered_for_tables(self, *, late: bool) -> int:
        """Return the bytes with which the gradients of the tables are summed, beside what they are in the end.

        FSDP2: each in the type of the products and in fp32, and one more weight. Else: the gradient of a tied embedding
        and the sum with the head's, which is one more where no gradient takes its place.
        """
        if not self.trains_tables:
            return self.gathered_for_loss(0)
        tied = self.model.tied and self.stage.count == 1
        if self.mesh.fsdp == 1:
            return self.table * FLOAT * ((2 if tied else 0) + (0 if late else 1))
        held = self.width * (4 if tied else 3 * self.tables)
        return self.table * max(held, self.tables * (FLOAT + self.width) + self.width)

    def head_gradient(self) -> int:
        """Return the bytes of the head's gradient, which is there before the backward pass of the blocks."""
        if not (self.trains_tables and self.stage.is_last):
            return 0
        return self.table * (self.width if self.mesh.fsdp > 1 else FLOAT)

    def passed_between_stages(self) -> int:
        """Return the bytes of the values and gradients between stages, of which torch has a buffer a micro-batch.

        Sent values are kept until their gradient is there.
        """
        stage, count = self.stage, self.config.accumulate
        if stage.count == 1:
            return 0
        received = (0 if stage.is_first else count) + (0 if stage.is_last else count)
        return self.residual() * (received + (0 if stage.is_last else stage.count_in_flight(count)))

    def residual(self) -> int:
        """Return the bytes of the residual stream between two blocks."""
        return self.own_tokens * self.model.dim * self.stream

    def kept_of_last_norm(self) -> int:
        """Return the bytes of the last norm's input and output."""
        return self.own_tokens * self.model.dim * (self.stream + self.normalized + self.width) if self.stage.is_last else 0

    def kept_of_block(self, level: RematLevel) -> int:
        """Return the bytes that one block keeps for its backward pass.

        Without recomputation. Of all tokens: each norm's output, in the products' type. Of the device's own tokens,
        which a tensor axis divides: the stream before each norm; norms of results. Sharded over that axis: queries,
        keys, values, the output of attention; gate, up, and their product (torch uncompiled: silu of gate, too);
        queries and keys before their norm, where they have one. torch with a bound of scores: the scores. float8:
        operands that only a product reads, in 8 bits. Selective: the stream before the block, the products but the
        last, and the output of attention; on a tensor axis torch keeps the product after it of all tokens, JAX what is
        scattered of it. Full: the stream.

        Of experts each device has a row for each choice of each of all tokens: the input, gate, up, and their product,
        before and after its share; and of the own tokens fp32 shares of all experts.
        """
        if level == "full":
            return self.residual()
        narrow_results = self.tokens * self.width * self.config.lora.rank * len(list_targets(self.config.lora))
        model, width = self.model, self.width
        stream = self.stream if self.fuses else FLOAT  # norms of torch keep what they convert
        wide, narrow = model.heads * model.head_dim, model.kv_heads * model.head_dim
        if level == "selective":
            own, hidden, normed, scored = stream * model.dim, 2, 0, 0
            whole = width * model.dim
            if self.engine == "jax":
                own, whole = own + whole, 0
        else:
            scored = self.capped_scores()
            own, hidden = 2 * (stream + self.normalized) * model.dim, 3 if self.fuses else 4
            own += 2 * (width if self.fuses else FLOAT) * model.dim if model.post_norm else 0
            whole = 2 * model.dim * self.operand_width
            normed = (width if self.fuses else FLOAT) * (wide + narrow) if model.qk_norm else 0
        dense = 0
        if not model.experts:
            narrowed = 0 if level == "selective" else width - self.operand_width
            dense = (width * hidden - narrowed) * model.hidden
        divided = (width * (2 * wide + 2 * (wide if self.repeats_heads else narrow)) + dense + normed) // self.mesh.tensor
        kept = self.tokens * (whole + divided + self.kept_of_experts(level)) + narrow_results + scored
        return kept + self.own_tokens * (own + (FLOAT * model.experts if level == "none" else 0))

    def kept_of_experts(self, level: RematLevel) -> int:
        """Return the bytes that the experts of a block keep for each of all tokens."""
        model, width = self.model, self.width
        if not model.experts:
            return 0
        if level == "selective":
            return width * model.experts_per_token * 2 * model.expert_dim
        hidden = 4 if self.fuses else 5
        return width * model.experts_per_token * (model.dim + hidden * model.expert_dim)

    def count_hidden(self) -> int:
        """Return the hidden values of a token on one device: of the feed-forward layer, or of its experts."""
        if self.model.experts:
            return self.model.experts_per_token * self.model.expert_dim
        return self.model.hidden // self.mesh.tensor

    def attention_mask(self) -> int:
        """Return the bytes of the masks of a micro-batch, which torch makes where flex_attention does not compute them.

        Blocks with one window share a mask. With documents each row has its own.
        """
        length, documents, model = self.config.seq_len, self.config.data.document_mask, self.model
        tiled = self.config.compiled and self.may_have_gpu and not model.attention_softcap
        windows = {model.get_window(layer) for layer in range(model.layers)}
        masks = sum(bool(documents or 0 < window < length) for window in windows)
        if self.engine == "jax" or tiled or self.mesh.context > 1:
            return 0
        return self.width * length**2 * (self.tokens // length if documents else 1) * masks

    def capped_scores(self) -> int:
        """Return the bytes of bounded scores that a block of torch keeps: tanh, softmax, and its copy."""
        if not self.model.attention_softcap or self.engine == "jax" or self.mesh.context > 1:
            return 0
        heads = -(-self.model.heads // self.mesh.tensor)
        return self.tokens * self.config.seq_len * heads * (2 * FLOAT + self.width)

    def recomputed_of_block(self) -> int:
        """Return the bytes that one block computes again during its backward pass.

        JAX holds the gradients as well.
        """
        level = self.config.recomputed
        if level == "none":
            return 0
        times = 2 if self.engine == "jax" else 1
        kept = self.kept_of_block("none") - (self.residual() if self.engine == "torch" else 0)  # its input is kept
        if level == "selective":  # the values, and the results of gate and up, are there
            values = self.model.kv_heads * self.model.head_dim // self.mesh.tensor
            kept -= self.tokens * self.width * (values + 2 * self.count_hidden())
        return times * kept

    def working_of_block(self) -> int:
        """Return the bytes of the gradients of the widest results, and of one chunk of attention with its gradient."""
        model = self.model
        heads = -(-model.heads // self.mesh.tensor)
        # A block without a window needs the most.
        window = 0 if any(model.get_window(layer) == 0 for layer in range(model.layers)) else model.window
        scores = max(chunk.scores for chunk in list_attention_chunks(self.config.seq_len, window))
        chunk = self.rows * heads * scores * FLOAT
        # torch frees the product that it needs first.
        wide = self.tokens * self.width * (3 if self.engine == "jax" else 2) * self.count_hidden()
        if self.engine == "torch" and self.mesh.tensor > 1:  # the gradient of the scattered result, gathered
            wide += self.tokens * self.width * model.dim
        attention = 2 * chunk if self.engine == "jax" else 0
        if self.mesh.context > 1:
            attention = self.ring()
            if self.engine == "torch" and self.config.recomputed != "none":  # those of its second half are free by then
                attention -= self.tokens * self.width * 3 * self.count_hidden()
        return max(attention, wide) + self.residual()

    def ring(self) -> int:
        """Return the bytes of one turn of ring attention's backward pass.

        They are the keys and values that are there and those that arrive, as many gradients of them, that of the
        queries, and the scores of a chunk of queries where no fused kernel computes them.
        """
        model, length = self.model, self.config.seq_len // self.mesh.context  # tokens of a row on a device
        keys = 2 * self.tokens * model.kv_heads * model.head_dim // self.mesh.tensor
        queries = self.tokens * model.heads * model.head_dim // self.mesh.tensor
        whole = 2 * keys * (self.width + FLOAT) + queries * (FLOAT + 2 * self.width)
        if self.engine == "torch" and not (model.attention_softcap or model.window or self.config.data.document_mask):
            return whole
        part = length // 2
        scores = choose_ring_chunk(part) * part if self.engine == "jax" else choose_ring_chunk(length) * length
        copies = 4 if self.engine == "jax" else 5
        return whole + copies * self.rows * -(-model.heads // self.mesh.tensor) * scores * FLOAT

    def logits(self) -> int:
        """Return the bytes of JAX's fp32 logits with their gradient, in chunks of LOGITS_BYTES, and of the bf16 product.

        A bound of the logits is another copy.
        """
        whole = self.tokens * self.model.tokens // self.mesh.tensor * FLOAT
        return int((3.5 if self.model.softcap else 2.5) * min(whole, LOGITS_BYTES))

    def loss(self) -> int:
        """Return the bytes that torch's loss needs at its peak.

        Of all logits together, in fp32: log-softmax, and the gradients of its result and of its input. In chunks, in
        fp32: the logits, these less their maximum; in the type of the products: logits, and the last chunk's gradient.
        Beside a chunk there are the gradient of the head in fp32, and the chunk's part of it where that is more; the
        gradient of the last norm's output in fp32. A bound of the logits is another copy.
        """
        whole = self.tokens * self.model.tokens // self.mesh.tensor * FLOAT
        copies = (4 if self.model.softcap else 3)
        if whole <= LOGITS_BYTES and self.mesh.tensor == 1:
            return copies * whole
        chunk = min(whole, LOGITS_BYTES)
        work = copies * chunk - (chunk * self.width // FLOAT if whole <= LOGITS_BYTES else 0)
        head = 0
        if self.trains_tables:
            head = self.table * FLOAT
            work = max(work, chunk * 2 * self.width // FLOAT + self.table * self.width)
        return work + head + self.own_tokens * self.model.dim * FLOAT
