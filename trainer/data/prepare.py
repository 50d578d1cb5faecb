"""Conversion of text to token shards: read, tokenize, pack without gaps, write shard by shard, the index last.

The result depends only on the text and the settings, not on the number of workers or on interruptions. After each shard
a progress file records how far it is, so the same command resumes after the last complete shard.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from trainer.checkpoint.epoch import shorten
from trainer.checkpoint.store import Store, open_store
from trainer.data import sources
from trainer.data.chat.conversations import AUTO as ANY_FORM
from trainer.data.chat.reader import ChatReader
from trainer.data.chat.templates import ChatTemplate
from trainer.data.described import describe_tokens
from trainer.data.documents import Documents, TextChunk, open_documents
from trainer.data.fingerprints import drop_content
from trainer.data.index import (
    DESCRIPTION_NAME,
    INDEX_NAME,
    MARKED_FORMAT,
    PROGRESS_NAME,
    TOKENIZER_NAME,
    Index,
    Shard,
    format_shard_name,
    parse_shard,
)
from trainer.data.tokens.control_tokens import ControlTokens
from trainer.data.tokens.document_starts import remove_stored_starts
from trainer.data.tokens.encoding import EncodedBatch, TextBatch, encode_batches
from trainer.data.tokens.marks import remove_marks
from trainer.data.tokens.tokenizers import BYTES, TokenizerSpec
from trainer.engine import TokenArray
from trainer.environment import usable_cores
from trainer.errors import ConfigError, DataError
from trainer.metrics.record import format_duration

SHARD_TOKENS = 64 << 20

_BATCH_BYTES = 1 << 20
_BATCH_TEXTS = 10_000
_SMALL_BYTES = 16 << 20  # below this, starting processes costs more than they save
_LINE_SECONDS = 5.0

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareJob:
    """What to convert, and where to.

    Attributes:
        source: As for the setting `data`.
        destination: A folder of this machine or of a bucket.
        tokens: The tokenizer.
        column: The column or JSON key that holds the text; empty to read JSON as the text that it is.
        shard_tokens: A shard ends with the first batch of documents that reaches this number of tokens.
        workers: Number of processes; 0 chooses it.
        chat: The template of chat data; its tokens are marked. None for text.
        chat_form: Of the rows of chat data (trainer/data/chat/conversations.py).
        max_bad: How many bad rows are skipped.
    """

    source: str
    destination: str
    tokens: TokenizerSpec
    column: str = "text"
    shard_tokens: int = SHARD_TOKENS
    workers: int = 0
    chat: ChatTemplate | None = None
    chat_form: str = ANY_FORM
    max_bad: int = 0


def prepare_shards(job: PrepareJob, report: Report) -> Index:
    """Make the shards, or those that are missing.

    Raises:
        DataError: The text is empty or unreadable.
        StorageError: The bucket cannot be read or written.
        ConfigError: The destination holds other tokens, or is inside the source.
        TrainerError: An encoding process ended.
    """
    _check_apart(job)
    job = _fix_moment(job, report)
    documents = open_job_documents(job, report)
    store = open_store(job.destination, create=True)
    made_from = _made_from(job, documents.fingerprint)
    kept = replace(job, tokens=replace(job.tokens, control=ControlTokens()))
    earlier = _made_from(kept, drop_content(documents.fingerprint))
    existing = store.find(INDEX_NAME)
    if existing is not None:
        index = _check_existing(job, existing.data, made_from, earlier, report)
        _store_description(job, store)  # earlier versions wrote none
        return index
    progress = _load_progress(job, store, made_from, earlier, report)
    if progress.shards:
        report(f"resuming after {len(progress.shards)} shards, {progress.documents:,} documents")
    store.put(PROGRESS_NAME, progress.to_json())
    if job.tokens.text:
        store.put(TOKENIZER_NAME, job.tokens.text)
    _store_description(job, store)
    progress = _make_shards(job, documents, store, progress, report)
    if not progress.shards:
        store.delete([PROGRESS_NAME])
        raise refuse_empty(job, documents)
    if all(shard.trained == 0 for shard in progress.shards):
        raise refuse_untrained(job)
    index = Index(
        dtype=job.tokens.dtype,
        vocab=job.tokens.vocab,
        tokenizer=job.tokens.name,
        eod=job.tokens.eod,
        documents=progress.documents,
        shards=progress.shards,
        source=job.source,
        made_from=made_from,
        moment=_moment(job),
    )
    store.put(INDEX_NAME, index.to_json())
    store.delete([PROGRESS_NAME])
    trained = "" if index.trained is None else f" ({index.trained:,} of them are trained on)"
    for note in documents.list_notes():
        report(f"note: {note}")
    report(
        f"{index.tokens:,} tokens of {index.documents:,} documents{trained} in {len(index.shards)} shards: {store.uri}"
    )
    return index


def open_job_documents(job: PrepareJob, report: Report) -> Documents:
    """Open what a job reads.

    Raises:
        DataError: There is nothing to read.
        StorageError: The bucket cannot be read.
        ConfigError: The chat template is wrong.
    """
    chat = None if job.chat is None else ChatReader(job.chat, job.tokens.control, job.chat_form, report)
    return open_documents(job.source, job.column, chat, job.max_bad, report)


def refuse_empty(job: PrepareJob, documents: Documents) -> DataError:
    """Return the error for a source without text."""
    return DataError(f"{job.source} contains no text{documents.bad.note()}")


def refuse_untrained(job: PrepareJob) -> DataError:
    """Return the error for chat data of which nothing is trained on."""
    return DataError(
        f"{job.source} has nothing to train on: no conversation has a reply of the assistant (`role` is "
        "`assistant`, or a `completion`); without chat= all of its text is trained on"
    )


def _fix_moment(job: PrepareJob, report: Report) -> PrepareJob:
    """Return the job with the moment of which its template writes the date: that of its first start."""
    if job.chat is None or not job.chat.uses_date or job.chat.moment:
        return job
    store = open_store(job.destination, create=True)
    known: list[str] = []
    for name in (INDEX_NAME, PROGRESS_NAME):
        found = store.find(name)
        with suppress(ValueError, AttributeError, RecursionError):
            known += [] if found is None else [str(json.loads(found.data).get("moment") or "")]
    moment = next(filter(None, known), datetime.now().replace(microsecond=0).isoformat())
    report(f"{job.chat.name} writes the date: {moment} (date=DATE names another)")
    return replace(job, chat=replace(job.chat, moment=moment))


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What is done: the finished shards, with the number of batches and documents in them."""

    made_from: str
    batches: int = 0
    documents: int = 0
    shards: tuple[Shard, ...] = ()
    moment: str = ""

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), indent=1).encode()

    @classmethod
    def from_json(cls, text: bytes, place: str) -> Progress:
        """Parse a progress file.

        Raises:
            DataError: It is malformed.
        """
        try:
            content: Any = json.loads(text)
            shards = tuple(parse_shard(shard) for shard in content["shards"])
            return cls(
                made_from=str(content["made_from"]),
                batches=int(content["batches"]),
                documents=int(content["documents"]),
                shards=shards,
                moment=str(content.get("moment") or ""),
            )
        except (ArithmeticError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(
                f"{place}/{PROGRESS_NAME} cannot be read ({shorten(error)}): delete it to begin again"
            ) from error


@dataclass(slots=True, kw_only=True)
class _Shards:
    """Collects tokens and writes a shard when there are enough."""

    job: PrepareJob
    store: Store
    progress: Progress
    held: list[TokenArray] = field(default_factory=list[TokenArray])
    count: int = 0
    largest: int = 0
    batches: int = 0
    documents: int = 0

    def add(self, encoded: EncodedBatch) -> bool:
        """Add a batch, and return whether a shard was written."""
        self.held.append(encoded.tokens)
        self.count += len(encoded.tokens)
        self.largest = max(self.largest, self._find_largest(encoded.tokens))
        self.batches += 1
        self.documents += encoded.documents
        return self.count >= self.job.shard_tokens and self.write()

    def write(self) -> bool:
        if not self.count:
            return False
        data = b"".join(tokens.tobytes() for tokens in self.held)
        done = self.progress
        trained = sum(int((tokens >= 0).sum()) for tokens in self.held) if self.job.tokens.marked else None
        digest = hashlib.sha256(data).hexdigest()
        shard = Shard(format_shard_name(len(done.shards)), self.count, digest, trained, self.largest)
        self.store.put(shard.name, data)
        self.progress = replace(
            done,
            batches=done.batches + self.batches,
            documents=done.documents + self.documents,
            shards=(*done.shards, shard),
        )
        self.store.put(PROGRESS_NAME, self.progress.to_json())
        self.held, self.count, self.largest, self.batches, self.documents = [], 0, 0, 0, 0
        return True

    def _find_largest(self, tokens: TokenArray) -> int:
        plain = remove_marks(remove_stored_starts(tokens)) if self.job.tokens.marked else tokens
        return int(plain.max(initial=0))


def _make_shards(job: PrepareJob, documents: Documents, store: Store, progress: Progress, report: Report) -> Progress:
    batches = islice(group_texts(documents.read(), min(_BATCH_BYTES, job.shard_tokens)), progress.batches, None)
    shards, printer = _Shards(job=job, store=store, progress=progress), _ProgressPrinter(documents, report)
    tokens = sum(shard.tokens for shard in progress.shards)
    for encoded in encode_batches(job.tokens, batches, _workers(job, documents)):
        tokens += len(encoded.tokens)
        if shards.add(encoded):
            report(f"{shards.progress.shards[-1].name}: {shards.progress.shards[-1].tokens:,} tokens")
        printer.update(tokens)
    shards.write()
    return shards.progress


def group_texts(texts: Iterable[TextChunk], size: int) -> Iterator[TextBatch]:
    """Group texts into batches of about `size` bytes, the same batches each time."""
    batch: list[TextChunk] = []
    count, ended = 0, True
    for text in texts:
        batch.append(text if ended else replace(text, is_first=False))
        ended = text.is_last
        count += len(text.data)
        if count >= size or len(batch) == _BATCH_TEXTS:
            yield batch
            batch, count = [], 0
    if batch:
        yield batch


class _ProgressPrinter:
    """Prints a line every few seconds: the share done, the rate, and the time left."""

    def __init__(self, documents: Documents, report: Report) -> None:
        self._documents = documents
        self._report = report
        self._next = time.monotonic() + _LINE_SECONDS
        self._from: tuple[float, int] | None = None

    def update(self, tokens: int) -> None:
        now, seen, size = time.monotonic(), self._documents.bytes_read, self._documents.size
        if self._from is None:
            self._from = now, seen  # an earlier start's work is skipped quickly and does not count for the rate
        if now < self._next or now == self._from[0]:
            return
        self._next = now + _LINE_SECONDS
        rate = (seen - self._from[1]) / (now - self._from[0])
        if size is None or rate <= 0:
            self._report(f"{tokens:,} tokens  {seen / 1e6:,.0f} MB read  {rate / 1e6:.1f} MB/s")
            return
        left = format_duration((size - seen) / rate)
        self._report(f"{seen / max(1, size):4.0%}  {tokens:,} tokens  {rate / 1e6:.1f} MB/s  eta {left}")


def _store_description(job: PrepareJob, store: Store) -> None:
    if store.find(DESCRIPTION_NAME) is None:
        store.put(DESCRIPTION_NAME, describe_tokens(job.tokens, job.chat).content)


def _check_apart(job: PrepareJob) -> None:
    """Raise ConfigError when the destination is inside the source: tokens would be read as text next time."""
    source, _ = sources.split_pattern(job.source)
    if sources.is_bucket(source) or sources.is_bucket(job.destination):
        inside = f"{job.destination.rstrip('/')}/".startswith(f"{source.rstrip('/')}/")
    elif job.source == sources.PYTHON_STDLIB or job.source.startswith(sources.HUB_SCHEME):
        inside = False
    else:
        inside = Path(job.destination.removeprefix("file://")).resolve().is_relative_to(Path(source).resolve())
    if inside:
        raise ConfigError(
            f"{job.destination} is inside {source}, so the tokens would be read as text; use another folder"
        )


def _workers(job: PrepareJob, documents: Documents) -> int:
    if job.workers:
        return job.workers
    return 1 if documents.size is not None and documents.size < _SMALL_BYTES else usable_cores()


def _moment(job: PrepareJob) -> str:
    return job.chat.moment if job.chat is not None and job.chat.uses_date else ""


def _made_from(job: PrepareJob, fingerprint: str) -> str:
    identity = [fingerprint, job.column, job.tokens.name, job.tokens.eod, job.shard_tokens]
    identity += [job.chat.digest, MARKED_FORMAT] if job.chat is not None else []
    identity += [job.chat_form] if job.chat_form != ANY_FORM else []
    identity += ["control tokens are text"] if job.tokens.control.texts and job.tokens.name != BYTES else []
    identity += [["begin", *job.tokens.begin]] if job.tokens.begin else []
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]


def _check_existing(job: PrepareJob, text: bytes, made_from: str, earlier: str, report: Report) -> Index:
    if not Index.is_index(text):
        raise ConfigError(f"{job.destination} has an {INDEX_NAME} of another program: use an empty folder")
    index = Index.from_json(text, job.destination)
    if index.made_from == earlier != made_from:
        report(
            "note: an earlier version made these shards: it knew files by name and size and kept control tokens in text"
        )
    elif index.made_from != made_from:
        raise ConfigError(
            f"{job.destination} already has other tokens, of {index.source}: use another folder, or delete this one"
        )
    report(f"nothing to do: {index.tokens:,} tokens in {len(index.shards)} shards exist: {job.destination}")
    return index


def _load_progress(job: PrepareJob, store: Store, made_from: str, earlier: str, report: Report) -> Progress:
    found = store.find(PROGRESS_NAME)
    if found is None:
        return Progress(made_from=made_from, moment=_moment(job))
    progress = Progress.from_json(found.data, job.destination)
    if progress.made_from == earlier != made_from:
        report("note: an earlier version, which read some files otherwise, began these shards: they are made again")
        return Progress(made_from=made_from, moment=_moment(job))
    if progress.made_from != made_from:
        raise ConfigError(
            f"{job.destination} contains unfinished shards of another text, tokenizer, column, chat or shard_tokens: "
            "use another folder, or delete this one"
        )
    return progress
