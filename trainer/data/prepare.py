"""Text to token shards: read, tokenised, packed without gaps, written shard by shard, the index last.

The result depends on the text and the settings only, not on the number of workers or on interruptions. After each
shard a progress file says how far it is, so the same command goes on behind the last whole shard.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from trainer.checkpoint.store import Store, open_store
from trainer.data import places
from trainer.data.documents import Documents, Text, open_documents
from trainer.data.encoding import Batch, Encoded, encode_all
from trainer.data.index import INDEX, PROGRESS, TOKENIZER, Index, Shard, shard_from, shard_name
from trainer.data.tokenizers import Tokens
from trainer.engine import TokenArray
from trainer.environment import usable_cores
from trainer.errors import ConfigError, DataError
from trainer.metrics.record import duration

SHARD_TOKENS = 64 << 20

_BATCH_BYTES = 1 << 20
_BATCH_TEXTS = 10_000
_SMALL = 16 << 20  # below this, starting processes costs more than they save
_LINE_SECONDS = 5.0

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Job:
    """source: as for `data=`. place: a folder of this machine or of a bucket. workers: processes; 0: as fits.

    shard_tokens: a shard ends with the first batch of documents that reaches this.
    """

    source: str
    place: str
    tokens: Tokens
    column: str = "text"
    shard_tokens: int = SHARD_TOKENS
    workers: int = 0


def prepare(job: Job, report: Report) -> Index:
    """Make the shards, or what is missing of them. Raises DataError, StorageError, ConfigError, TrainerError."""
    _check_apart(job)
    documents = open_documents(job.source, job.column)
    store = open_store(job.place, create=True)
    made_from = _made_from(job, documents)
    there = store.find(INDEX)
    if there is not None:
        return _already(job, there.data, made_from, report)
    progress = _begun(job, store, made_from)
    if progress.shards:
        report(f"going on behind {len(progress.shards)} shards, {progress.documents:,} documents")
    store.put(PROGRESS, progress.to_json())
    if job.tokens.text:
        store.put(TOKENIZER, job.tokens.text)
    progress = _make_shards(job, documents, store, progress, report)
    if not progress.shards:
        raise DataError(f"{job.source} holds no text")
    index = Index(
        dtype=job.tokens.dtype,
        vocab=job.tokens.vocab,
        tokenizer=job.tokens.name,
        eod=job.tokens.eod,
        documents=progress.documents,
        shards=progress.shards,
        source=job.source,
        made_from=made_from,
    )
    store.put(INDEX, index.to_json())
    store.delete([PROGRESS])
    report(f"{index.tokens:,} tokens of {index.documents:,} documents in {len(index.shards)} shards: {store.uri}")
    return index


@dataclass(frozen=True, slots=True)
class Progress:
    """What is done: the shards, with the batches and documents that are in them."""

    made_from: str
    batches: int = 0
    documents: int = 0
    shards: tuple[Shard, ...] = ()

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), indent=1).encode()

    @classmethod
    def from_json(cls, text: bytes, place: str) -> Progress:
        """Raises DataError."""
        try:
            content: Any = json.loads(text)
            shards = tuple(shard_from(shard) for shard in content["shards"])
            return cls(str(content["made_from"]), int(content["batches"]), int(content["documents"]), shards)
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{place}/{PROGRESS} cannot be read ({error!r}): delete it to begin anew") from error


@dataclass(slots=True)
class _Shards:
    """Gathers tokens and writes a shard when there are enough."""

    job: Job
    store: Store
    progress: Progress
    held: list[TokenArray] = field(default_factory=list[TokenArray])
    count: int = 0
    batches: int = 0
    documents: int = 0

    def add(self, encoded: Encoded) -> bool:
        """Whether a shard was written."""
        self.held.append(encoded.tokens)
        self.count += len(encoded.tokens)
        self.batches += 1
        self.documents += encoded.documents
        return self.count >= self.job.shard_tokens and self.write()

    def write(self) -> bool:
        if not self.count:
            return False
        data = b"".join(tokens.tobytes() for tokens in self.held)
        done = self.progress
        shard = Shard(shard_name(len(done.shards)), self.count, hashlib.sha256(data).hexdigest())
        self.store.put(shard.name, data)
        self.progress = replace(
            done,
            batches=done.batches + self.batches,
            documents=done.documents + self.documents,
            shards=(*done.shards, shard),
        )
        self.store.put(PROGRESS, self.progress.to_json())
        self.held, self.count, self.batches, self.documents = [], 0, 0, 0
        return True


def _make_shards(job: Job, documents: Documents, store: Store, progress: Progress, report: Report) -> Progress:
    batches = islice(batched(documents.read(), min(_BATCH_BYTES, job.shard_tokens)), progress.batches, None)
    shards, speaker = _Shards(job, store, progress), _Speaker(documents, report)
    tokens = sum(shard.tokens for shard in progress.shards)
    for encoded in encode_all(job.tokens, batches, _workers(job, documents)):
        tokens += len(encoded.tokens)
        if shards.add(encoded):
            report(f"{shards.progress.shards[-1].name}: {shards.progress.shards[-1].tokens:,} tokens")
        speaker.say(tokens)
    shards.write()
    return shards.progress


def batched(texts: Iterable[Text], size: int) -> Iterator[Batch]:
    """Texts in groups of about `size` bytes, the same groups each time."""
    batch: list[Text] = []
    count = 0
    for text in texts:
        batch.append(text)
        count += len(text.data)
        if count >= size or len(batch) == _BATCH_TEXTS:
            yield batch
            batch, count = [], 0
    if batch:
        yield batch


class _Speaker:
    """A line now and then: how much is done, how fast, how long it still takes."""

    def __init__(self, documents: Documents, report: Report) -> None:
        self._documents = documents
        self._report = report
        self._next = time.monotonic() + _LINE_SECONDS
        self._from: tuple[float, int] | None = None

    def say(self, tokens: int) -> None:
        now, seen, size = time.monotonic(), self._documents.seen, self._documents.size
        if self._from is None:
            self._from = now, seen  # what an earlier start has done is passed over quickly, and no measure
        if now < self._next or now == self._from[0]:
            return
        self._next = now + _LINE_SECONDS
        rate = (seen - self._from[1]) / (now - self._from[0])
        if size is None or rate <= 0:
            self._report(f"{tokens:,} tokens  {seen / 1e6:,.0f} MB read  {rate / 1e6:.1f} MB/s")
            return
        left = duration((size - seen) / rate)
        self._report(f"{seen / max(1, size):4.0%}  {tokens:,} tokens  {rate / 1e6:.1f} MB/s  eta {left}")


def _check_apart(job: Job) -> None:
    """What is written must not be read as text the next time."""
    source, _ = places.split_pattern(job.source)
    if places.is_bucket(source) or places.is_bucket(job.place):
        inside = f"{job.place.rstrip('/')}/".startswith(f"{source.rstrip('/')}/")
    elif job.source == places.PYTHON_STDLIB or job.source.startswith(places.HUB):
        inside = False
    else:
        inside = Path(job.place.removeprefix("file://")).resolve().is_relative_to(Path(source).resolve())
    if inside:
        raise ConfigError(f"{job.place} lies within {source}: the tokens would be read as text; give another folder")


def _workers(job: Job, documents: Documents) -> int:
    if job.workers:
        return job.workers
    return 1 if documents.size is not None and documents.size < _SMALL else usable_cores()


def _made_from(job: Job, documents: Documents) -> str:
    told = [documents.fingerprint, job.column, job.tokens.name, job.tokens.eod, job.shard_tokens]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32]


def _already(job: Job, text: bytes, made_from: str, report: Report) -> Index:
    if not Index.looks_like(text):
        raise ConfigError(f"{job.place} has an {INDEX} of another program: give a folder of its own")
    index = Index.from_json(text, job.place)
    if index.made_from != made_from:
        raise ConfigError(
            f"{job.place} already holds other tokens, of {index.source}: give another folder, or delete this one"
        )
    report(f"nothing to do: {index.tokens:,} tokens in {len(index.shards)} shards are there: {job.place}")
    return index


def _begun(job: Job, store: Store, made_from: str) -> Progress:
    found = store.find(PROGRESS)
    if found is None:
        return Progress(made_from)
    progress = Progress.from_json(found.data, job.place)
    if progress.made_from != made_from:
        raise ConfigError(
            f"{job.place} holds a part of other tokens (another text, tokenizer, column or shard_tokens): "
            "give another folder, or delete this one"
        )
    return progress
