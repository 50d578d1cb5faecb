"""Every suppression of a checker has its reason beside it, or in a comment on the line above."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUPPRESSION = re.compile(r"#\s*(?:noqa(?::\s*[A-Z0-9, ]+)?|(?:type|pyright):\s*ignore(?:\[[^\]]*\])?)\s*")
FOLDERS = ("orchestrator", "trainer", "scripts", "tests")


def test_every_suppression_has_its_reason() -> None:
    files = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*")) if is_python(file)]
    assert len(files) > 900
    bare = [f"{file.relative_to(ROOT)}:{line}" for file in files for line in without_reason(file.read_text())]
    assert not bare, "say why, after the suppression or in a comment above it:\n" + "\n".join(bare)


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("import a  # noqa: F401\n", [1]),
        ("import a  # noqa: F401  # a plugin\n", []),
        ("import a  # noqa: F401, E402 # type: ignore[b]\n", [1]),
        ("import a  # noqa: F401  # type: ignore[b, c]  # a plugin\n", []),
        ("# a plugin\nimport a  # noqa\nimport b  # pyright: ignore\n", [3]),
        ("x = '# noqa'\n", []),
    ],
)
def test_a_reason_is_text_that_is_no_suppression(source: str, lines: list[int]) -> None:
    assert list(without_reason(source)) == lines


def without_reason(source: str) -> Iterator[int]:
    above = -1  # the last line that is a comment and nothing else
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        line = token.start[0]
        reason = SUPPRESSION.sub("", token.string).strip("# ")
        if reason and token.line.lstrip().startswith("#"):
            above = line
        if not reason and SUPPRESSION.search(token.string) and above != line - 1:
            yield line


def is_python(file: Path) -> bool:
    return file.suffix == ".py" or (file.is_file() and file.read_bytes().startswith(b"#!/usr/bin/env python3"))
