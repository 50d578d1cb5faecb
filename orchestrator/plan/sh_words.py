"""Any text as a word or a here-document of bash: hostile bytes stay data, unknowns and secrets become variables."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

from orchestrator.values import Secret, Text, Unknown

DELIMITER = "ORCH_SCRIPT"

# Names that bash sets or obeys itself: a secret of that name gets a variable of another one.
_TAKEN = re.compile(
    r"_|BASH.*|BASHPID|CDPATH|COMP_.*|DIRSTACK|ENV|EPOCH.*|EUID|FUNC.*|GROUPS|HISTCMD|HOME|HOST_\d+_.*|IFS|LINENO|LC_.*|"
    r"LANG|MAILPATH|OLDPWD|OPT.*|PATH|PIPESTATUS|POSIXLY_CORRECT|PPID|PS\d|PWD|RANDOM|READLINE_.*|SECONDS|SHELL.*|"
    r"SHLVL|SRANDOM|TMOUT|UID|ORCH_.*|UNKNOWN_.*|rank|target"
)
_ADDRESS = re.compile(r"address of host (\d+)\b")


@dataclass(slots=True)
class Variables:
    """Names given to unknowns and secrets while one script is written."""

    secrets: dict[str, str] = field(default_factory=dict[str, str])  # variable -> name of the secret
    unknowns: dict[str, Unknown] = field(default_factory=dict[str, Unknown])
    _guarded: set[str] = field(default_factory=set[str])
    _told: set[str] = field(default_factory=set[str])

    def of(self, part: Unknown | Secret) -> str:
        if isinstance(part, Secret):
            name = (
                part.name if is_name(part.name) and not _TAKEN.fullmatch(part.name) else "SECRET_" + _upper(part.name)
            )
            while self.secrets.setdefault(name, part.name) != part.name:
                name += "_"
            return name
        address = _ADDRESS.match(part.what)
        name = f"HOST_{address.group(1)}_ADDRESS" if address else "UNKNOWN_" + _upper(part.what)
        while self.unknowns.setdefault(name, part) != part:
            name += "_"
        return name

    def told(self, part: Unknown) -> str:
        """The variable of an unknown that the script itself finds out: nobody has to set it."""
        name = self.of(part)
        self._guarded.add(name)
        self._told.add(name)
        return name

    def early_guards(self) -> Iterator[str]:
        """Lines that stop the script at its begin while a variable has no value that can be known there."""
        return (_guard(name, unknown) for name, unknown in self.unknowns.items() if self._is_early(name, unknown))

    def guards(self) -> Iterator[str]:
        """The same for variables, used since the last call, that become known while the script runs; each once."""
        for name, unknown in self.unknowns.items():
            if name not in self._guarded and not self._is_early(name, unknown):
                self._guarded.add(name)
                yield _guard(name, unknown)

    def _is_early(self, name: str, unknown: Unknown) -> bool:
        return name not in self._told and not name.startswith("HOST_") and "known after create" not in unknown.what


def _guard(name: str, unknown: Unknown) -> str:
    why = re.sub(r"[^A-Za-z0-9 ,._:/-]+", " ", unknown.what)
    return f': "${{{name}:?{why}}}"'


def is_name(value: str) -> bool:
    return re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value) is not None


def bash_word(value: Text, variables: Variables) -> str:
    """One word: literal parts quoted, the others as "${NAME}"."""
    if not value.parts:
        return "''"
    return "".join(literal(part) if isinstance(part, str) else f'"${{{variables.of(part)}}}"' for part in value.parts)


def literal(value: str) -> str:
    """One word of plain text. Control characters are written out, so that nothing hides in the script."""
    value = _encodable(value)
    if all(char.isprintable() or char in "\n\t" for char in value):
        return shlex.quote(value)
    return "$'" + "".join(_ansi_c(char) for char in value) + "'"


def document(script: Text, variables: Variables) -> list[str]:
    """Lines of a command that prints `script`, with a newline at its end: `cat` and a here-document.

    A script of plain text stands there as it is. One with unknowns or secrets is expanded by bash, so the literal
    parts are escaped. One with control characters is a printf.
    """
    plain = "".join(part for part in script.parts if isinstance(part, str))
    if any(not char.isprintable() and char not in "\n\t" for char in plain):
        return [f"  printf '%s\\n' {bash_word(script, variables)}"]
    if all(isinstance(part, str) for part in script.parts):
        end = _delimiter(plain)
        return [f"  cat << '{end}'", *plain.removesuffix("\n").split("\n"), end]
    content = "".join(
        re.sub(r"([\\$`])", r"\\\1", part) if isinstance(part, str) else f"${{{variables.of(part)}}}"
        for part in script.parts
    )
    end = _delimiter(content)
    return [f"  cat << {end}", *content.removesuffix("\n").split("\n"), end]


def _delimiter(content: str) -> str:
    """A word that occurs nowhere in the content."""
    end = DELIMITER
    while end in content:
        end += "_"
    return end


def _encodable(value: str) -> str:
    # Bash words cannot hold NUL, and lone surrogates cannot be written as UTF-8: both show as what they are not.
    return value.replace("\0", "\N{SYMBOL FOR NULL}").encode("utf-8", "replace").decode("utf-8")


def _ansi_c(char: str) -> str:
    if char in "\\'":
        return "\\" + char
    if char.isprintable():
        return char
    return "".join(f"\\{byte:03o}" for byte in char.encode())  # \u would depend on the locale of who runs it


def _upper(value: str) -> str:
    """A readable part of a variable's name."""
    return re.sub(r"[^A-Za-z0-9]+", "_", value).strip("_").upper()[:48] or "VALUE"
