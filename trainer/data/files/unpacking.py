"""Compressed files as streams of what is in them, layer by layer, with a bound on what may come out.

Nothing is unpacked as a whole, except into a temporary file where a reader has to seek in it.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import IO, Any, cast

from trainer.data.files.forms import COMPRESSED, HEAD_BYTES, Form, recognize_form, refuse_file
from trainer.errors import DataError

_BUFFER = 1 << 20
_MOST_LAYERS = 5
_MOST_BYTES = 1 << 40
_MOST_RATIO = 250  # text is seldom above 30
_ALWAYS_BYTES = 64 << 20  # a small file may have any ratio
_NEEDS_SEEKING = ("zip", "parquet", "arrow-file")

UNPACKING_ERRORS = (
    OSError,
    MemoryError,  # of pyarrow, which allocates what a file declares
    EOFError,
    ValueError,  # of pyarrow
    RuntimeError,  # of zipfile: encrypted
    NotImplementedError,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
)

_END_RECORD = (1 << 16) + 22  # bytes in which the end record of a zip archive begins, before its end
_MOST_LISTED = 32 << 20  # bytes of the list of members: some 300,000
_OFFICE = ("[Content_Types].xml", "mimetype", "META-INF/MANIFEST.MF")


class Allowance:
    """Counts what comes out of a file, against a bound by its size."""

    def __init__(self, name: str, stored: int) -> None:
        self._name = name
        self._most = min(_MOST_BYTES, max(_ALWAYS_BYTES, stored * _MOST_RATIO))
        self._stored = stored
        self._used = 0

    def use(self, count: int) -> None:
        """Count bytes.

        Raises:
            DataError: They are too many.
        """
        self._used += count
        if self._used > self._most:
            raise DataError(
                f"{self._name}: more than {self._most:,} bytes come out of its {self._stored:,}, as of a decompression "
                f"bomb: if they are text, unpack the file, and name the unpacked one"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A file, or a member of an archive, without its compression.

    Attributes:
        name: For messages.
        form: It is not compressed.
        stream: At the beginning of the text, after a byte-order mark; text is in UTF-8.
    """

    name: str
    form: Form
    stream: IO[bytes]


def list_contents(name: str, stream: IO[bytes], allowance: Allowance, layers: int = 0) -> Iterator[Content]:
    """Yield what is in a file: itself, or the members of an archive. A content is valid until the next one.

    Args:
        name: Of the file; its endings count where the first bytes allow several forms.
        stream: From which nothing has been read, with a buffer of at least HEAD_BYTES.
        allowance: Of the file.
        layers: Compressions that are already unpacked.

    Raises:
        DataError: A form is unknown, or too much comes out.
    """
    head = _peek(stream)
    form = recognize_form(name, head, name)
    if form.kind not in COMPRESSED:
        with _seekable(stream, form, layers) as source:
            source.read(form.mark)
            yield Content(name=name, form=form, stream=_as_utf8(source, form))
        return
    if layers == _MOST_LAYERS:
        raise refuse_file(name, head, f"a file that is compressed more than {layers} times", "unpack it")
    if form.kind == "zip":
        with _seekable(stream, form, layers) as source:
            yield from _list_members(name, source, allowance, layers)
        return
    with _buffered(_Counted(_open_layer(name, form.kind, stream), allowance)) as unpacked:
        yield from list_contents(name, unpacked, allowance, layers + 1)


def _check_directory(name: str, stream: IO[bytes]) -> None:
    """Refuse a zip archive whose list of members is so large that to read it takes gigabytes.

    The end record has the size of the list (PKWARE, APPNOTE.TXT 6.3.10, 4.3.16).
    """
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, size - _END_RECORD))
    end = stream.read()
    at = end.rfind(b"PK\5\6")
    listed = int.from_bytes(end[at + 12 : at + 16], "little") if at >= 0 else 0
    if listed > _MOST_LISTED:
        raise DataError(f"{name} has too many members for one archive: unpack it, and name the folder")
    stream.seek(0)


def _list_members(name: str, stream: IO[bytes], allowance: Allowance, layers: int) -> Iterator[Content]:
    _check_directory(name, stream)
    with zipfile.ZipFile(stream) as archive:
        members = [member for member in archive.infolist() if not member.is_dir()]
        names = {member.filename for member in members}
        if any(office in names for office in _OFFICE) or any(one.endswith("/data.pkl") for one in names):
            looks = (
                "a model of PyTorch (a pickle)" if not names.intersection(_OFFICE) else "an Office file or a program"
            )
            raise DataError(f"{name} looks like {looks}, in a zip archive: choose other files with SOURCE:GLOB")
        for member in members:
            parts = member.filename.split("/")
            if any(part.startswith(".") or part == "__MACOSX" for part in parts):
                continue
            with _buffered(_Counted(archive.open(member), allowance)) as unpacked:
                yield from list_contents(f"{name}/{member.filename}", unpacked, allowance, layers + 1)


def _open_layer(name: str, kind: str, stream: IO[bytes]) -> IO[bytes]:
    if kind == "gzip":
        return cast("IO[bytes]", gzip.GzipFile(fileobj=stream))
    if kind == "bzip2":
        return bz2.BZ2File(stream)
    if kind == "xz":
        return lzma.LZMAFile(stream)
    pyarrow = import_pyarrow(name, "files compressed with Zstandard")
    unpacked: IO[bytes] = pyarrow.CompressedInputStream(pyarrow.PythonFile(stream, mode="r"), "zstd")
    return unpacked


def import_pyarrow(name: str, what: str, module: str = "pyarrow") -> Any:
    """Return a module of the optional library.

    Raises:
        DataError: It is not installed.
    """
    try:
        return import_module(module)
    except ImportError:
        raise DataError(f"{name}: {what} need the library `pyarrow`: pip install pyarrow") from None


def _peek(stream: IO[bytes]) -> bytes:
    return cast("io.BufferedReader", stream).peek(HEAD_BYTES)[:HEAD_BYTES]


def _buffered(raw: io.RawIOBase) -> io.BufferedReader:
    return io.BufferedReader(raw, _BUFFER)


def _as_utf8(stream: IO[bytes], form: Form) -> IO[bytes]:
    return stream if form.encoding == "utf-8" else _buffered(_Transcoded(stream, form.encoding))


@contextmanager
def _seekable(stream: IO[bytes], form: Form, layers: int) -> Generator[IO[bytes], None, None]:
    """Yield the stream, or a copy on this disk where its reader must seek in what is unpacked."""
    if layers == 0 or form.kind not in _NEEDS_SEEKING:
        yield stream
        return
    with tempfile.TemporaryFile() as copied:
        shutil.copyfileobj(stream, copied, _BUFFER)
        copied.seek(0, os.SEEK_SET)
        yield copied


class _Counted(io.RawIOBase):
    """What comes out of a decompressor."""

    def __init__(self, source: IO[bytes], allowance: Allowance) -> None:
        self._source = source
        self._allowance = allowance

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view, done = memoryview(buffer).cast("B"), 0
        while done < len(view) and (data := self._source.read(len(view) - done)):
            self._allowance.use(len(data))
            view[done : done + len(data)] = data
            done += len(data)
        return done


class _Transcoded(io.RawIOBase):
    """Text of another encoding in UTF-8."""

    def __init__(self, source: IO[bytes], encoding: str) -> None:
        self._source = source
        self._decoder = codecs.getincrementaldecoder(encoding)("strict")
        self._held = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        while not self._held:
            data = self._source.read(_BUFFER)
            self._held = self._decoder.decode(data, not data).encode()
            if not data:
                break
        count = min(len(view), len(self._held))
        view[:count], self._held = self._held[:count], self._held[count:]
        return count
