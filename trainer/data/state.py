"""Where in which data a run is: all that resuming needs, on any number of hosts."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.errors import ConfigError, DataError


@dataclass(frozen=True, slots=True)
class DataState:
    """step: steps whose rows were used. total_tokens, vocab, fingerprint: of the corpus (trainer/data/corpus.py)."""

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
        """Rows used so far, over all ranks."""
        return self.step * self.batch

    def check_continues(self, earlier: DataState, *, allow_change: bool) -> list[str]:
        """What differs from the checkpoint's data. Raises DataError or ConfigError unless it is allowed.

        A place is no difference: the same corpus may have moved.
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
            f"the data is not what the checkpoint was made with ({'; '.join(changes)}), so its order cannot go on: "
            "restore it, or accept another order with data.allow_change=true"
        )
