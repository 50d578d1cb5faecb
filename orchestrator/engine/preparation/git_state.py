"""Read the state of a workdir's repository: its commit, and the version that the package's build would ask git for."""

from __future__ import annotations

import hashlib
import os
import re
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from orchestrator.remote.tree import is_in_git, run_git
from orchestrator.task.git_state import GitState
from orchestrator.task.model import Task

# What is binary, or very large, is named by the digests of its contents alone, and no program of the user formats it.
_DIFF = ("diff", "HEAD", "--full-index", "--no-ext-diff", "--no-textconv", "--no-color")
_FAILED = 128  # status of git without a commit, a tag, or a remote
# Which variable a build takes in place of git's answer. Sources (November 2026): setuptools_scm 10.3 and hatch-vcs 0.5
# (vcs_versioning 2.6, _overrides.py; hatch-vcs names no package, so only the variable for all packages counts there),
# pdm-backend 2.5 (hooks/version), pbr (docs.openstack.org/pbr, "Environment Variables").
_FOR_ALL = {"hatch-vcs": "SETUPTOOLS_SCM_PRETEND_VERSION", "pdm-backend": "PDM_BUILD_SCM_VERSION", "pbr": "PBR_VERSION"}
_NAMED = ("setuptools-scm", "vcs-versioning")
_NAMED_VARIABLE = "SETUPTOOLS_SCM_PRETEND_VERSION"
_TAG = re.compile(r"(?:[\w-]+-)?[vV]?(?P<version>\d+(?:\.\d+)*[^+]*)-(?P<distance>\d+)-g(?P<commit>[0-9a-f]+)")


def add_git_state(task: Task) -> Task:
    """Return a task that says from which commit its local workdir is; the same one where that is not known."""
    if not isinstance(task.workdir, str) or task.git is not None:
        return task
    folder = Path(os.path.expanduser(task.workdir))  # noqa: PTH111  # Path.expanduser raises for a user who does not exist
    state = read_git_state(folder) if folder.is_dir() and is_in_git(folder) else None
    return task if state is None else task.model_copy(update={"git": state})


def read_git_state(folder: Path) -> GitState | None:
    """Return the state of a folder's repository, or None before its first commit."""
    head = _ask(folder, "rev-parse", "HEAD", "--abbrev-ref", "HEAD").split()
    if len(head) < 2:
        return None
    commit, branch = head
    changed = run_git(folder, "status", "--porcelain", "--untracked-files=no")
    changes = hashlib.sha256(run_git(folder, *_DIFF)).hexdigest() if changed else ""
    variable = _find_version_variable(folder)
    known = {
        "commit": commit,
        "branch": "" if branch == "HEAD" else branch,
        "changes": changes,
        "remote": _without_login(_ask(folder, "config", "--get", "remote.origin.url")),
        "version": _find_version(folder, dirty=bool(changes)) if variable else "",
        "version_variable": variable,
    }
    return GitState.model_validate({name: value for name, value in known.items() if value})


def _ask(folder: Path, *arguments: str) -> str:
    return run_git(folder, *arguments, ok=(0, 1, _FAILED)).decode("utf-8", "replace").strip()


def _without_login(address: str) -> str:
    """Return an address without user and password: hosts and records must not have them."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return ""
    return (
        parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        if parts.scheme in ("http", "https")
        else address
    )


def _find_version_variable(folder: Path) -> str:
    project = _read_project(folder / "pyproject.toml")
    requires = {_normalize(re.split(r"[^\w.-]", str(one))[0]) for one in project.get("requires", ())}
    for name, variable in _FOR_ALL.items():
        if name in requires:
            return variable if name != "pdm-backend" or project["asks_git"] else ""
    if requires.isdisjoint(_NAMED):
        return ""
    name = _normalize(project.get("name", "")).upper().replace("-", "_")
    return f"{_NAMED_VARIABLE}_FOR_{name}" if name else _NAMED_VARIABLE


def _read_project(file: Path) -> dict[str, Any]:
    """Return name, build requirements, and whether pdm-backend asks git; {} where the file says nothing."""
    try:
        data = tomllib.loads(file.read_text("utf-8"))
        pdm = data.get("tool", {}).get("pdm", {}).get("version", {})
        return {
            "name": str(data.get("project", {}).get("name", "")),
            "requires": tuple(data.get("build-system", {}).get("requires", ())),
            "asks_git": pdm.get("source") == "scm",
        }
    except (OSError, ValueError, AttributeError, TypeError):  # no such file, or not the form of PEP 621: pip says so
        return {}


def _normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()  # PEP 503


def _find_version(folder: Path, *, dirty: bool) -> str:
    """Return the version that setuptools_scm makes by default, with `.dirty` in place of the date."""
    found = _TAG.fullmatch(_ask(folder, "describe", "--tags", "--long", "--abbrev=9", "--match", "*[0-9]*"))
    if found is None:
        distance, commit = _ask(folder, "rev-list", "--count", "HEAD"), _ask(folder, "rev-parse", "--short=9", "HEAD")
        version = "0.0"
    else:
        version, distance, commit = found["version"], found["distance"], found["commit"]
    if found is not None and distance == "0" and not dirty:
        return version
    next_version = re.sub(r"\d+$", lambda last: str(int(last[0]) + 1), version)
    return f"{next_version}.dev{distance}+g{commit}" + (".dirty" if dirty else "")
