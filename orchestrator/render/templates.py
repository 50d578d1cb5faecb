"""The templates and their rendering. An undefined name and an unquoted value are errors."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.runtime import Undefined

from orchestrator.render.quoting import Code, Word, mark_as_code, quote_place, quote_word


def render_template(template: str, **values: object) -> str:
    """Render one template by its path below templates/, such as `run/cpu.sh.j2`."""
    return template_environment().get_template(template).render(**values)


def template_folder() -> Path:
    """Return the folder of the templates: beside the package in a checkout, inside it in an installed wheel."""
    package = Path(__file__).resolve().parent.parent
    for place in (package / "_templates", package.parent / "templates"):
        if (place / "run" / "base.sh.j2").is_file():
            return place
    raise RuntimeError(f"the installation is broken: no templates below {package}")


@cache
def template_environment() -> Environment:
    """Return the Jinja environment of the project."""
    made = Environment(
        loader=FileSystemLoader(template_folder(), followlinks=True),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - shell, not HTML: `q` quotes every value, and `_refuse_unquoted` enforces it
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
        finalize=_refuse_unquoted,
    )
    made.filters.clear()  # no other filter may change a value
    made.filters.update({"q": quote_word, "place": quote_place, "code": mark_as_code})
    return made


def _refuse_unquoted(value: object) -> object:
    """Return a value that a template puts out; TypeError if it is not quoted.

    Literal text and included templates do not pass here.
    """
    if isinstance(value, Word | Code | Undefined):  # Undefined raises with its name
        return value
    raise TypeError(f"a template put out {value!r} without `| q`")
