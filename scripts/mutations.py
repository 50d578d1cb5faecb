"""Faults that are put into the product, one at a time, to see whether its tests notice them.

Faults of Python are those of cosmic-ray's operators, and statements that are left out. It has none for the shell: those
are here. The text around a fault identifies it, and never its line, so that an edit elsewhere changes no sample.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

_COMPARED = {"Eq": "NotEq", "NotEq": "Eq", "Is": "IsNot", "IsNot": "Is"}
_ORDERED = {"Lt": ("LtE", "GtE"), "LtE": ("Lt", "Gt"), "Gt": ("GtE", "LtE"), "GtE": ("Gt", "Lt")}
_COMPUTED = {"Add": "Sub", "Sub": "Add", "Mul": "FloorDiv", "FloorDiv": "Mul", "BitOr": "BitAnd", "BitAnd": "BitOr"}
# Not among them: variables, decorators, and `/`, which mostly joins paths: every test of the line sees such a fault.
OPERATORS = (
    *("AddNot", "ReplaceUnaryOperator_Delete_Not", "ReplaceAndWithOr", "ReplaceOrWithAnd"),
    *("ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "NumberReplacer", "ReplaceUnaryOperator_Delete_USub"),
    *("ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "ZeroIterationForLoop", "ExceptionReplacer"),
    *(f"ReplaceComparisonOperator_{old}_{new}" for old, new in _COMPARED.items()),
    *(f"ReplaceComparisonOperator_{old}_{new}" for old, pair in _ORDERED.items() for new in pair),
    *(f"ReplaceBinaryOperator_{old}_{new}" for old, new in _COMPUTED.items()),
)
LARGEST = 9  # a larger number is a size or a time, which one more or less hardly changes
_COMPOUND = ("file_input", "suite", "if_stmt", "while_stmt", "for_stmt", "with_stmt", "try_stmt", "funcdef", "classdef")
_NO_CODE = ("decorator", "fstring", "tfpdef", "global_stmt", "import_from", "import_name")
_LEFT_OUT = "leave out"

_COMMANDS = (
    "rm|kill|mv|mkdir|chmod|ln|trap|umask|cd|touch|cat|echo|printf|true|sleep|shift|set|unset|export|read|orch_\\w+"
)
SHELL = (  # name, pattern, replacement: of each match in a line that is no comment
    ("not", r"\bif (?!! )", "if ! "),
    ("not", r"\bif ! ", "if "),
    *(
        ("comparison", f" -{old} ", f" -{new} ")
        for old, new in (("eq", "ne"), ("ne", "eq"), ("lt", "le"), ("le", "lt"))
    ),
    *(("comparison", f" -{old} ", f" -{new} ") for old, new in (("gt", "ge"), ("ge", "gt"))),
    *(("comparison", f" {old} ", f" {new} ") for old, new in (("=", "!="), ("!=", "="))),
    ("test", r"\[ -n ", "[ -z "),
    ("test", r"\[ -z ", "[ -n "),
    ("test", r"\[ (?=-[defsxLS] )", "[ ! "),
    ("test", r"\[ ! ", "[ "),
    ("and", r"&&", "||"),
    ("or", r"\|\|", "&&"),
    ("end", r"\b(exit|return) \d+", ":"),
    ("number", r"(?<=[ =])[0-9](?=[ ;)]|$)", ""),
    (_LEFT_OUT, rf"^(?:{_COMMANDS})\b.*[^\\{{|&(]$", ":"),
    (_LEFT_OUT, r"^\w+=\S*$", ":"),
)


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One fault.

    Attributes:
        id: Of its place and its operator.
        file: Relative to the checkout.
        operator: Name of the kind of fault.
        line: Of the file as it is now, from 1; for readers only.
        before: The statement or the line without the fault.
        after: The line with it.
        text: Content of the file with it.
    """

    id: str
    file: str
    operator: str
    line: int
    before: str
    after: str
    text: str


@dataclass(frozen=True)
class _Edit:
    place: tuple[str, ...]  # file, function, statement, and where in it
    operator: str
    line: int
    apply: Callable[[], str]  # returns the changed content of the file


def draw_sample(root: Path, files: Iterable[str], count: int) -> list[Mutant]:
    """Return a fixed sample of the faults of files: of each place at most one."""
    places: dict[str, list[tuple[str, _Edit]]] = {}
    times: Counter[tuple[str, ...]] = Counter()
    for file in files:
        source = (root / file).read_text("utf-8")
        for edit in _list_python(file, source) if file.endswith(".py") else _list_shell(file, source):
            times[(*edit.place, edit.operator)] += 1
            place = _digest(*edit.place, str(times[(*edit.place, edit.operator)]))
            places.setdefault(place, []).append((_digest(place, edit.operator), edit))
    sample: list[Mutant] = []
    for place in sorted(places):
        mutant = _make_mutant(root, *min(places[place], key=lambda found: found[0]))
        if mutant is not None:
            sample.append(mutant)
        if len(sample) == count:
            break
    return sample


def _make_mutant(root: Path, id: str, edit: _Edit) -> Mutant | None:
    """Return the fault; None when the program is the same as before, or is none."""
    file, _, statement, _ = edit.place
    source, text = (root / file).read_text("utf-8"), edit.apply()
    if not _differs(file, source, text):
        return None
    old, new = source.splitlines(), text.splitlines()
    after = next((line for number, line in enumerate(new) if old[number : number + 1] != [line]), "")
    return Mutant(
        id=id, file=file, operator=edit.operator, line=edit.line, before=statement, after=after.strip(), text=text
    )


def _differs(file: str, source: str, text: str) -> bool:
    """Return whether a changed program is valid and not the same as before."""
    if file.endswith(".py"):
        try:
            return ast.dump(ast.parse(source)) != ast.dump(ast.parse(text))
        except SyntaxError:
            return False
    if file.endswith(".j2"):
        return True
    return subprocess.run(["sh", "-n"], input=text.encode(), capture_output=True, check=False).returncode == 0


def _digest(*words: str) -> str:
    return sha256("\0".join(words).encode()).hexdigest()[:12]


# Python: cosmic-ray's operators over parso's trees


def _list_python(file: str, source: str) -> Iterator[_Edit]:
    import parso
    from cosmic_ray.ast import ast_nodes
    from cosmic_ray.operators.provider import OperatorProvider

    operators = {name: OperatorProvider()[name]() for name in OPERATORS}
    tree = parso.parse(source)
    for number, node in enumerate(ast_nodes(tree)):
        for name, operator in operators.items():
            for index, (start, _) in enumerate(operator.mutation_positions(node)):
                place = _place(tree.get_leaf_for_position(start))
                if place is not None and (name != "NumberReplacer" or abs(ast.literal_eval(node.value)) <= LARGEST):
                    yield _Edit((file, *place), name, start[0], partial(_mutated, source, number, operator, index))
        if _may_be_left_out(node) and (place := _place(node.get_first_leaf())) is not None:
            yield _Edit((file, *place), _LEFT_OUT, node.start_pos[0], partial(_mutated, source, number, None, 0))


def _mutated(source: str, number: int, operator: Any, index: int) -> str:
    """Return a source in which an operator changed one node of the tree; without an operator it is left out."""
    import parso
    from cosmic_ray.ast import ast_nodes

    tree = parso.parse(source, cache=False)
    node = next(islice(ast_nodes(tree), number, None))
    parent = node.parent
    changed = operator.mutate(node, index) if operator else _make_pass(node)
    if parent is not None:
        parent.children = [changed if child is node else child for child in parent.children]
    return str(tree.get_code())


def _make_pass(statement: Any) -> Any:
    import parso

    kept = parso.parse("pass").children[0]
    kept.prefix = statement.get_first_leaf().prefix
    statement.children[:-1] = [kept]
    return statement


def _may_be_left_out(node: Any) -> bool:
    """Return whether a statement is a call, an augmented assignment, a deletion or the raise of an expected error."""
    if node.type != "simple_stmt" or node.get_code().strip().startswith("raise AssertionError"):
        return False
    kind, code = node.children[0].type, node.children[0].get_code()
    if kind in ("raise_stmt", "del_stmt"):
        return True
    return (kind in ("atom_expr", "power") and "assert_never" not in code) or (
        kind == "expr_stmt" and node.children[0].children[1].type == "operator"
        and node.children[0].children[1].value != "="
    )  # fmt: skip


def _place(leaf: Any) -> tuple[str, str, str] | None:
    """Return the function, the statement and the position in it; None for what is no code that runs."""
    function: list[str] = []
    statement, node = leaf, leaf
    while node.parent is not None:
        parent = node.parent
        if parent.type in _NO_CODE or (parent.type == "annassign" and node is parent.children[1]):
            return None
        if (parent.type == "funcdef" and node is parent.annotation) or (
            parent.type == "classdef" and node.type != "suite"
        ):
            return None
        if parent.type in ("funcdef", "classdef"):
            function.append(parent.name.value)
        if statement is node and parent.type not in _COMPOUND:
            statement = parent
        node = parent
    text = statement.get_code(include_prefix=False).strip()
    if "TYPE_CHECKING" in text or (not function and text.count("|") and "=" in text):  # also not: an alias of types
        return None
    line, column = leaf.start_pos[0] - statement.start_pos[0], leaf.start_pos[1]
    return ".".join(reversed(function)), text, f"{line}:{column if line else column - statement.start_pos[1]}"


# Shell


def _list_shell(file: str, source: str) -> Iterator[_Edit]:
    lines = source.splitlines(keepends=True)
    function = ""
    for number, line in enumerate(lines):
        code = re.split(r"(?:^|\s)#(?:\s|$)", line)[0].rstrip()
        begun = re.match(r"(\w+)\(\)", code)
        function = begun[1] if begun else "" if code == "}" else function
        if "{%" in code:
            continue
        indent = len(code) - len(code.lstrip())
        body = code[indent:]
        for name, pattern, new in SHELL:
            for found in re.finditer(pattern, body):
                text = new if name != "number" else str(int(found[0]) + 1)
                if name == _LEFT_OUT and "<<" in body:
                    continue
                changed = f"{line[:indent]}{body[: found.start()]}{text}{body[found.end() :]}{line[len(code) :]}"
                place = (file, function, body, str(found.start()))
                yield _Edit(place, name, number + 1, partial("".join, [*lines[:number], changed, *lines[number + 1 :]]))
