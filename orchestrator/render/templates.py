"""Finds and fills the templates. A name that is not given, and a value that is not quoted, are errors."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.runtime import Undefined

from orchestrator.render.quoting import Code, Word, code, q


def fill(template: str, **values: object) -> str:
    """Render one template by its path below templates/, such as `run/cpu.sh.j2`."""
    return environment().get_template(template).render(**values)


def folder() -> Path:
    """The templates: beside the package in a checkout, inside it in an installed wheel."""
    package = Path(__file__).resolve().parent.parent
    for place in (package / "_templates", package.parent / "templates"):
        if (place / "run" / "base.sh.j2").is_file():
            return place
    raise RuntimeError(f"the installation is broken: no templates below {package}")


@cache
def environment() -> Environment:
    """The one Jinja environment of the project."""
    made = Environment(
        loader=FileSystemLoader(folder(), followlinks=True),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - shell, not HTML: `q` quotes every value, and `_only_quoted` sees to it
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
        finalize=_only_quoted,
    )
    made.filters.clear()  # nothing else may change a value on its way out
    made.filters.update({"q": q, "code": code})
    return made


def _only_quoted(value: object) -> object:
    """Every value that a template puts out passes here; literal text and included templates do not."""
    if isinstance(value, Word | Code | Undefined):  # Undefined raises by itself, with the name
        return value
    raise TypeError(f"a template put out {value!r} without `| q`")
