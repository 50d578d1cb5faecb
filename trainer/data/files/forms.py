"""The form of a file by its first bytes, and by its name only where these allow several.

Forms that no reader knows are refused: the error has the first bytes, what they look like, and what to do.
"""

from __future__ import annotations

import codecs
import json
import re
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from trainer.errors import DataError

HEAD_BYTES = 64 << 10
"""Bytes that are looked at."""

Kind: TypeAlias = Literal[
    "text", "lines", "array", "objects", "parquet", "arrow-file", "arrow-stream", "gzip", "zstd", "bzip2", "xz", "zip"
]
COMPRESSED = ("gzip", "zstd", "bzip2", "xz", "zip")
JSON_KINDS = ("lines", "array", "objects")

_SUFFIXES = (".gz", ".gzip", ".zst", ".zstd", ".bz2", ".xz", ".zip")
_LINE_SUFFIXES = (".jsonl", ".ndjson", ".jsonlines")
_PAGE_SUFFIXES = (".html", ".htm", ".xhtml", ".shtml")
_BOMS = (  # UTF-32 first: its mark begins like the one of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A form that a reader knows.

    Attributes:
        kind: Its name; `text` for an empty file.
        encoding: Of text.
        mark: Bytes of the byte-order mark, which is no part of the text.
        is_valid: Whether what is known of a text can be decoded; its reader counts what cannot.
    """

    kind: Kind
    encoding: str = "utf-8"
    mark: int = 0
    is_valid: bool = True

    def is_plain(self, column: str) -> bool:
        """Return whether the bytes are the text; without a column those of JSON are, too."""
        return self.is_valid and self.mark == 0 and (self.kind == "text" or (not column and self.kind in JSON_KINDS))


class _Magic(NamedTuple):
    at: int
    begins: bytes
    looks: str
    advice: str = ""


_KNOWN: tuple[tuple[re.Pattern[bytes], Kind], ...] = (
    (re.compile(rb"\x1f\x8b\x08"), "gzip"),
    (re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"), "zstd"),
    (re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"), "bzip2"),
    (re.compile(rb"\xfd7zXZ\x00"), "xz"),
    (re.compile(rb"PK(?:\x03\x04|\x05\x06)"), "zip"),
    (re.compile(rb"ARROW1\x00\x00"), "arrow-file"),
    (re.compile(rb"\xff\xff\xff\xff.{4}\x10\x00\x00\x00", re.DOTALL), "arrow-stream"),
)

_PARQUET = b"PAR1"
_UNPACK = "unpack it, and name the files in it"
_NO_TEXT = "choose other files with SOURCE:GLOB"
_CONVERT = "write its text as JSON lines, or as Parquet"
_NO_PICKLE = f"pickles run code, so none is loaded: {_CONVERT}"
_FOREIGN_TEXT = (
    _Magic(0, b"version https://git-lfs", "a pointer of Git LFS, not the file", "run git lfs pull in that repository"),
    _Magic(0, b"%PDF-", "a PDF document", "extract its text (pdftotext FILE)"),
    _Magic(0, b"{\\rtf", "an RTF document", "extract its text"),
)
_FOREIGN = (  # compared only with files that are no text
    _Magic(257, b"ustar", "a tar archive", "unpack it (tar -xf FILE), and name the files in it"),
    *(_Magic(0, bytes((0x80, protocol)), "a Python pickle", _NO_PICKLE) for protocol in (2, 3, 4, 5)),
    _Magic(0, b"SQLite format 3\0", "an SQLite database", _CONVERT),
    _Magic(0, b"\xd0\xcf\x11\xe0", "an old Office document", "extract its text"),
    _Magic(0, b"\x89PNG", "a PNG image"),
    _Magic(0, b"\xff\xd8\xff", "a JPEG image"),
    _Magic(0, b"GIF8", "a GIF image"),
    _Magic(0, b"RIFF", "an image, sound or film (RIFF)"),
    _Magic(4, b"ftyp", "a film or sound (MP4)"),
    _Magic(0, b"OggS", "sound (Ogg)"),
    _Magic(0, b"fLaC", "sound (FLAC)"),
    _Magic(0, b"ID3", "sound (MP3)"),
    _Magic(0, b"\x7fELF", "a program (ELF)"),
    _Magic(0, b"\xcf\xfa\xed\xfe", "a program (Mach-O)"),
    _Magic(0, b"MZ", "a program of Windows"),
    _Magic(0, b"\x93NUMPY", "a NumPy array", _CONVERT),
    _Magic(0, b"\x89HDF", "an HDF5 file", _CONVERT),
    _Magic(0, b"Obj\x01", "an Avro file", _CONVERT),
    _Magic(0, b"ORC", "an ORC file", _CONVERT),
    _Magic(0, b"FEA1", "a Feather file of version 1", _CONVERT),
    _Magic(0, b"GGUF", "a model's weights (GGUF)"),
    _Magic(8, b'{"', "a model's weights (safetensors)"),
    _Magic(0, b"MMIDIDX\0", "an index of Megatron's token files", "give the text that they were made from"),
    _Magic(0, b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", _UNPACK),
    _Magic(0, b"Rar!", "a RAR archive", _UNPACK),
    _Magic(0, b"\x04\x22\x4d\x18", "LZ4-compressed", "unpack it (lz4 -d FILE)"),
    _Magic(0, b"\xff\x06\x00\x00sNaPpY", "Snappy-compressed", _UNPACK),
    _Magic(0, b"\x5d\x00\x00", "LZMA-compressed in the old format", "unpack it (unlzma FILE)"),
    _Magic(0, b"\x1f\x9d", "compressed (.Z)", "unpack it (uncompress FILE)"),
)
_PAGE = re.compile(rb"\s*<(?:!doctype\s+html|html[\s>])", re.IGNORECASE)
_BUCKET_ERROR = re.compile(rb"\s*(?:<\?xml[^>]*>)?\s*<Error>\s*<Code>")


def recognize_form(name: str, head: bytes, place: str) -> Form:
    """Return the form of a file.

    Args:
        name: Its name, of which the endings count where the bytes allow several forms.
        head: Its first HEAD_BYTES bytes, or all that it has.
        place: Names it in messages.

    Raises:
        DataError: No reader knows the form.
    """
    if not head:
        return Form(kind="text")
    form = next((Form(kind=kind) for pattern, kind in _KNOWN if pattern.match(head)), None)
    if form is not None:
        return form
    suffix = _find_suffix(name)
    if head.startswith(_PARQUET) and (suffix == ".parquet" or not _is_utf8(head)):
        return Form(kind="parquet")
    mark, encoding = next(((mark, name) for mark, name in _BOMS if head.startswith(mark)), (b"", "utf-8"))
    text, is_valid = _decode(head, mark, encoding, suffix, place)
    _refuse_foreign_text(head, suffix, place)
    return Form(kind=_find_text_kind(text, suffix), encoding=encoding, mark=len(mark), is_valid=is_valid)


def refuse_file(place: str, head: bytes, looks: str, advice: str) -> DataError:
    """Return the error for a file that cannot be read as text."""
    shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in head[:16])
    return DataError(f"{place} looks like {looks} (it begins with {head[:16].hex(' ')} {shown!r}): {advice}")


def _find_suffix(name: str) -> str:
    """Return the last ending of the name in lower case that names no compression."""
    stem = name.lower().rpartition("/")[2]
    while (dot := stem.rfind(".")) > 0 and stem[dot:] in _SUFFIXES:
        stem = stem[:dot]
    dot = stem.rfind(".")
    return stem[dot:] if dot >= 0 else ""


def _is_utf8(head: bytes) -> bool:
    try:
        return "\0" not in _decode_strictly(head, "utf-8", 0)
    except UnicodeDecodeError:
        return False


def _decode_strictly(head: bytes, encoding: str, mark: int) -> str:
    return codecs.getincrementaldecoder(encoding)("strict").decode(head[mark:], len(head) < HEAD_BYTES)


def _decode(head: bytes, mark: bytes, encoding: str, suffix: str, place: str) -> tuple[str, bool]:
    """Return the text, and whether all of it could be decoded."""
    try:
        text = _decode_strictly(head, encoding, len(mark))
    except UnicodeDecodeError:
        if not (suffix in _LINE_SUFFIXES and head.lstrip().startswith(b"{")):
            _refuse_foreign(head, place)
            if not (_is_other_text(head) if encoding == "utf-8" else _is_damaged_text(head[len(mark) :], encoding)):
                raise refuse_file(place, head, "binary data", _NO_TEXT) from None
        return head[len(mark) :].decode(encoding, errors="replace"), False
    if "\0" not in text:
        return text, True
    _refuse_foreign(head, place)
    if abs(head[:64:2].count(0) - head[1:64:2].count(0)) > 8:
        advice = "convert it, as with iconv -f UTF-16LE -t UTF-8 FILE"
        raise refuse_file(place, head, "text in UTF-16 without a byte-order mark", advice)
    raise refuse_file(place, head, "binary data", _NO_TEXT)


def _refuse_foreign(head: bytes, place: str) -> None:
    for magic in (*_FOREIGN_TEXT, *_FOREIGN):
        if head.startswith(magic.begins, magic.at):
            raise refuse_file(place, head, magic.looks, magic.advice or _NO_TEXT)


def _refuse_foreign_text(head: bytes, suffix: str, place: str) -> None:
    for magic in _FOREIGN_TEXT:
        if head.startswith(magic.begins):
            raise refuse_file(place, head, magic.looks, magic.advice)
    if _BUCKET_ERROR.match(head):
        raise refuse_file(place, head, "the error answer of a bucket", "download the file again")
    if _PAGE.match(head) and suffix not in _PAGE_SUFFIXES:
        advice = "download the file again, or call it FILE.html to train on the page"
        raise refuse_file(place, head, "an HTML page, as servers answer with when a download fails", advice)


def _is_other_text(head: bytes) -> bool:
    """Return whether bytes that are not UTF-8 may still be text: almost no control characters are among them."""
    controls = sum(byte < 9 or 13 < byte < 27 or 27 < byte < 32 or byte == 127 for byte in head)
    return controls * 100 <= len(head) and b"\0" not in head


def _is_damaged_text(head: bytes, encoding: str) -> bool:
    """Return whether bytes behind a byte-order mark are text but for few; of random ones UTF-16 refuses 3 %."""
    text = head.decode(encoding, errors="replace")
    return (text.count("\ufffd") - 1) * 100 <= len(text)


def _find_text_kind(text: str, suffix: str) -> Kind:
    begin = text.lstrip(" \t\r\n")
    if begin.startswith("[") and (suffix == ".json" or _begins_array(begin)):
        return "array"
    if suffix in _LINE_SUFFIXES:
        return "lines"
    if begin.startswith("{"):
        line, ended, _ = begin.partition("\n")
        may_continue = not ended and _is_cut(text) and re.match(r'\{\s*"', line)
        if _is_object(line) or (may_continue and not (suffix == ".json" and _holds_more(line))):
            return "lines"
        if suffix == ".json":
            return "objects"
    return "lines" if suffix == ".json" and begin.startswith('"') else "text"


def _begins_array(begin: str) -> bool:
    """Return whether text begins as a JSON array of objects or texts; prose may begin with a bracket, too."""
    first = begin[1:].lstrip(" \t\r\n")
    if first[:1] not in ("{", '"'):
        return first.rstrip() == "]"
    try:
        _, end = json.JSONDecoder().raw_decode(first)
    except json.JSONDecodeError as error:  # the first element may be longer than what is known of the file
        return _is_cut(first) and (error.msg.startswith("Unterminated") or error.pos > len(first) - 16)
    except RecursionError:
        return False
    return first[end:].lstrip(" \t\r\n")[:1] in (",", "]", "")


def _is_cut(text: str) -> bool:
    """Return whether the text of a head may be only the beginning; a character has up to four bytes."""
    return len(text) * 4 > HEAD_BYTES - 64


def _holds_more(line: str) -> bool:
    """Return whether a line has more than one value of JSON."""
    try:
        _, end = json.JSONDecoder().raw_decode(line)
    except (ValueError, RecursionError):
        return False
    return bool(line[end:].strip())


def _is_object(line: str) -> bool:
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict)
