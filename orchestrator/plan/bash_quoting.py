"""Quote any text as a bash word or here-document: hostile bytes stay data, unknowns and secrets become variables."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

from orchestrator.values import Secret, Text, Unknown

DELIMITER = "ORCH_SCRIPT"

# Names that bash sets or obeys itself: a secret with such a name gets another variable.
_TAKEN = re.compile(
    r"_|BASH.*|BASHPID|CDPATH|COMP_.*|DIRSTACK|ENV|EPOCH.*|EUID|FUNC.*|GROUPS|HISTCMD|HOME|HOST_\d+_.*|IFS|LINENO|LC_.*|"
    r"LANG|MAILPATH|OLDPWD|OPT.*|PATH|PIPESTATUS|POSIXLY_CORRECT|PPID|PS\d|PWD|RANDOM|READLINE_.*|SECONDS|SHELL.*|"
    r"SHLVL|SRANDOM|TMOUT|UID|ORCH_.*|UNKNOWN_.*|rank|target"
)


@dataclass(slots=True, kw_only=True)
class Variables:
    """The variables given to unknowns and secrets while one script is written."""

    secrets: dict[str, str] = field(default_factory=dict[str, str])  # variable -> name of the secret
    unknowns: dict[str, Unknown] = field(default_factory=dict[str, Unknown])
    _guarded: set[str] = field(default_factory=set[str])
    _answered: set[str] = field(default_factory=set[str])

    def name_of(self, part: Unknown | Secret) -> str:
        """Return the variable of an unknown or a secret."""
        if isinstance(part, Secret):
            name = (
                part.name
                if is_variable_name(part.name) and not _TAKEN.fullmatch(part.name)
                else "SECRET_" + _upper(part.name)
            )
            while self.secrets.setdefault(name, part.name) != part.name:
                name += "_"
            return name
        name = f"HOST_{part.host}_ADDRESS" if part.host is not None else "UNKNOWN_" + _upper(part.what)
        while self.unknowns.setdefault(name, part) != part:
            name += "_"
        return name

    def name_of_answer(self, part: Unknown) -> str:
        """Return the variable of an unknown that the script itself finds out, so that no guard asks for it."""
        name = self.name_of(part)
        self._guarded.add(name)
        self._answered.add(name)
        return name

    def early_guards(self) -> Iterator[str]:
        """Return lines that stop the script at its start while a variable that can be known there is not set."""
        return (_guard(name, unknown) for name, unknown in self.unknowns.items() if self._is_early(name, unknown))

    def guards(self) -> Iterator[str]:
        """Yield the same for variables used since the last call that become known while the script runs; each once."""
        for name, unknown in self.unknowns.items():
            if name not in self._guarded and not self._is_early(name, unknown):
                self._guarded.add(name)
                yield _guard(name, unknown)

    def _is_early(self, name: str, unknown: Unknown) -> bool:
        return name not in self._answered and not unknown.after_create


def _guard(name: str, unknown: Unknown) -> str:
    why = re.sub(r"[^A-Za-z0-9 ,._:/-]+", " ", unknown.what)
    return f': "${{{name}:?{why}}}"'


def is_variable_name(value: str) -> bool:
    """Return whether bash accepts the value as the name of a variable."""
    return re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value) is not None


def bash_word(value: Text, variables: Variables) -> str:
    """Return one word: literal parts quoted, the others as "${NAME}"."""
    if not value.parts:
        return "''"
    return "".join(
        quote_literal(part) if isinstance(part, str) else f'"${{{variables.name_of(part)}}}"' for part in value.parts
    )


def quote_literal(value: str) -> str:
    """Return one word of plain text. Control characters are escaped, so that nothing hides in the script."""
    value = _encodable(value)
    if all(char.isprintable() or char in "\n\t" for char in value):
        return shlex.quote(value)
    return "$'" + "".join(_ansi_c(char) for char in value) + "'"


def heredoc_lines(script: Text, variables: Variables) -> list[str]:
    """Return the lines of a command that prints `script` with a newline at its end: `cat` and a here-document.

    A script of plain text is written unchanged. One with unknowns or secrets is expanded by bash, so its literal parts
    are escaped. One with control characters is a printf.
    """
    plain = "".join(part for part in script.parts if isinstance(part, str))
    if any(not char.isprintable() and char not in "\n\t" for char in plain):
        return [f"  printf '%s\\n' {bash_word(script, variables)}"]
    if all(isinstance(part, str) for part in script.parts):
        end = _delimiter(plain)
        return [f"  cat << '{end}'", *plain.removesuffix("\n").split("\n"), end]
    content = "".join(
        re.sub(r"([\\$`])", r"\\\1", part) if isinstance(part, str) else f"${{{variables.name_of(part)}}}"
        for part in script.parts
    )
    end = _delimiter(content)
    return [f"  cat << {end}", *content.removesuffix("\n").split("\n"), end]


def _delimiter(content: str) -> str:
    """Return a delimiter that does not occur in the content."""
    end = DELIMITER
    while end in content:
        end += "_"
    return end


def _encodable(value: str) -> str:
    # Bash words cannot hold NUL, and lone surrogates cannot be written as UTF-8: both are replaced.
    return value.replace("\0", "\N{SYMBOL FOR NULL}").encode("utf-8", "replace").decode("utf-8")


def _ansi_c(char: str) -> str:
    if char in "\\'":
        return "\\" + char
    if char.isprintable():
        return char
    return "".join(f"\\{byte:03o}" for byte in char.encode())  # \u would depend on the locale


def _upper(value: str) -> str:
    """Return a readable part of a variable's name."""
    return re.sub(r"[^A-Za-z0-9]+", "_", value).strip("_").upper()[:48] or "VALUE"
