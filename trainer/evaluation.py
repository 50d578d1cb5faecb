"""The evaluation of a model on rows that it does not train on."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from trainer.data.held_out import HeldOutRows
from trainer.engine import Engine

_LARGEST_EXPONENT = 700.0  # of a float


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """The result of an evaluation, the same on every process.

    Attributes:
        loss: Mean nats a token.
        tokens: Predicted tokens.
        seconds: How long it took.
        losses: Of each source of a mixture; `loss` is their mean by weight. None for a single source.
    """

    loss: float
    tokens: int
    seconds: float
    losses: Mapping[str, float] | None = None

    @property
    def perplexity(self) -> float:
        """The exponential of the loss; infinite where it is too large for a number."""
        return math.exp(self.loss) if self.loss < _LARGEST_EXPONENT else math.inf

    def format_line(self) -> str:
        """Return the result for people."""
        each = "; ".join(f"{source}: {loss:.4f}" for source, loss in (self.losses or {}).items())
        return (
            f"loss {self.loss:.4f}  perplexity {self.perplexity:,.2f}  "
            f"({self.tokens:,} tokens that are not trained on, {self.seconds:.1f} s)" + (f"  {each}" if each else "")
        )


def evaluate(engine: Engine, sources: Sequence[HeldOutRows], on_batch: Callable[[], None] = lambda: None) -> Evaluated:
    """Return the loss on all batches of rows, in a mixture weighted as its sources are.

    Args:
        engine: The model; its state does not change.
        sources: What is evaluated.
        on_batch: Called after each batch.

    Raises:
        DataError: The rows cannot be read.
        StorageError: The bucket cannot be read.
        PeerError: Another rank was lost.
        DeviceError: A device fails.
    """
    begun, means = time.perf_counter(), list[float]()
    for rows in sources:
        losses = list[float]()
        for batch in range(rows.batches):
            losses.append(engine.evaluate(rows.read(batch, engine.share)))
            on_batch()
        # Tokens without a mark count as 0 in the mean of a batch.
        counted = rows.batches * rows.tokens_of_batch / rows.tokens
        means.append(math.fsum(losses) / len(losses) * counted)
    weighted = math.fsum(rows.weight * mean for rows, mean in zip(sources, means, strict=True))
    several = {rows.corpus.source: mean for rows, mean in zip(sources, means, strict=True)}
    return Evaluated(
        loss=weighted / sum(rows.weight for rows in sources),
        tokens=sum(rows.tokens for rows in sources),
        seconds=time.perf_counter() - begun,
        losses=several if len(sources) > 1 else None,
    )
