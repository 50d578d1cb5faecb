"""The data of a run, opened: one source, or several that are mixed by their weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from trainer.config import Config, DataConfig
from trainer.data.corpus import Corpus, open_corpus
from trainer.data.fingerprints import join_fingerprints
from trainer.data.held_out import HeldOutRows, hold_out_rows
from trainer.data.state import DataState, SourceState
from trainer.data.weights import list_sources
from trainer.engine import TokenArray
from trainer.errors import ConfigError, DataError
from trainer.mixture import split_position


@dataclass(frozen=True, slots=True)
class Source:
    """An open source, and how many of every `sum of all weights` rows are from it."""

    corpus: Corpus
    weight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingData:
    """What a run reads.

    Attributes:
        corpus: The text, of which `state.open_order()` gives positions.
        held_out: The rows of an evaluation, of each source; none without evaluations.
        state: At step 0.
    """

    corpus: Corpus
    held_out: tuple[HeldOutRows, ...]
    state: DataState


class MixedCorpus:
    """Several corpora of the same tokenizer. A position has the number of the corpus in its high bits."""

    def __init__(self, source: str, parts: Sequence[Corpus]) -> None:
        """Check that the corpora belong together.

        Raises:
            DataError: They were made with different tokenizers.
        """
        first = parts[0]
        for other in parts[1:]:
            if other.tokenizer != first.tokenizer:
                raise DataError(
                    f"data={other.source} has the tokenizer {other.tokenizer[:12]}, {first.source} has "
                    f"{first.tokenizer[:12]}: prepare all sources with one tokenizer"
                )
        self._parts = parts
        self.source = source
        self.total_tokens = sum(part.total_tokens for part in parts)
        self.vocab = max(part.vocab for part in parts)
        self.largest = max(part.largest for part in parts)
        self.tokenizer = first.tokenizer
        self.marked = any(part.marked for part in parts)  # of a source without marks every token counts
        self.fingerprint = join_fingerprints([part.fingerprint for part in parts])

    def read(self, positions: npt.NDArray[np.int64], length: int) -> TokenArray:
        numbers, offsets = split_position(positions)
        found = list[tuple[npt.NDArray[np.bool_], TokenArray]]()
        for number, part in enumerate(self._parts):
            own = numbers == number
            if own.any():
                found.append((own, part.read(offsets[own], length)))
        rows: TokenArray = np.empty((len(positions), length), np.result_type(*(tokens.dtype for _, tokens in found)))
        for own, tokens in found:
            rows[own] = tokens
        return rows


def open_training_data(config: Config, report: Callable[[str], None]) -> TrainingData:
    """Open the data that the settings name.

    Args:
        config: The settings.
        report: Prints one line for the user.

    Raises:
        DataError: There is nothing to read, too little, or the sources have different tokenizers.
        ConfigError: The weights are wrong.
        StorageError: A bucket cannot be read.
    """
    sources = open_sources(config.data, report)
    corpus = join_sources(config.data, sources)
    trained, held_out = hold_out_of_each(config, sources, report)
    state = DataState(
        step=0,
        seed=config.seed,
        batch=config.batch,
        seq_len=config.seq_len,
        source=corpus.source,
        total_tokens=sum(trained),
        vocab=corpus.vocab,
        fingerprint=corpus.fingerprint,
        sources=_list_states(sources, trained),
    )
    state.open_order()
    return TrainingData(corpus=corpus, held_out=held_out, state=state)


def open_sources(config: DataConfig, report: Callable[[str], None]) -> tuple[Source, ...]:
    """Open each source of the data.

    Raises:
        DataError: There is nothing to read.
        ConfigError: The weights are wrong.
        StorageError: A bucket cannot be read.
    """
    return tuple(
        Source(open_corpus(replace(config, source=one.source, weights=""), report), one.weight)
        for one in list_sources(config)
    )


def join_sources(config: DataConfig, sources: Sequence[Source]) -> Corpus:
    """Return all sources as one corpus.

    Raises:
        DataError: They have different tokenizers.
    """
    if len(sources) == 1:
        return sources[0].corpus
    return MixedCorpus(config.source, [source.corpus for source in sources])


def hold_out_of_each(
    config: Config, sources: Sequence[Source], report: Callable[[str], None]
) -> tuple[tuple[int, ...], tuple[HeldOutRows, ...]]:
    """Return how many tokens of each source are trained on, and the rows of an evaluation.

    Raises:
        DataError: There is not enough text for one batch, or it is of another vocabulary.
        StorageError: A bucket cannot be read.
    """
    if config.eval.source:
        _, rows = hold_out_rows(config, join_sources(config.data, sources), report)
        return tuple(source.corpus.total_tokens for source in sources), () if rows is None else (rows,)
    trained, held_out = list[int](), list[HeldOutRows]()
    for source in sources:
        tokens, rows = hold_out_rows(config, source.corpus, report)
        trained.append(tokens)
        if rows is not None:
            held_out.append(replace(rows, weight=source.weight))
    return tuple(trained), tuple(held_out)


def check_epochs(config: Config, data: DataState) -> None:
    """Check that the steps of the run pass over no source more often than `data.epochs`.

    Raises:
        ConfigError: They do; the message has the number of steps that do not.
    """
    limit = config.data.epochs
    if not limit or _most_epochs(data, config.steps) <= limit:
        return
    fits, too_many = 0, config.steps
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        fits, too_many = (middle, too_many) if _most_epochs(data, middle) <= limit else (fits, middle)
    most = max(replace(data, step=config.steps).list_uses(), key=lambda use: use.epochs)
    raise ConfigError(
        f"steps={config.steps} read {most.source} {most.epochs:,.2f} times, and data.epochs={limit:g}: give "
        f"steps={fits} or fewer, more data{', other data.weights' if data.sources else ''}, or more epochs"
    )


def describe_uses(data: DataState) -> str:
    """Return how far each source is used after these steps, for people."""
    return "; ".join(
        f"{use.source}: {use.share:.1%} of the rows, {use.epochs:,.2f} epochs of {use.total_tokens:,} tokens"
        for use in data.list_uses()
    )


def _most_epochs(data: DataState, step: int) -> float:
    return max(use.epochs for use in replace(data, step=step).list_uses())


def _list_states(sources: Sequence[Source], trained: Sequence[int]) -> tuple[SourceState, ...]:
    if len(sources) == 1:
        return ()
    return tuple(
        SourceState(
            source=source.corpus.source,
            weight=source.weight,
            total_tokens=tokens,
            fingerprint=source.corpus.fingerprint,
        )
        for source, tokens in zip(sources, trained, strict=True)
    )
