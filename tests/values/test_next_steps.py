"""Every error that the program raises says what to do next."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator import errors
from orchestrator.errors import OrchError

ROOT = Path(__file__).resolve().parents[2]
POSITION = {name: 2 for name, one in vars(errors).items() if isinstance(one, type) and issubclass(one, OrchError)} | {
    "StoreError": 2,
    "TaskError": 4,
    "ConfigError": 4,
    "InvalidValueError": 2,
}
del POSITION["CannotStopError"]  # the command that names the cluster adds the next step: name_next_step
DECLINED = {"you declined", "not agreed to", "the price was not confirmed"}  # the user said no: nothing is to be done


def find_without_next_step(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each error that is made with no next step, or an empty one."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=args, keywords=keywords):
                position = POSITION.get(name)
                if position is None or any(isinstance(each, ast.Starred) for each in args):
                    continue
                given = [each.value for each in keywords if each.arg in ("next_step", None)] + args[position:]
                if not given or any(isinstance(each, ast.Constant) and not each.value for each in given):
                    yield node.lineno, ast.unparse(node)


def test_every_error_has_a_next_step() -> None:
    found: list[str] = []
    for path in sorted((ROOT / "orchestrator").rglob("*.py")):
        for line, text in find_without_next_step(path.read_text(encoding="utf-8")):
            if not any(repr(words) in text for words in DECLINED):
                found.append(f"{path.relative_to(ROOT)}:{line}: {text}")
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("call", "complete"),
    [
        ("UserError('a')", False),
        ("errors.QuotaError('a', 'b')", False),
        ("UserError('a', 'b', '')", False),
        ("UserError('a', next_step='c')", True),
        ("UserError('a', 'b', f'c {d}')", True),
        ("TaskError('a', 1, 'b')", False),
        ("UserError(*parts)", True),
        ("ValueError('a')", True),
    ],
)
def test_an_error_without_a_next_step_is_found(call: str, complete: bool) -> None:
    assert bool(list(find_without_next_step(f"raise {call}"))) is not complete
