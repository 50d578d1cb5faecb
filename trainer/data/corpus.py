"""The training corpus: one long sequence of tokens.

Plain text (files of this machine, objects of a bucket) is read as bytes in place. Token shards, made by `python -m
trainer prepare`, are memory-mapped or read by ranges. Nothing is loaded as a whole. Other data that `prepare` reads
(rows, compressed files) is first converted to shards on this machine (trainer/data/conversion.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from trainer.checkpoint.store import open_store
from trainer.config import BYTE_VOCAB, DataConfig
from trainer.data import sources
from trainer.data.conversion import convert_once
from trainer.data.extents import Extents, Piece
from trainer.data.files.inspection import are_plain_objects, inspect_files
from trainer.data.files.local_files import open_regular_file
from trainer.data.fingerprints import fingerprint_files, fingerprint_objects
from trainer.data.index import INDEX_NAME, PROGRESS_NAME, Index
from trainer.data.readers import BucketReader, FileReader, MappedReader, Reader
from trainer.data.tokens.document_starts import (
    StartFinder,
    find_starts_after_end,
    find_starts_of_pieces,
    mark_starts,
    remove_stored_starts,
    split_stored_starts,
)
from trainer.data.tokens.marks import remove_marks
from trainer.data.tokens.tokenizers import AUTO, BYTES, digest_tokenizer
from trainer.engine import TokenArray
from trainer.errors import DataError

_MANY_OBJECTS = 10_000


class Corpus(Protocol):
    """A sequence of tokens; `read` may be called from several threads."""

    @property
    def source(self) -> str:
        """Value of the setting `data`."""
        ...

    @property
    def total_tokens(self) -> int:
        """Number of tokens in the corpus."""
        ...

    @property
    def vocab(self) -> int:
        """Vocabulary size: every token is below this number."""
        ...

    @property
    def largest(self) -> int:
        """The largest token in it, as far as that is known: below `vocab`."""
        ...

    @property
    def marked(self) -> bool:
        """Whether tokens have marks (trainer/data/tokens/marks.py)."""
        ...

    @property
    def fingerprint(self) -> str:
        """Short hash that identifies the corpus.

        For text it changes with a name, the order or the content of the files; for shards, with any token. See
        trainer/data/fingerprints.py.
        """
        ...

    @property
    def tokenizer(self) -> str:
        """`bytes`, or the SHA-256 of the tokenizer.json that made the tokens."""
        ...

    def read(self, positions: npt.NDArray[np.int64], length: int) -> TokenArray:
        """Return the windows of `length` tokens that begin at the positions.

        Returns:
            An array of shape (len(positions), length) and type uint8, uint16, int16 or int32; with
            `data.document_mask` of type int32, with the starts of documents (trainer/data/tokens/document_starts.py).

        Raises:
            DataError: The files are missing, shorter than before, or unreadable.
            StorageError: The bucket cannot be read.
        """
        ...


def open_corpus(config: DataConfig, report: Callable[[str], None]) -> Corpus:
    """Open the corpus that `config.source` names.

    Args:
        config: The source is `python-stdlib`, a path, a bucket folder, or hf://NAME (trainer/data/hub.py). A path or a
            folder may be followed by `:GLOB`, which is matched against the names below it; `*` also matches slashes.
        report: Prints one line for the user.

    Raises:
        DataError: There is nothing to read, or the corpus was made with another tokenizer.
        StorageError: The bucket cannot be read.
    """
    if config.source.startswith(sources.HUB_SCHEME):
        from trainer.data.hub import ensure_local_shards

        folder = ensure_local_shards(config, report)
        return _local_shards(config, folder, (folder / INDEX_NAME).read_bytes())
    if config.source == sources.PYTHON_STDLIB:
        _check_bytes(config)
        return _local_text(config, sources.list_stdlib_files(), report, trusted=True)
    place, pattern = sources.split_pattern(config.source)
    if sources.is_bucket(place):
        return _in_bucket(config, place, pattern, report)
    if "://" in place:
        raise DataError(f"data={config.source}: expected a path or an s3://, gs:// or hf:// address")
    folder = Path(place).expanduser()  # no shell has seen a path of a task file
    index = _read_local(folder / INDEX_NAME) if pattern == sources.MATCH_ALL else None
    if index is not None and Index.is_index(index):
        corpus = _local_shards(config, folder, index)
        _check_tokenizer(config, Index.from_json(index, place))
        return corpus
    if (folder / PROGRESS_NAME).exists():
        raise DataError(_incomplete_message(place))
    _check_bytes(config)
    return _local_text(config, sources.list_local_files(folder, pattern), report)


class PiecedCorpus:
    """A corpus of several files, objects or shards, which one reader reads."""

    def __init__(
        self,
        source: str,
        vocab: int,
        fingerprint: str,
        pieces: Sequence[Piece],
        reader: Reader,
        dtype: Any,
        tokenizer: str = BYTES,
        find_starts: StartFinder | None = None,
        largest: int | None = None,
    ) -> None:
        """Describe the corpus; `find_starts` finds the starts of documents, which rows without it do not show."""
        self.largest = vocab - 1 if largest is None else largest
        self.marked = False
        self.source = source
        self.vocab = vocab
        self.fingerprint = fingerprint
        self.tokenizer = tokenizer
        self._extents = Extents(pieces)
        self._reader = reader
        self._dtype: np.dtype[Any] = np.dtype(dtype)
        self._find_starts = find_starts

    @property
    def total_tokens(self) -> int:
        return self._extents.total_items

    def read(self, positions: npt.NDArray[np.int64], length: int) -> TokenArray:
        rows: TokenArray = np.empty((len(positions), length), dtype=self._dtype)
        spans = self._extents.list_spans(positions, length)
        self._reader.fill_rows(rows, spans)
        return rows if self._find_starts is None else mark_starts(rows, self._find_starts(rows, spans))


class MarkedCorpus(PiecedCorpus):
    """A corpus of shards with marks."""

    def __init__(self, config: DataConfig, index: Index, reader: Reader) -> None:
        super().__init__(
            config.source,
            index.vocab,
            index.fingerprint,
            index.pieces,
            reader,
            index.numpy_dtype,
            index.tokenizer,
            largest=index.largest,
        )
        self.marked = config.loss != "all"
        if not self.marked:  # a run of one kind is not resumed as one of the other
            self.fingerprint = hashlib.sha256(f"{index.fingerprint} all".encode()).hexdigest()[:32]
        self._stored_starts, self._shown_starts = index.starts, config.document_mask

    def read(self, positions: npt.NDArray[np.int64], length: int) -> TokenArray:
        rows = super().read(positions, length)
        if self._shown_starts:
            rows, starts = split_stored_starts(rows)
            return mark_starts(rows if self.marked else remove_marks(rows), starts)
        if self._stored_starts:
            rows = remove_stored_starts(rows)
        return rows if self.marked else remove_marks(rows)


def _open_shards(config: DataConfig, index: Index, reader: Reader) -> Corpus:
    if index.marked:
        if index.trained == 0 and config.loss != "all":  # the loss of every step would be 0
            raise DataError(
                f"data={config.source} has nothing to train on: none of its {index.tokens:,} tokens is marked; prepare "
                "chats with replies, or train on all tokens with data.loss=all"
            )
        if config.document_mask and not index.starts:
            raise DataError(
                f"data.document_mask=true: {config.source} does not show where conversations begin, because an earlier "
                "version prepared it: prepare the chat data again"
            )
        return MarkedCorpus(config, index, reader)
    return PiecedCorpus(
        config.source,
        index.vocab,
        index.fingerprint,
        index.pieces,
        reader,
        index.numpy_dtype,
        index.tokenizer,
        partial(find_starts_after_end, index.eod) if config.document_mask else None,
        index.largest,
    )


def _open_text(config: DataConfig, pieces: Sequence[Piece], fingerprint: str, reader: Reader) -> Corpus:
    sources.check_filled(config.source, {piece.name: piece.size for piece in pieces})
    find_starts = find_starts_of_pieces if config.document_mask else None
    return PiecedCorpus(config.source, BYTE_VOCAB, fingerprint, pieces, reader, np.uint8, find_starts=find_starts)


def _local_text(
    config: DataConfig,
    files: Sequence[tuple[str, Path]],
    report: Callable[[str], None],
    *,
    trusted: bool = False,
) -> Corpus:
    source = config.source
    try:
        pieces = [Piece(name, path.stat().st_size) for name, path in files]
    except OSError as error:
        raise DataError(f"data={source}: cannot read {error.filename}: {error.strerror}") from error
    found = inspect_files(files, report, trusted=trusted)
    fingerprint = fingerprint_files(pieces, [one.sha256 for one in found])
    if not all(one.form.is_plain(config.column) for one in found):
        return _convert(config, fingerprint, report)
    return _open_text(config, pieces, fingerprint, FileReader(source, [path for _, path in files]))


def _convert(config: DataConfig, version: str, report: Callable[[str], None]) -> Corpus:
    folder = convert_once(config, version, report)
    return _local_shards(config, folder, (folder / INDEX_NAME).read_bytes())


def _local_shards(config: DataConfig, folder: Path, text: bytes) -> Corpus:
    source = config.source
    index = Index.from_json(text, source)
    width = index.numpy_dtype.itemsize
    for shard in index.shards:
        path = folder / shard.name
        try:
            size = path.stat().st_size
        except OSError as error:
            raise DataError(f"data={source}: cannot read {path}: {error.strerror}") from error
        if size != shard.tokens * width:
            raise DataError(f"data={source}: {path} has {size} bytes, but the index lists {shard.tokens * width}")
    reader = MappedReader(source, [folder / shard.name for shard in index.shards], index.numpy_dtype)
    return _open_shards(config, index, reader)


def _in_bucket(config: DataConfig, place: str, pattern: str, report: Callable[[str], None]) -> Corpus:
    store = open_store(place)
    # With an index the bucket need not be listed: one request, for any number of shards.
    found = store.find(INDEX_NAME) if pattern == sources.MATCH_ALL else None
    if found is not None and Index.is_index(found.data):
        index = Index.from_json(found.data, place)
        _check_tokenizer(config, index)
        width = index.numpy_dtype.itemsize
        names, sizes = [shard.name for shard in index.shards], [shard.tokens * width for shard in index.shards]
        reader = BucketReader(store, names, sizes, index.numpy_dtype)
        return _open_shards(config, index, reader)
    _check_bytes(config)
    entries = sources.list_bucket_objects(store, pattern)
    if any(entry.path == PROGRESS_NAME for entry in entries):
        raise DataError(_incomplete_message(place))
    fingerprint = fingerprint_objects(store.uri, entries)
    if not are_plain_objects(store, entries, config.column):
        return _convert(config, fingerprint, report)
    if len(entries) >= _MANY_OBJECTS:
        report(
            f"note: {len(entries):,} objects are listed at each start; token shards need one request instead: "
            f"python -m trainer prepare '{config.source}' FOLDER"
        )
    pieces = [Piece(entry.path, entry.size) for entry in entries]
    names, sizes = [entry.path for entry in entries], [entry.size for entry in entries]
    return _open_text(config, pieces, fingerprint, BucketReader(store, names, sizes, np.dtype(np.uint8)))


def _read_local(path: Path) -> bytes | None:
    with suppress(DataError), open_regular_file(path) as file:
        return file.read()
    return None


def _check_bytes(config: DataConfig) -> None:
    if config.tokenizer not in (AUTO, BYTES):
        raise DataError(
            f"data={config.source} is text, and data.tokenizer={config.tokenizer} cannot be applied during a run: "
            f"first run python -m trainer prepare '{config.source}' FOLDER "
            f"tokenizer={config.tokenizer} and then data=FOLDER"
        )


def _check_tokenizer(config: DataConfig, index: Index) -> None:
    if config.tokenizer == AUTO:
        return
    expected = BYTES if config.tokenizer == BYTES else digest_tokenizer(config.tokenizer)
    if expected != index.tokenizer:
        raise DataError(
            f"data={config.source} was made with another tokenizer ({index.tokenizer[:12]}) than "
            f"data.tokenizer={config.tokenizer}: leave data.tokenizer out, or prepare the text again"
        )


def _incomplete_message(place: str) -> str:
    return f"data={place} is only partly prepared: run the same `python -m trainer prepare` again to resume it"
