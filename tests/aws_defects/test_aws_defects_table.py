"""The table of defects names tests that are there, and each test of this folder belongs to a row of it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from aws_defect_table import DEFECTS, Defect

TESTS = Path(__file__).parent.parent
HERE = Path(__file__).parent


def named(file: Path) -> set[str]:
    """Tests of a file."""
    found = (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef))
    return {node.name for node in found if node.name.startswith("test_")}


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.source)
def test_every_defect_has_tests_that_are_there_or_a_reason(defect: Defect) -> None:
    assert bool(defect.tests) != bool(defect.why_not)
    for test in defect.tests:
        file, _, name = test.partition("::")
        assert name in named(TESTS / file), f"{test} is not there"


def test_every_test_of_this_folder_belongs_to_a_defect() -> None:
    told = {test for defect in DEFECTS for test in defect.tests}
    files = [file for file in HERE.glob("test_*.py") if file != Path(__file__)]
    there = {f"{HERE.name}/{file.name}::{name}" for file in files for name in named(file)}
    assert len(files) == 3 and there, "the folder was not read"
    assert there - told == set()


def test_no_source_is_told_twice() -> None:
    sources = [word.strip() for defect in DEFECTS for part in defect.source.split(";") for word in part.split(",")]
    assert len(sources) == len(set(sources))
