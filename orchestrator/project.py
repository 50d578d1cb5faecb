"""The project in which a command works: names of clusters are unique in it. Light: standard library only."""

from __future__ import annotations

import re
from collections.abc import Mapping

from orchestrator.errors import UserError
from orchestrator.paths import config_path

DEFAULT_PROJECT = "default"
VARIABLE = "ORCH_PROJECT"
_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")


def read_project(environ: Mapping[str, str]) -> str:
    """Return the project that ORCH_PROJECT names, else `team.project` of the configuration, else "default".

    Raises:
        UserError: It cannot be a project's name.
        ConfigError: The configuration is no TOML, so its project is not known.
    """
    return find_named_project(environ) or DEFAULT_PROJECT


def find_named_project(environ: Mapping[str, str]) -> str:
    """Return the project that is named there; "" for none. The errors are those of `read_project`."""
    name = environ.get(VARIABLE) or _read_configured(environ)
    return check_project(name, f"correct {VARIABLE}, or: orch config set team.project NAME") if name else ""


def check_project(name: str, step: str) -> str:
    """Return the name of a project.

    Args:
        name: The name.
        step: What to do about a wrong one.

    Raises:
        UserError: It cannot be one.
    """
    if _NAME.fullmatch(name) is None:
        why = "up to 40 lower-case letters, digits and dashes, a letter first"
        raise UserError(f"'{name}' cannot be a project's name", why, step)
    return name


def _read_configured(environ: Mapping[str, str]) -> str:
    """Return the key alone: a mistake elsewhere in the file must not keep a `down` from ending machines."""
    try:
        text = config_path(environ).read_text(encoding="utf-8")
    except (OSError, UnicodeError):
        return ""  # commands that need the configuration report it
    if "team" not in text:
        return ""
    import tomllib

    try:
        return str(tomllib.loads(text).get("team", {}).get("project", ""))
    except (ValueError, AttributeError):
        from orchestrator.task.config import load_config

        return load_config(environ).text("team.project")


def to_column(project: str) -> str:
    """Return a project as the store keeps it: "" is the default one, as in records of an orch without projects."""
    return "" if project == DEFAULT_PROJECT else project


def split_name(qualified: str) -> tuple[str, str]:
    """Return the project and the name that `qualify_name` put together."""
    project, _, name = qualified.rpartition("/")
    return project or DEFAULT_PROJECT, name


def qualify_name(project: str, cluster: str) -> str:
    """Return a cluster's name as events and leases have it: in the default project the bare name, as always.

    So an orch without projects, which may be at work during an upgrade, and this one exclude each other.
    """
    return cluster if project == DEFAULT_PROJECT else f"{project}/{cluster}"
