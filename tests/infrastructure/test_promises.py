"""docs/promises.md names existing tests that carry their number, and every promise of its list has one."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).parent.parent
PAGE = TESTS.parent / "docs" / "promises.md"
LIST = [
    *(f"P{number}" for number in range(1, 10)),
    *("P11", "P16", "P17", "P21", "P22", "P23", "P25", "P29"),
    *(f"P{number}" for number in range(31, 43)),
]


def carried() -> dict[str, set[str]]:
    """Promise -> tests with its mark, as "folder/file.py::name". A mark of the whole file counts for each of it."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for file in sorted(TESTS.rglob("test_*.py")):
        tree = ast.parse(file.read_text())
        marks = [node.value for node in tree.body if isinstance(node, ast.Assign) and "pytestmark" in ast.dump(node)]
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
                for promise in promises([*marks, *node.decorator_list]):
                    found[promise].add(f"{file.relative_to(TESTS).as_posix()}::{node.name}")
    return found


def promises(marks: list[ast.expr]) -> list[str]:
    calls = [call for mark in marks for call in ast.walk(mark) if isinstance(call, ast.Call)]
    named = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "promise"]
    return [ast.literal_eval(call.args[0]) for call in named]


def read_page_tests() -> dict[str, set[str]]:
    """Promise -> tests that the page names."""
    rows = re.findall(r"^## (P\d+): .*?$(.*?)(?=^## |\Z)", PAGE.read_text(), re.M | re.S)
    return {promise: set(re.findall(r"^- `([^`]+::[^`]+)`$", text, re.M)) for promise, text in rows}


def test_every_promise_of_the_page_has_tests_and_each_of_them_carries_its_number() -> None:
    there, page = carried(), read_page_tests()
    assert list(page) == LIST
    for promise, names in page.items():
        assert names, f"{promise} has no test on the page"
        missing = names - there[promise]
        assert not missing, f"{promise}: the page names tests that are not there or do not carry its number: {missing}"


def test_the_reader_of_marks_finds_one_above_a_function_and_one_of_a_file() -> None:
    source = 'pytestmark = pytest.mark.promise("P3")\n@pytest.mark.promise("P1")\ndef test_a(): ...\n'
    tree = ast.parse(source)
    assignment, function = tree.body
    assert isinstance(assignment, ast.Assign) and isinstance(function, ast.FunctionDef)
    assert promises([assignment.value, *function.decorator_list]) == ["P3", "P1"]
