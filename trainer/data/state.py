"""The position of a run in its data: all that is needed to resume on any number of hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trainer.data.fingerprints import is_same_corpus
from trainer.errors import ConfigError, DataError
from trainer.mixture import MixtureOrder, derive_seed
from trainer.order import Order, RowOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """One source of a mixture.

    Attributes:
        source: Its place.
        weight: How many of every `sum of all weights` rows are from it.
        total_tokens: Without those that are held out for evaluations.
        fingerprint: Of its corpus.
    """

    source: str
    weight: int
    total_tokens: int
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceUse:
    """How far a source is used.

    Attributes:
        source: Its place.
        rows: Rows that were read: its position.
        share: Its part of all rows.
        epochs: Passes over it.
        total_tokens: Its tokens that are trained on.
    """

    source: str
    rows: int
    share: float
    epochs: float
    total_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    """A setting with its value in the checkpoint's run and in this one, as a user writes them."""

    name: str
    before: str
    now: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DataState:
    """The corpus, the order of its rows, and how many steps have used it.

    Attributes:
        step: Number of steps whose rows were used.
        seed: Of the order.
        batch: Rows per step, over all processes.
        seq_len: Tokens per row.
        source: Value of the setting `data`.
        total_tokens: Of the corpus, without those that are held out for evaluations.
        vocab: Of the corpus (trainer/data/corpus.py).
        fingerprint: Of the corpus (trainer/data/corpus.py).
        sources: Those of a mixture; none for a single one.
    """

    step: int
    seed: int
    batch: int
    seq_len: int
    source: str
    total_tokens: int
    vocab: int
    fingerprint: str
    sources: tuple[SourceState, ...] = ()

    @property
    def position(self) -> int:
        """Number of rows used so far, over all ranks."""
        return self.step * self.batch

    def open_order(self) -> Order:
        """Return the order of the rows.

        Raises:
            DataError: A source is shorter than a row.
        """
        if not self.sources:
            return self._order_rows(self.total_tokens, self.seed)
        return MixtureOrder(
            orders=tuple(
                self._order_rows(one.total_tokens, derive_seed(self.seed, place))
                for place, one in enumerate(self.sources)
            ),
            weights=tuple(one.weight for one in self.sources),
            batch=self.batch,
            seq_len=self.seq_len,
            seed=self.seed,
        )

    def _order_rows(self, total: int, seed: int) -> RowOrder:
        return RowOrder(total=total, batch=self.batch, seq_len=self.seq_len, seed=seed)

    def list_uses(self) -> list[SourceUse]:
        """Return how far each source is used after these steps; of a single source one entry."""
        sources = [(one.source, one.total_tokens) for one in self.sources] or [(self.source, self.total_tokens)]
        counts = self.open_order().count_rows(self.position)
        return [
            SourceUse(
                source=source,
                rows=rows,
                share=rows / max(1, self.position),
                epochs=rows / self._order_rows(total, 0).windows,
                total_tokens=total,
            )
            for (source, total), rows in zip(sources, counts, strict=True)
        ]

    @property
    def weights(self) -> str:
        """The weights of a mixture, such as 7:3."""
        return ":".join(str(one.weight) for one in self.sources) or "none"

    def check_compatible(
        self, earlier: DataState, *, allow_change: bool, settings: Sequence[SettingChange] = ()
    ) -> list[str]:
        """List the differences from the data of a checkpoint.

        The source is not compared: the same corpus may have moved.

        Args:
            earlier: The checkpoint's.
            allow_change: Whether the data may differ.
            settings: Those that decide what is trained on and were others in the checkpoint's run. A message names
                them where the corpus differs.

        Raises:
            DataError: The corpus differs, and `allow_change` is false.
            ConfigError: A setting differs, and `allow_change` is false.
        """
        changes = [
            f"{name} {before} -> {now}"
            for name, before, now in (
                ("corpus tokens that are trained on", earlier.total_tokens, self.total_tokens),
                ("corpus vocabulary", earlier.vocab, self.vocab),
                *_compare_content(earlier.fingerprint, self.fingerprint),
                ("corpus tokens of each source", _list_tokens(earlier), _list_tokens(self)),
                ("data.weights", earlier.weights, self.weights),
                ("seed", earlier.seed, self.seed),
                ("batch", earlier.batch, self.batch),
                ("seq_len", earlier.seq_len, self.seq_len),
            )
            if before != now
        ]
        if not changes or allow_change:
            return changes
        of_corpus = changes[0].startswith("corpus")
        named = settings if of_corpus else ()
        before = " ".join(f"{one.name}={one.before}" for one in named)
        now = " ".join(f"{one.name}={one.now}" for one in named)
        cause = f"{now}, but the checkpoint was made with {before}: " if named else ""
        restore = f"give {before}" if named else "restore it"
        if any(one.name == "eval.every" and one.before == "0" for one in named):
            restore += ", or evaluate on other data with eval.source"
        raise (DataError if of_corpus else ConfigError)(
            f"{cause}the data differs from the checkpoint's ({'; '.join(changes)}), so the order of its rows cannot "
            f"continue: {restore}, or accept another order with data.allow_change=true"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the manifest's form, with the position of the run and of each source."""
        content = {**asdict(self), "position": self.position}
        del content["sources"]
        if self.sources:
            content["sources"] = [
                {**asdict(one), "position": use.rows} for one, use in zip(self.sources, self.list_uses(), strict=True)
            ]
        return content

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> DataState:
        """Parse the manifest's form.

        Raises:
            KeyError: A key is missing.
            TypeError: A key is unknown, or a value has a wrong type.
        """
        fields = dict(content)
        del fields["position"]
        sources = tuple(
            SourceState(**{name: value for name, value in one.items() if name != "position"})
            for one in fields.pop("sources", ())
        )
        return cls(**fields, sources=sources)


def _compare_content(before: str, now: str) -> list[tuple[str, str, str]]:
    return [] if is_same_corpus(before, now) else [("corpus fingerprint", before, now)]


def _list_tokens(state: DataState) -> str:
    return " ".join(str(one.total_tokens) for one in state.sources) or "none"
