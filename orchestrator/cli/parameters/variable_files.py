"""Files of variables for --env-file and --secret-file, in the form that python-dotenv reads and the dialect uses.

Source: python-dotenv 1.2, README "File format" (read 2026-11-26); SkyPilot documentation, "CLI", --env-file.
"""

from __future__ import annotations

import os
import re
import select
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from orchestrator.errors import NotFoundError, UserError

_BLANK = re.compile(r"\s*(?:#[^\n]*(?:\n|\Z)\s*)*")
_NAME = re.compile(r"(?:export[^\S\n]+)?([A-Za-z_][A-Za-z0-9_]*)[^\S\n]*(=?)[^\S\n]*")
_SINGLE = re.compile(r"'((?:\\.|[^'\\])*)'", re.DOTALL)
_DOUBLE = re.compile(r'"((?:\\.|[^"\\])*)"', re.DOTALL)
_PLAIN = re.compile(r"[^\r\n]*")
_COMMENT = re.compile(r"\s+#.*")
_END = re.compile(r"[^\S\n]*(?:#[^\n]*)?(?:\n|\Z)")
_REFERENCE = re.compile(r"\$\{([^\}:]*)(?::-([^\}]*))?\}")
PIPE_SECONDS = 10.0  # that what writes to a pipe may take to begin
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def read_variable_files(paths: tuple[str, ...], shell: Mapping[str, str]) -> tuple[tuple[str, str | None], ...]:
    """Return the variables of all files in order; None for a name without a value, which the shell gives.

    Raises:
        NotFoundError: There is no such file.
        UserError: It cannot be read; the message shows no value.
    """
    found: dict[str, str | None] = {}
    for path in paths:
        for name, value in _list_variables(_read(path), path):
            known = {**shell, **{key: item for key, item in found.items() if item is not None}}
            found[name] = None if value is None else _fill(value, known)
    return tuple(found.items())


def _read(path: str) -> str:
    try:
        text = _read_bytes(path).decode("utf-8").removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    except FileNotFoundError:
        raise NotFoundError(f"there is no file `{path}`", "", "give a file with a line NAME=VALUE for each") from None
    except UnicodeDecodeError as error:
        raise UserError(f"`{path}` is not a text in UTF-8", str(error), "save it as UTF-8") from error
    except OSError as error:
        raise UserError(f"cannot read `{path}`", error.strerror or str(error), f"ls -l {path}") from error
    if "\0" in text:
        what = f"{path}:{text.count(chr(10), 0, text.index(chr(0))) + 1}: this line has a NUL character"
        raise UserError(what, "no variable can hold one", "save the file as UTF-8, without zero bytes")
    return text


def _read_bytes(path: str) -> bytes:
    """Return the content of a file, or of a pipe such as `<(COMMAND)` of a shell."""
    if not stat.S_ISFIFO(os.stat(path).st_mode):  # noqa: PTH116  # a path as it was typed
        return Path(path).read_bytes()
    pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(pipe, "rb") as file:  # noqa: PTH123  # an open descriptor
        if not select.select([pipe], [], [], PIPE_SECONDS)[0]:
            why = f"it is a named pipe, and nothing wrote to it within {PIPE_SECONDS:.0f} s"
            raise UserError(f"cannot read `{path}`", why, "start what writes to it first, or name a file")
        os.set_blocking(pipe, True)
        return file.read()


def _list_variables(text: str, path: str) -> Iterator[tuple[str, str | None]]:
    reached, wrong = _after(_BLANK, text, 0), list[int]()
    while reached < len(text):
        name = _NAME.match(text, reached)
        value, end = (
            _take_value(text, name.end()) if name is not None and name[2] else (None, name.end() if name else 0)
        )
        closed = _END.match(text, end)
        if name is None or closed is None:
            wrong.append(text.count("\n", 0, reached) + 1)
            reached = _after(_BLANK, text, (text.find("\n", reached) + 1) or len(text))
            continue
        yield name[1], value
        reached = _after(_BLANK, text, closed.end())
    if wrong:
        what = f"{path}:{wrong[0]}: this line is not NAME=VALUE"
        if len(wrong) > 1:
            what += f", nor {'are lines' if len(wrong) > 2 else 'is line'} {', '.join(map(str, wrong[1:9]))}"
            what += "" if len(wrong) < 10 else f" and {len(wrong) - 9} more"
        raise UserError(what, "their text is not shown: it may be a secret", "write NAME=VALUE, or NAME='VALUE'")


def _take_value(text: str, start: int) -> tuple[str, int]:
    """Return a value and where it ends."""
    if (quoted := _SINGLE.match(text, start)) is not None:
        return re.sub(r"\\([\\'])", r"\1", quoted[1]), quoted.end()
    if (quoted := _DOUBLE.match(text, start)) is not None:
        return re.sub(r"\\([\\'\"abfnrtv])", lambda found: _ESCAPES.get(found[1], found[1]), quoted[1]), quoted.end()
    plain = _PLAIN.match(text, start)
    written = plain[0] if plain is not None else ""
    if written[:1] in ("'", '"'):
        return "", start  # a quote without its end: refused as no line
    return _COMMENT.sub("", written, count=1).rstrip(), start + len(written)


def _fill(value: str, known: Mapping[str, str]) -> str:
    return _REFERENCE.sub(lambda found: known.get(found[1], found[2] or ""), value)


def _after(pattern: re.Pattern[str], text: str, start: int) -> int:
    found = pattern.match(text, start)
    return found.end() if found is not None else start
