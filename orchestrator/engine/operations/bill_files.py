"""The rows of billing exports, from files of this computer and of buckets, as a stream with bounds.

Such a file is made by others: a row, the unpacked size and its ratio to the packed one have limits, so that memory and
time are bounded whatever it holds.
"""

from __future__ import annotations

import csv
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from orchestrator.engine.state.identities import open_project_bucket
from orchestrator.errors import UserError
from orchestrator.storage.address import is_bucket_uri, split_object

MOST_ROW_BYTES = 2**20
MOST_FILE_BYTES = 64 * 2**30  # unpacked
MOST_RATIO = 300  # unpacked to packed; text of bills is packed to a tenth or a thirtieth
_UNCHECKED = 64 * 2**20  # bytes before the ratio is looked at
_PIECE = 2**20
_FOLDER_ENDINGS = (".csv", ".csv.gz", ".json", ".json.gz", ".jsonl", ".jsonl.gz")
_GZIP, _PARQUET, _ZIP = b"\x1f\x8b", b"PAR1", b"PK\x03\x04"


def list_bill_files(name: str) -> tuple[str, ...]:
    """Return the URIs of the exports that a name means: a file, or all files below a folder.

    Raises:
        UserError: There are none.
    """
    if not is_bucket_uri(name):
        path = Path(name)
        uri = f"file://{path.resolve()}"  # one name for one file
        if not path.is_dir():
            return (uri,)
        name = f"{uri}/"
    elif not name.endswith("/"):
        return (name,)
    bucket = open_project_bucket(name.rstrip("/"))
    found = tuple(bucket.uri_of(one.path) for one in bucket.list() if one.path.endswith(_FOLDER_ENDINGS))
    if not found:
        raise UserError(f"no export is below {name}", f"looked for {', '.join(_FOLDER_ENDINGS)}", "name the files")
    return found


def read_rows(uri: str) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of one export, CSV with a header or JSON lines, packed with gzip or not.

    Raises:
        UserError: It has another form, or is over a limit.
    """
    folder, name = split_object(uri)
    lines = _split_lines(uri, _unpack(uri, open_project_bucket(folder).read_chunks(name)))
    first = next(lines, "")
    text = chain([first], lines)
    if first.startswith("{"):
        yield from _read_json(uri, text)
    elif first.startswith("["):
        raise UserError(
            f"{uri} is one JSON array",
            "its rows cannot be read one after the other",
            "export JSON lines: bq extract --destination_format NEWLINE_DELIMITED_JSON TABLE gs://…",
        )
    else:
        yield from _read_csv(uri, text)


def _read_json(uri: str, lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"row {number} of {uri} is not JSON", str(error)[:200], "export it again") from error
        if not isinstance(row, dict):
            raise UserError(f"row {number} of {uri} is not a JSON object", "", "export it again")
        yield row


def _read_csv(uri: str, lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    reader = csv.DictReader(lines, restkey="", restval="")
    try:
        yield from reader
    except csv.Error as error:  # such as a field over 128 KiB
        raise UserError(f"row {reader.line_num} of {uri} is not CSV", str(error), "export it again") from error


def _split_lines(uri: str, pieces: Iterable[bytes]) -> Iterator[str]:
    kept = b""
    for piece in pieces:
        *whole, kept = (kept + piece).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace").removeprefix("\ufeff") + "\n"
        if len(kept) > MOST_ROW_BYTES:
            raise UserError(f"{uri} has a row over {MOST_ROW_BYTES:,} bytes", "no export has", "export it again")
    if kept:
        yield kept.decode("utf-8", "replace").removeprefix("\ufeff")


def _unpack(uri: str, chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the content, unpacked where it is packed, in pieces of at most a MiB or a chunk."""
    first = b""
    while len(first) < len(_ZIP) and (more := next(chunks, b"")):
        first += more
    for begin, form in ((_PARQUET, "Parquet"), (_ZIP, "ZIP")):
        if first.startswith(begin):
            why = "orch reads CSV and JSON lines, packed with gzip or not"
            raise UserError(f"{uri} is a {form} file", why, "choose gzip and CSV for the export")
    content = chain([first], chunks)
    yield from _unpack_gzip(uri, content) if first.startswith(_GZIP) else content


def _unpack_gzip(uri: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
    packed = unpacked = 0
    is_whole = True  # the member that was begun last
    stream = zlib.decompressobj(wbits=31)
    for chunk in chunks:
        packed += len(chunk)
        rest = chunk
        while rest:
            try:
                piece = stream.decompress(rest, _PIECE)
            except zlib.error as error:
                raise UserError(f"{uri} is damaged", str(error), "download it again") from error
            is_whole = stream.eof
            unpacked += len(piece)
            if unpacked > MOST_FILE_BYTES or (unpacked > _UNCHECKED and unpacked > MOST_RATIO * packed):
                why = f"{packed:,} bytes become over {unpacked:,}"
                raise UserError(f"{uri} is too large", why, "export fewer days in a file, or without packing")
            yield piece
            rest = stream.unconsumed_tail
            if stream.eof:  # another member may follow
                rest = stream.unused_data
                stream = zlib.decompressobj(wbits=31)
    if not is_whole:
        raise UserError(f"{uri} is damaged", "its end is missing", "download it again")
