"""No value gets into a script unquoted: checked in every template, and again when one is filled."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Environment, UndefinedError, nodes
from render_support import TEMPLATES, hostile

from orchestrator.errors import UserError
from orchestrator.render import templates
from orchestrator.render.quoting import mark_as_code, quote_word

USER_PROGRAMS = {"user_setup", "user_run"}

# Each of these is driven with hostile strings by a test in test_hostile_values.py; those in the braces below
# it only ever hold words from a fixed list (topology, machine, digest and version: of the catalog).
QUOTED = {"python", "package", "workdir", "word", "source", "destination", "path", "bucket", "key", "url", "ref"} | {
    "scratch",
    "module",
    "name",
    "topology",
    "may_install",
    "machine",
    "digest",
    "conda_version",
    "version",
}


def unsafe(source: str) -> Iterator[str]:
    """What a template puts out in a way that is not allowed."""
    tree = Environment().parse(source)
    for output in tree.find_all(nodes.Output):
        for node in output.nodes:
            if isinstance(node, nodes.TemplateData):
                continue
            if not _is_allowed(node):
                yield f"line {node.lineno}: {node}"
    for kind in (nodes.FilterBlock, nodes.CallBlock, nodes.Macro, nodes.AssignBlock, nodes.Import, nodes.FromImport):
        yield from (f"line {node.lineno}: {kind.__name__}" for node in tree.find_all(kind))
    others: list[nodes.Include | nodes.Extends] = [*tree.find_all(nodes.Include), *tree.find_all(nodes.Extends)]
    for include in others:
        if not isinstance(include.template, nodes.Const):
            yield f"line {include.lineno}: a template by a name that is not constant"


def _is_allowed(node: nodes.Expr) -> bool:
    if not isinstance(node, nodes.Filter) or not isinstance(node.node, nodes.Name):
        return False
    return node.name in ("q", "place") or (node.name == "code" and node.node.name in USER_PROGRAMS)


def template_files() -> list[Path]:
    return sorted(path for part in ("setup", "run", "mount") for path in (TEMPLATES / part).glob("*.j2"))


@pytest.mark.parametrize("path", template_files(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_template_puts_out_quoted_values_only(path: Path) -> None:
    assert list(unsafe(path.read_text())) == []


@pytest.mark.parametrize(
    "source",
    [
        "{{ name }}",
        "{{ name | code }}",
        "{{ name | upper }}",
        "{{ name | q | upper }}",
        "{{ 'a' ~ name }}",
        "{% if a %}{{ name }}{% endif %}",
        "{% filter upper %}x{% endfilter %}",
        "{% macro m() %}x{% endmacro %}",
        "{% include name %}",
        "{% block b %}{{ super() }}{% endblock %}",
    ],
)
def test_guard_sees_what_is_not_quoted(source: str) -> None:
    assert list(unsafe(source)) != []


def test_every_quoted_value_is_known_to_the_hostile_tests() -> None:
    found = {
        node.node.name
        for path in template_files()
        for node in Environment().parse(path.read_text()).find_all(nodes.Filter)
        if node.name in ("q", "place") and isinstance(node.node, nodes.Name)
    }
    assert found == QUOTED


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of templates of the test's own."""
    monkeypatch.setattr(templates, "template_folder", lambda: tmp_path)
    templates.template_environment.cache_clear()
    yield tmp_path
    templates.template_environment.cache_clear()


def test_filling_refuses_a_value_without_quotes(scratch: Path) -> None:
    (scratch / "bad.j2").write_text("echo {{ name }}\n")
    with pytest.raises(TypeError, match=r"without `\| q`"):
        templates.render_template("bad.j2", name="x")


def test_filling_refuses_a_name_that_is_not_given(scratch: Path) -> None:
    (scratch / "bad.j2").write_text("echo {{ name | q }}{% if other %}x{% endif %}\n")
    with pytest.raises(UndefinedError, match="other"):
        templates.render_template("bad.j2", name="x")
    (scratch / "worse.j2").write_text("echo {{ name }}\n")
    with pytest.raises(UndefinedError, match="name"):
        templates.render_template("worse.j2")


def test_only_our_filters_exist() -> None:
    assert set(templates.template_environment().filters) == {"q", "place", "code"}


def test_templates_are_found_in_an_installed_package(tmp_path: Path) -> None:
    """The wheel carries them as orchestrator/_templates (pyproject.toml, force-include)."""
    source = TEMPLATES.parent / "orchestrator"
    shutil.copytree(source, tmp_path / "orchestrator", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(TEMPLATES, tmp_path / "orchestrator" / "_templates")
    ask = (
        "from orchestrator.render.templates import template_folder\n"
        "from orchestrator.render.scripts import RunInputs, render_run\n"
        "assert render_run(RunInputs(backend='cpu', user_run='x'))\n"
        "print(template_folder())"
    )
    done = subprocess.run([sys.executable, "-c", ask], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/orchestrator/_templates\n"), done.stderr


@given(hostile(slash=True))
def test_quoted_value_is_one_argument_for_a_shell(value: str) -> None:
    assert shlex.split(quote_word(value)) == [value]


@given(st.lists(hostile(slash=True), min_size=1, max_size=20))
def test_bash_gets_the_very_bytes(values: list[str]) -> None:
    script = "printf '%s\\0' " + " ".join(quote_word(value) for value in values)
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True)
    assert done.stdout.decode().split("\0")[:-1] == values


@pytest.mark.parametrize("make", [quote_word, mark_as_code])
@pytest.mark.parametrize("bad", ["a\0b", "\ud800"])
def test_what_no_script_can_hold_is_refused_with_a_next_step(make: object, bad: str) -> None:
    assert callable(make)
    with pytest.raises(UserError) as caught:
        make(bad)
    assert caught.value.next_step


@pytest.mark.parametrize("value", [None, True, 1.5, b"x", ["x"], quote_word("x")])
def test_other_types_are_not_quoted_by_accident(value: object) -> None:
    with pytest.raises(TypeError):
        quote_word(value)
