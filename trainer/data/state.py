"""The position of a run in its data: all that is needed to resume on any number of hosts."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.errors import ConfigError, DataError


@dataclass(frozen=True, slots=True, kw_only=True)
class DataState:
    """The corpus, the order of its rows, and how many steps have used it.

    Attributes:
        step: Number of steps whose rows were used.
        seed: Of the order.
        batch: Rows per step, over all processes.
        seq_len: Tokens per row.
        source: Value of the setting `data`.
        total_tokens: Of the corpus.
        vocab: Of the corpus (trainer/data/corpus.py).
        fingerprint: Of the corpus (trainer/data/corpus.py).
    """

    step: int
    seed: int
    batch: int
    seq_len: int
    source: str
    total_tokens: int
    vocab: int
    fingerprint: str

    @property
    def position(self) -> int:
        """Number of rows used so far, over all ranks."""
        return self.step * self.batch

    def check_compatible(self, earlier: DataState, *, allow_change: bool) -> list[str]:
        """List the differences from the data of a checkpoint.

        The source is not compared: the same corpus may have moved.

        Raises:
            DataError: The corpus differs, and `allow_change` is false.
            ConfigError: A setting differs, and `allow_change` is false.
        """
        changes = [
            f"{name} {before} -> {now}"
            for name, before, now in (
                ("corpus tokens", earlier.total_tokens, self.total_tokens),
                ("corpus vocabulary", earlier.vocab, self.vocab),
                ("corpus fingerprint", earlier.fingerprint, self.fingerprint),
                ("seed", earlier.seed, self.seed),
                ("batch", earlier.batch, self.batch),
                ("seq_len", earlier.seq_len, self.seq_len),
            )
            if before != now
        ]
        if not changes or allow_change:
            return changes
        kind = DataError if changes[0].startswith("corpus") else ConfigError
        raise kind(
            f"the data differs from the checkpoint's ({'; '.join(changes)}), so the order of its rows cannot continue: "
            "restore it, or accept another order with data.allow_change=true"
        )
