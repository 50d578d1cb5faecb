"""The settings of projects as records; loads no database library."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectSetting:
    """A key of the configuration with its value in a project."""

    project: str
    key: str
    value: str


def select_settings(settings: Iterable[ProjectSetting], project: str) -> dict[str, str]:
    """Return the values of a project by key."""
    return {one.key: one.value for one in settings if one.project == project}
