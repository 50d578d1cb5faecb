"""No two drivers have the same function: what they share is in the provider core, or beside the drivers.

Functions are compared twice: by their bodies as they are written, and, where they are longer, by their shape alone,
without names, texts and numbers. `-s` prints the sizes of the drivers.
"""

from __future__ import annotations

import ast
import copy
import itertools
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))

from driver_lines import PROVIDERS, list_drivers, make_table  # noqa: E402  # a script, and no part of a package

FORWARDED = 20  # nodes of a syntax tree: one statement with fewer only forwards a call
LONG = 6  # statements from which on the shape alone is compared

ALLOWED: Mapping[tuple[str, str], str] = {}
"""Pairs of functions that two drivers may both have, and why."""


def test_no_two_drivers_have_the_same_function() -> None:
    print("\n" + make_table())
    found = _find_duplicates(list_drivers(), PROVIDERS)
    assert found <= ALLOWED.keys(), "move what both have to the provider core, or beside the drivers"


def test_every_allowed_pair_is_still_the_same() -> None:
    assert ALLOWED.keys() <= _find_duplicates(list_drivers(), PROVIDERS), (
        "these are different by now: no longer allow them"
    )


def test_every_driver_is_compared() -> None:
    drivers = list_drivers()
    assert drivers.keys() >= {"aws", "google", "google/compute", "hosts", "local"}
    assert all(drivers.values())
    assert not set(drivers["google"]) & set(drivers["google/compute"])
    assert PROVIDERS / "core" / "provider.py" not in itertools.chain(*drivers.values())


SHORT = 'def f(a: int) -> str:\n    """Return it."""\n    b: str = g(a, 1)\n    return b\n'
ALIAS = "def f(a):\n    return f'{a.name}-{g(a.token.encode()).hexdigest()[:8]}'\n"
ALL_OF_IT = "\n".join(
    ("def f(a):", *(f"    b{line} = a.c({line}, 'd', key=b)" for line in range(LONG - 1)), "    return b1")
)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (SHORT, "def h(a):\n    b = g(a, 1)\n    return b\n", True),
        (SHORT, "class C:\n    def h(self, a: str):\n        b = g(a, 1)\n        return b\n", True),
        (SHORT, SHORT.replace("g(a, 1)", "g(a, 2)"), False),
        (SHORT, SHORT.replace("b", "c"), False),
        (ALIAS, ALIAS, True),
        (ALIAS, ALIAS.replace("token", "id"), False),
        ("def f(a):\n    return g(a)\n", "def f(a):\n    return g(a)\n", False),
        (ALL_OF_IT, ALL_OF_IT.replace("b", "x").replace("'d'", "'e'").replace("key=", "other="), True),
        (ALL_OF_IT, ALL_OF_IT.replace("return b1", "return None"), False),
        (ALL_OF_IT, ALL_OF_IT.replace("b", "x").replace("def f(a)", "def f(a, *, b)"), False),
    ],
)
def test_a_copy_is_found(tmp_path: Path, first: str, second: str, *, same: bool) -> None:
    for name, text in (("one", first), ("two", second)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "planner.py").write_text(text)
    assert bool(_find_duplicates(list_drivers(tmp_path), tmp_path)) is same


def test_a_function_may_be_twice_in_one_driver(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "planner.py").write_text(SHORT + SHORT.replace("def f", "def h"))
    assert _find_duplicates(list_drivers(tmp_path), tmp_path) == set()


def _find_duplicates(drivers: Mapping[str, Sequence[Path]], folder: Path) -> set[tuple[str, str]]:
    """Return the pairs of equal functions of different drivers, each as `module:function`."""
    alike: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for driver, modules in drivers.items():
        for module in modules:
            for name, function in _list_functions(_strip(ast.parse(module.read_text(encoding="utf-8")))):
                for form in _normalise(function):
                    alike[form].append((driver, f"{module.relative_to(folder).as_posix()}:{name}"))
    return {
        (min(one, other), max(one, other))
        for functions in alike.values()
        for (driver, one), (second, other) in itertools.combinations(functions, 2)
        if driver != second
    }


def _normalise(function: ast.FunctionDef) -> Iterator[str]:
    """Return the forms in which a function is compared: its body, and its shape if it is long."""
    inner = [node for statement in function.body for node in ast.walk(statement)]
    statements = sum(isinstance(node, ast.stmt) for node in inner)
    if statements > 1 or len(inner) >= FORWARDED:
        yield "".join(map(ast.dump, function.body))
    if statements >= LONG:
        yield "shape: " + "".join(ast.dump(_blank(part)) for part in (function.args, *function.body))


def _blank(tree: ast.AST) -> ast.AST:
    """Return a tree without its identifiers, texts and numbers."""
    blank = copy.deepcopy(tree)
    for node in ast.walk(blank):
        for field, value in ast.iter_fields(node):
            if isinstance(value, list):
                setattr(node, field, ["_" if isinstance(one, str) else one for one in value])
            elif isinstance(value, str | bytes | int | float | complex) and not isinstance(value, bool):
                setattr(node, field, "_")
    return blank


def _strip(module: ast.Module) -> ast.Module:
    """Return a module without docstrings and annotations."""
    stripped = _Stripping().visit(module)
    assert isinstance(stripped, ast.Module)
    return stripped


class _Stripping(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        if ast.get_docstring(node) is not None:
            del node.body[0]
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.Assign | None:
        self.generic_visit(node)
        return None if node.value is None else ast.Assign(targets=[node.target], value=node.value)


def _list_functions(node: ast.AST, within: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    """Return all functions below a node by their names, such as "Planner.create_request"."""
    for child in ast.iter_child_nodes(node):
        name = within
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            name = f"{within}.{child.name}".lstrip(".")
        if isinstance(child, ast.FunctionDef):
            yield name, child
        yield from _list_functions(child, name)
