"""Renders the pages from their templates, and finds their style sheet and script by names that hold their digest."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, cast

from jinja2 import Environment, PackageLoader, StrictUndefined

from orchestrator.documents.accuracy import describe_bounds, describe_compared
from orchestrator.documents.clusters import describe_job
from orchestrator.errors import OrchError
from orchestrator.formatting import (
    format_age,
    format_amount,
    format_dollars,
    format_duration,
    format_local_time,
    format_microdollars,
    format_price,
    format_run_cost,
    format_size,
    format_utc,
)
from orchestrator.next_step import NextStep
from orchestrator.service.drawing import chart
from orchestrator.service.route import Person, Route

_STATIC = {"page.css": "text/css", "page.js": "text/javascript"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRenderer:
    """Renders templates; every value is escaped."""

    environment: Environment

    @classmethod
    def create(cls, version: str) -> PageRenderer:
        """Return the renderer of the templates of this package."""
        environment = Environment(
            loader=PackageLoader("orchestrator.service", "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        filters: dict[str, Any] = environment.filters
        filters |= {
            "age": format_age,
            "duration": format_duration,
            "local_time": format_local_time,
            "microdollars": format_microdollars,
            "price": format_price,
            "size": format_size,
            "utc": format_utc,
            "next_step": NextStep.parse,
            "run_cost": format_run_cost,
            "job": describe_job,
            "bounds": describe_bounds,
            "compared": describe_compared,
            "money": format_amount,
            "dollars": format_dollars,
        }
        shared = cast("dict[str, Any]", environment.globals)  # typed by Jinja for its built-in values only
        shared |= {
            "version": version,
            "static": {name: f"/static/{_hashed_name(name)}" for name in _STATIC},
            "plot": {name: getattr(chart, name) for name in ("WIDTH", "HEIGHT", "LEFT", "RIGHT", "TOP", "BOTTOM")},
        }
        return cls(environment=environment)

    def render(
        self, template: str, values: Mapping[str, Any], *, route: Route, following: str, person: Person | None
    ) -> str:
        """Return a page as HTML.

        Args:
            template: The name of its template.
            values: What it shows.
            route: Of the page.
            following: Address of the next page of its list; "" for none.
            person: Who looks at it.
        """
        shown = {"page": _name_page(template), "route": route, "following": following, "person": person}
        return self.environment.get_template(template).render(values, **shown)

    def render_entry(self, template: str, values: Mapping[str, Any]) -> str:
        """Return a page that no route of the table shows, to who has no session yet."""
        shown = {"page": _name_page(template), "route": None, "person": None}
        return self.environment.get_template(template).render(values, **shown)

    def render_error(self, error: OrchError, status: int, target: str = "") -> str:
        """Return an error as a page.

        Args:
            error: The error.
            status: The HTTP status.
            target: The address that needs a session; "" where a session would not help.
        """
        return self.render_entry("error.html", {"error": error, "status": status, "target": target})


def _name_page(template: str) -> str:
    return template.removesuffix(".html")


@cache
def _read_static(name: str) -> bytes:
    return files("orchestrator.service").joinpath("static", name).read_bytes()


def _hashed_name(name: str) -> str:
    stem, _, suffix = name.rpartition(".")
    return f"{stem}.{hashlib.sha256(_read_static(name)).hexdigest()[:12]}.{suffix}"


def find_static_file(name: str) -> tuple[bytes, str] | None:
    """Return the content and media type of a file by the name that holds its digest; None for any other name."""
    return next(((_read_static(one), medium) for one, medium in _STATIC.items() if _hashed_name(one) == name), None)
