"""The corpus: what is learned, as one long row of tokens.

Text (files of this machine, objects of a bucket) is read as bytes where it lies; token shards, made by
`python -m trainer prepare`, are memory-mapped or read by ranges. Nothing is loaded as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from trainer.checkpoint.store import open_store
from trainer.config import BYTE_VOCAB, DataConfig
from trainer.data import places
from trainer.data.extents import Extents, Piece, fingerprint
from trainer.data.index import INDEX, PROGRESS, Index
from trainer.data.readers import BucketReader, FileReader, MappedReader, Reader
from trainer.data.tokenizers import AUTO, BYTES, digest_of_file
from trainer.engine import TokenArray
from trainer.errors import DataError

_MANY_OBJECTS = 10_000
_PACKED = (".gz", ".parquet")


class Corpus(Protocol):
    """`read` may be called from several threads."""

    @property
    def source(self) -> str:
        """The words of `data=`."""
        ...

    @property
    def total(self) -> int:
        """Tokens in all."""
        ...

    @property
    def vocab(self) -> int:
        """Every token is below this."""
        ...

    @property
    def fingerprint(self) -> str:
        """Of text: changes with a name, a size or the order of the files. Of shards: with any token."""
        ...

    def read(self, positions: npt.NDArray[np.int64], length: int) -> TokenArray:
        """The windows that begin there. Shape (len(positions), length); uint8, uint16 or int32.

        Raises DataError, StorageError.
        """
        ...


def open_corpus(config: DataConfig, report: Callable[[str], None]) -> Corpus:
    """`python-stdlib`, a path, a bucket folder or hf://NAME (trainer/data/hub.py). report: a line for people.

    After a path or a folder may stand `:GLOB`, matched against the names below it (`*` also takes slashes).
    Raises DataError when there is nothing to read or the tokenizer is another, StorageError.
    """
    if config.source.startswith(places.HUB):
        from trainer.data.hub import shards_of

        folder = shards_of(config.source, config.tokenizer, config.column, report)
        return _local_shards(config.source, folder, (folder / INDEX).read_bytes())
    if config.source == places.PYTHON_STDLIB:
        _check_bytes(config)
        return _local_text(config.source, places.stdlib_files())
    place, pattern = places.split_pattern(config.source)
    if places.is_bucket(place):
        return _in_bucket(config, place, pattern, report)
    if "://" in place:
        raise DataError(f"data={config.source}: not a path, nor an s3://, gs:// or hf:// place")
    folder = Path(place).expanduser()  # no shell has seen a path of a task file
    index = _read_local(folder / INDEX) if pattern == places.EVERYTHING else None
    if index is not None and Index.looks_like(index):
        corpus = _local_shards(config.source, folder, index)
        _check_tokenizer(config, Index.from_json(index, place))
        return corpus
    if (folder / PROGRESS).exists():
        raise DataError(_half(place))
    _check_bytes(config)
    return _local_text(config.source, places.local_files(folder, pattern))


class PiecedCorpus:
    """A corpus whose pieces a reader reads."""

    def __init__(self, source: str, vocab: int, mark: str, pieces: Sequence[Piece], reader: Reader, dtype: Any) -> None:
        self.source = source
        self.vocab = vocab
        self.fingerprint = mark
        self._extents = Extents(pieces)
        self._reader = reader
        self._dtype: np.dtype[Any] = np.dtype(dtype)

    @property
    def total(self) -> int:
        return self._extents.total

    def read(self, positions: npt.NDArray[np.int64], length: int) -> TokenArray:
        rows: TokenArray = np.empty((len(positions), length), dtype=self._dtype)
        self._reader.fill(rows, self._extents.stretches(positions, length))
        return rows


def _local_text(source: str, files: Sequence[tuple[str, Path]]) -> Corpus:
    _check_plain(source, [name for name, _ in files])
    try:
        pieces = [Piece(name, path.stat().st_size) for name, path in files]
    except OSError as error:
        raise DataError(f"data={source}: cannot read {error.filename}: {error.strerror}") from error
    if not any(piece.size for piece in pieces):
        raise DataError(f"data={source}: {'the file is' if len(pieces) == 1 else 'all files here are'} empty")
    reader = FileReader(source, [path for _, path in files])
    return PiecedCorpus(source, BYTE_VOCAB, fingerprint(pieces), pieces, reader, np.uint8)


def _local_shards(source: str, folder: Path, text: bytes) -> Corpus:
    index = Index.from_json(text, source)
    width = index.numpy_dtype.itemsize
    for shard in index.shards:
        path = folder / shard.name
        try:
            size = path.stat().st_size
        except OSError as error:
            raise DataError(f"data={source}: cannot read {path}: {error.strerror}") from error
        if size != shard.tokens * width:
            raise DataError(f"data={source}: {path} has {size} bytes, the index says {shard.tokens * width}")
    reader = MappedReader(source, [folder / shard.name for shard in index.shards], index.numpy_dtype)
    return PiecedCorpus(source, index.vocab, index.fingerprint, index.pieces, reader, index.numpy_dtype)


def _in_bucket(config: DataConfig, place: str, pattern: str, report: Callable[[str], None]) -> Corpus:
    store = open_store(place)
    # The index makes a list of the bucket needless: one request, however many shards there are.
    found = store.find(INDEX) if pattern == places.EVERYTHING else None
    if found is not None and Index.looks_like(found.data):
        index = Index.from_json(found.data, place)
        _check_tokenizer(config, index)
        width = index.numpy_dtype.itemsize
        names, sizes = [shard.name for shard in index.shards], [shard.tokens * width for shard in index.shards]
        reader = BucketReader(store, names, sizes, index.numpy_dtype)
        return PiecedCorpus(config.source, index.vocab, index.fingerprint, index.pieces, reader, index.numpy_dtype)
    _check_bytes(config)
    entries = places.bucket_objects(store, pattern)
    if any(entry.path == PROGRESS for entry in entries):
        raise DataError(_half(place))
    _check_plain(config.source, [entry.path for entry in entries])
    if len(entries) >= _MANY_OBJECTS:
        report(
            f"note: {len(entries):,} objects were listed, and are at each start; token shards need one request: "
            f"python -m trainer prepare '{config.source}' FOLDER"
        )
    pieces = [Piece(entry.path, entry.size) for entry in entries]
    names, sizes = [entry.path for entry in entries], [entry.size for entry in entries]
    reader = BucketReader(store, names, sizes, np.dtype(np.uint8))
    return PiecedCorpus(config.source, BYTE_VOCAB, fingerprint(pieces), pieces, reader, np.uint8)


def _read_local(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _check_plain(source: str, names: Sequence[str]) -> None:
    """Raises DataError when a file's bytes are not its text, which nothing could learn from."""
    packed = next((name for name in names if name.lower().endswith(_PACKED)), None)
    if packed is not None:
        raise DataError(
            f"data={source}: {packed} is no plain text: python -m trainer prepare '{source}' FOLDER and then "
            "data=FOLDER, or take other files with data=FOLDER:GLOB"
        )


def _check_bytes(config: DataConfig) -> None:
    if config.tokenizer not in (AUTO, BYTES):
        raise DataError(
            f"data={config.source} is text, which data.tokenizer={config.tokenizer} turns into tokens beforehand only: "
            f"python -m trainer prepare '{config.source}' FOLDER tokenizer={config.tokenizer} and then data=FOLDER"
        )


def _check_tokenizer(config: DataConfig, index: Index) -> None:
    if config.tokenizer == AUTO:
        return
    wanted = BYTES if config.tokenizer == BYTES else digest_of_file(config.tokenizer)
    if wanted != index.tokenizer:
        raise DataError(
            f"data={config.source} was made with another tokenizer ({index.tokenizer[:12]}) than "
            f"data.tokenizer={config.tokenizer}: leave data.tokenizer out, or prepare the text again"
        )


def _half(place: str) -> str:
    return f"data={place} is half prepared: run the same `python -m trainer prepare` again, it goes on where it stopped"
