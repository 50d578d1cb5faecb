"""Canary values of secrets, and where they are found: in files, databases, processes and answers, in several forms."""

from __future__ import annotations

import base64
import gzip
import os
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, quote_plus

import psycopg


def list_forms(secret: str) -> dict[str, bytes]:
    """Return what would give a secret away: itself, quoted for a URL, as hex digits, and in base64 at any offset."""
    raw = secret.encode()
    found = {"plain": raw, "hex": raw.hex().encode(), "upper hex": raw.hex().upper().encode()}
    found |= {"quoted": quote(secret, safe="").encode(), "quoted +": quote_plus(secret).encode()}
    for offset in range(3):
        for name, encode in (("base64", base64.b64encode), ("url base64", base64.urlsafe_b64encode)):
            whole = encode(b"\0" * offset + raw).rstrip(b"=")
            found[f"{name} at {offset}"] = whole[
                (0, 2, 3)[offset] : len(whole) - 1
            ]  # what its neighbours do not change
    return found


class Canaries:
    """The secrets by name, and the places in which one was seen, as (secret, place)."""

    def __init__(self) -> None:
        self.secrets: dict[str, str] = {}
        self.seen: dict[tuple[str, str], set[str]] = {}
        self.places: set[str] = set()

    def plant(self, name: str, secret: str) -> str:
        """Note a secret, and return it."""
        assert len(secret) >= 12, f"{name} is too short to be distinguished from other text"
        assert secret not in self.secrets.values()
        self.secrets[name] = secret
        return secret

    def look(self, place: str, content: bytes | str) -> None:
        """Look for every secret in what was found at a place, and in what is packed in it."""
        self.places.add(place)
        data = content.encode() if isinstance(content, str) else content
        for part in _unpack(data):
            for name, secret in self.secrets.items():
                forms = {form for form, found in list_forms(secret).items() if found in part}
                if forms:
                    self.seen.setdefault((name, place), set()).update(forms)

    def look_below(self, folder: Path, place: str) -> None:
        """Look into every file below a folder; a place is the file's path in it."""
        for path in sorted(folder.rglob("*")):
            if not path.is_file() or path.is_symlink():
                continue
            with suppress(FileNotFoundError):
                content = path.read_bytes()
                self.look(f"{place}/{path.relative_to(folder)}", content)
                if content.startswith(b"SQLite format 3\0"):
                    self.look(f"{place}/{path.relative_to(folder)}", "\n".join(_cells(path)))

    def look_at_database(self, url: str, place: str) -> None:
        """Look into every column of every table of a schema in PostgreSQL."""
        with psycopg.connect(url, autocommit=True) as database:
            tables = database.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()").fetchall()
            assert len(tables) > 15
            for (table,) in tables:
                rows = database.execute(f'SELECT t::text FROM "{table}" AS t'.encode()).fetchall()
                self.look(place, "\n".join(str(row[0]) for row in rows))

    def look_at_processes(self, folder: Path, marks: Mapping[str, str]) -> set[str]:
        """Look at arguments and environments of the processes that name a folder there; return which kinds were seen.

        marks: what a process of a kind has in its environment, by the name of the kind.
        """
        kinds: set[str] = set()
        for proc in Path("/proc").iterdir():
            if not proc.name.isdecimal() or int(proc.name) == os.getpid():
                continue
            with suppress(OSError):
                words, environment = (proc / "cmdline").read_bytes(), (proc / "environ").read_bytes()
                if os.fsencode(folder) not in words + environment:
                    continue
                self.look("arguments of any process", words)
                kind = next(
                    (one for one, mark in marks.items() if mark.encode() in b"\0" + environment), "another process"
                )
                kinds.add(kind)
                self.look(f"environment of {kind}", environment)
        return kinds


def _unpack(data: bytes) -> Iterator[bytes]:
    yield data
    if data.startswith(b"\x1f\x8b"):
        with suppress(OSError, EOFError, zlib.error):
            yield from _unpack(gzip.decompress(data))


def _cells(path: Path) -> Iterator[str]:
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in database.execute(f'SELECT * FROM "{table}"'):  # names of tables of the store
                yield from map(str, row)
