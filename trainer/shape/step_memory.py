"""Counts of the bytes that an engine keeps on one device; trainer/shape/memory.py adds them up.

The counts follow the engines (trainer/torch_engine, trainer/jax_engine). Those of torch are equal to a rehearsed step
within a few percent (trainer/torch_engine/rehearsal.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

from trainer.config import Config, ModelConfig, RematLevel
from trainer.shape.architecture import Parameter, count_block_parameters
from trainer.shape.attention_chunks import choose_ring_chunk, list_attention_chunks
from trainer.shape.layout import get_layout
from trainer.shape.limits import LOGITS_BYTES
from trainer.shape.lora import list_run_parameters, list_targets
from trainer.shape.mesh import Mesh
from trainer.shape.pipeline import Stage, list_stage_parameters

Engine: TypeAlias = Literal["torch", "jax"]
FLOAT = 4


@lru_cache(maxsize=256)
def count_local_values(parameters: tuple[Parameter, ...], fsdp: int, tensor: int) -> int:
    """Return the number of values of the parameters on one device."""
    return sum(
        one.size
        // (fsdp if get_layout(one).fsdp is not None else 1)
        // (tensor if get_layout(one).tensor is not None else 1)
        for one in parameters
    )


@dataclass(frozen=True, slots=True)
class StepCount:
    """Counts the bytes that a step keeps on one device of a stage, part by part."""

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
        """Bytes of an operand of a block's products: with float8, a compiler keeps it in 8 bits, or computes it again.

        Measured on an H200: 3b with 4 rows of 4,096 tokens allocates 64.3 GiB, the estimate is 68.2.
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
        """Bytes of a number that a norm keeps beside its input and its output.

        On a processor torch has no kernel for it, and keeps the input times its factor.
        """
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
        return FLOAT * (2 * local - count_local_values(hidden, self.mesh.fsdp, self.mesh.tensor))

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

        Without sharding autocast keeps its copies of all weights; compiled blocks keep theirs without recomputation.
        """
        if self.mesh.fsdp > 1:
            summed = FLOAT if self.config.accumulate > 1 and self.trains_tables else 0
            return self.tables * self.table * (self.width + summed)
        if not self.config.compiled:
            return local * self.width if self.width < FLOAT else 0
        return self.copies_of_blocks() if local else 0

    def copies_of_blocks(self) -> int:
        """Return the bytes of the blocks' weights in the type of the products, which a compiled block keeps."""
        if self.width == FLOAT or self.config.recomputed != "none":
            return 0
        return len(self.stage.layers) * count_block_parameters(self.model) // self.mesh.tensor * self.operand_width

    def gathered_for_block(self, local: int) -> int:
        """Return the bytes of the weights for a block's backward pass, and of gradients.

        They are of the tables, with the head's gradient; of two blocks, one of which is prefetched; and the last
        block's gradients in fp32, which are scattered meanwhile.
        """
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
        stream = self.stream if self.fuses else FLOAT  # see kept_of_block
        return self.own_tokens * self.model.dim * (stream + self.normalized + self.width) if self.stage.is_last else 0

    def kept_of_block(self, level: RematLevel) -> int:
        """Return the bytes that one block keeps for its backward pass.

        Without recomputation. Of all tokens: each norm's output, in the products' type. Of the device's own tokens,
        which a tensor axis divides: the stream before each norm; norms of results. Sharded over that axis: queries,
        keys, values, the output of attention; gate, up, and their product (torch uncompiled: silu of gate, too);
        queries and keys before their norm, where they have one. torch with a bound of scores: the scores. float8:
        of the products' operands only attention's result, in 8 bits. torch compiled: for the second stream the result
        of attention's last product. Selective: the stream before the block, the products but the
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
            if self.engine == "torch" and self.fuses:  # the second stream is the first and the result of attention
                own = (stream + width) * model.dim
            own += 2 * (width if self.fuses else FLOAT) * model.dim if model.post_norm else 0
            whole = 2 * model.dim * self.width
            if self.operand_width < self.width:  # computed again from the streams: only attention's result is kept
                whole = wide * self.operand_width
            normed = (width if self.fuses else FLOAT) * (wide + narrow) if model.qk_norm else 0
        dense = 0
        if not model.experts:
            narrowed = width if level != "selective" and self.operand_width < width else 0
            dense = (width * hidden - narrowed) * model.hidden
        divided = (
            width * (2 * wide + 2 * (wide if self.repeats_heads else narrow)) + dense + normed
        ) // self.mesh.tensor
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
        hidden = self.count_hidden()
        # torch has one gradient beside the gathered one of the block's result, or three when the product is free.
        wide = 3 * hidden if self.engine == "jax" else max(hidden + model.dim, 2 * hidden)
        wide *= self.tokens * self.width
        attention = 2 * chunk if self.engine == "jax" else 0
        if self.mesh.context > 1:
            attention = self.ring()
            if self.engine == "torch" and self.config.recomputed != "none":  # those of its second half are free by then
                attention -= self.tokens * self.width * 3 * hidden
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
        """Return the bytes of JAX's fp32 logits with their gradient, in chunks, and of the bf16 product.

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
        copies = 4 if self.model.softcap else 3
        if whole <= LOGITS_BYTES and self.mesh.tensor == 1:
            return copies * whole
        chunk = min(whole, LOGITS_BYTES)
        work = copies * chunk - (chunk * self.width // FLOAT if whole <= LOGITS_BYTES else 0)
        head = 0
        if self.trains_tables:
            head = self.table * FLOAT
            work = max(work, chunk * 2 * self.width // FLOAT + self.table * self.width)
        return work + head + self.own_tokens * self.model.dim * FLOAT
