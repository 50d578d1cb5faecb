#!/usr/bin/env python3
"""Check that names, comments, docstrings, messages and docs use the words of docs/glossary.md.

The banned words, what to write instead, and the exceptions are data: scripts/language.toml. Prints one line for each
finding and exits 1 when there is one.

    scripts/check_language.py [PATH ...]     only files below these paths; `--count` prints totals for each folder
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_TEXT_SUFFIXES = (".md", ".j2", ".sh", ".toml", ".yaml")


Phrases = tuple[tuple[re.Pattern[str], str], ...]


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The rules of scripts/language.toml, compiled.

    Attributes:
        names: Banned parts of a name, with the word to use instead.
        phrases: Banned phrases in texts, with the words to use instead.
        messages: The same, in messages only: in a comment they are plain English.
        with_messages: Patterns of paths whose messages are checked, also where the rest of the file is skipped.
        skipped: Patterns of paths that are not checked.
        allowed: Pairs of a path pattern and a name or phrase that is allowed there.
    """

    names: dict[str, str]
    phrases: Phrases
    messages: Phrases
    with_messages: tuple[str, ...]
    skipped: tuple[str, ...]
    allowed: tuple[tuple[str, str], ...]

    def skips(self, path: str) -> bool:
        """Return whether a file is not checked, or only its messages are."""
        return any(fnmatch(path, pattern) for pattern in self.skipped)

    def allows(self, path: str, found: str) -> bool:
        """Return whether the exceptions cover what was found in this file."""
        return any(fnmatch(path, pattern) and fnmatch(found.lower(), text) for pattern, text in self.allowed)


def load_rules(path: Path) -> Rules:
    """Read the rules from a TOML file."""
    table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    return Rules(
        names={name: instead for instead, listed in table["names"].items() for name in listed},
        phrases=_compile(table["phrases"]),
        messages=_compile(table["messages"]),
        with_messages=tuple(table["with_messages"]["paths"]),
        skipped=tuple(table["skipped"]["paths"]),
        allowed=tuple(
            (path, text.lower()) for entry in table["allowed"] for path in entry["paths"] for text in entry["texts"]
        ),
    )


def _compile(table: dict[str, list[str]]) -> Phrases:
    phrases = {phrase: instead for instead, listed in table.items() for phrase in listed}
    return tuple((re.compile(rf"\b(?:{phrase})\b", re.IGNORECASE), instead) for phrase, instead in phrases.items())


def find_violations(path: str, source: str, rules: Rules) -> Iterator[str]:
    """Yield one line `path:line: ...` for each banned name or phrase in a file."""
    messages = rules.messages
    if rules.skips(path):
        messages += rules.phrases
    else:
        yield from _find_names(path, source, rules)
        yield from _find_phrases(path, _texts(path, source), rules.phrases, rules)
    if _is_python(path, source) and any(fnmatch(path, pattern) for pattern in rules.with_messages):
        yield from _find_phrases(path, _messages(source), messages, rules)


def _find_names(path: str, source: str, rules: Rules) -> Iterator[str]:
    for line, name in _names(path, source):
        for part in _PART.findall(name):
            instead = rules.names.get(part.lower())
            if instead is not None and not rules.allows(path, name) and not rules.allows(path, part):
                yield f"{path}:{line}: name '{name}': instead of '{part.lower()}' write {instead}"


def _find_phrases(path: str, texts: Iterable[tuple[int, str]], phrases: Phrases, rules: Rules) -> Iterator[str]:
    for line, text in texts:
        for pattern, instead in phrases:
            for match in pattern.finditer(text):
                if not rules.allows(path, match[0]):
                    at = line + text.count("\n", 0, match.start())
                    yield f"{path}:{at}: text '{match[0]}': write {instead}"


def _names(path: str, source: str) -> Iterator[tuple[int, str]]:
    """Yield the names that a Python file defines, and its own name."""
    stem = PurePosixPath(path).stem
    yield 1, stem
    if not _is_python(path, source):
        return
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name


def _texts(path: str, source: str) -> Iterator[tuple[int, str]]:
    """Yield comments and string literals of a Python file, or a text file as a whole."""
    if not _is_python(path, source):
        yield 1, source
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING) or tokenize.tok_name[token.type] == "FSTRING_MIDDLE":
            yield token.start[0], token.string


def _messages(source: str) -> Iterator[tuple[int, str]]:
    """Yield the string literals that are sentences: of several words, and no docstring. `{}` stands for each value."""
    tree = ast.parse(source)
    inside = {id(part) for node in ast.walk(tree) for part in _pieces(node)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in inside and _is_sentence(text):
                yield node.lineno, text
            case ast.JoinedStr(values=parts) if id(node) not in inside:
                text = "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in parts)
                if _is_sentence(text):
                    yield node.lineno, text


def _pieces(node: ast.AST) -> list[ast.expr]:
    """Return the strings in a node that are not a literal by themselves: docstrings, and the parts of an f-string."""
    match node:
        case ast.Expr(value=ast.Constant(value=str()) as docstring):
            return [docstring]
        case ast.JoinedStr(values=parts):
            return parts
        case ast.FormattedValue(format_spec=ast.JoinedStr() as spec):
            return [spec]
        case _:
            return []


def _is_sentence(text: str) -> bool:
    return len(text.split()) >= 3


def _is_python(path: str, source: str) -> bool:
    return path.endswith(".py") or source.startswith("#!/usr/bin/env python3")


def _files(paths: list[str]) -> Iterable[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *paths], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return [path for path in listed.stdout.split("\0") if path]


def main(arguments: list[str]) -> int:
    """Check the files and print the findings; return the exit status."""
    rules = load_rules(ROOT / "scripts" / "language.toml")
    counting = "--count" in arguments
    findings: list[str] = []
    for path in _files([argument for argument in arguments if argument != "--count"]):
        file = ROOT / path
        if not file.is_file():
            continue
        source = file.read_text(encoding="utf-8", errors="replace")
        if file.suffix in _TEXT_SUFFIXES or file.suffix == "" or _is_python(path, source):
            findings += find_violations(path, source, rules)
    if counting:
        for folder, count in sorted(Counter("/".join(line.split("/")[:2]) for line in findings).items()):
            print(f"{count:6} {folder.partition(':')[0]}")
    else:
        print(*findings, sep="\n", end="\n" if findings else "")
    print(f"check_language: {len(findings)} findings", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
