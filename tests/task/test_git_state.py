"""The section `git`: from which commit a workdir is, and the version that the package's build would ask git for."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from orchestrator.engine.preparation.git_state import add_git_state, read_git_state
from orchestrator.task.model import Task
from orchestrator.task.parse import parse_task

TEXT = "workdir: {folder}\nresources: {{infra: local}}\nrun: 'true'\n"
SCM = '[build-system]\nrequires = ["setuptools>=64", "setuptools-scm[toml]>=8"]\n[project]\nname = "My.Pkg_x"\n'
HATCH = '[build-system]\nrequires = ["hatchling", "hatch-vcs==0.5"]\n[project]\nname = "mine"\n'
PDM = '[build-system]\nrequires = ["pdm-backend"]\n[tool.pdm.version]\nsource = "scm"\n'


def git(folder: Path, *words: str) -> str:
    config = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    done = subprocess.run(["git", "-C", str(folder), *config, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "-b", "dev")
    (tmp_path / "a.py").write_text("1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    return tmp_path


def test_commit_branch_changes_and_remote_are_read(folder: Path) -> None:
    git(folder, "remote", "add", "origin", "https://ada:secret@example.org/a/b.git")
    clean = read_git_state(folder)
    assert clean is not None and clean.commit == git(folder, "rev-parse", "HEAD")
    assert (clean.branch, clean.changes, clean.remote) == ("dev", "", "https://example.org/a/b.git")
    (folder / "untracked").write_text("no change of what is tracked")
    assert read_git_state(folder) == clean
    (folder / "a.py").write_text("2")
    changed = read_git_state(folder)
    assert changed is not None and len(changed.changes) == 64
    (folder / "a.py").write_bytes(b"\0binary 1")
    binary = read_git_state(folder)
    (folder / "a.py").write_bytes(b"\0binary 2")
    git(folder, "config", "diff.external", "false")
    assert binary is not None and read_git_state(folder) not in (changed, binary), "by content, as git itself shows it"
    git(folder, "checkout", "-q", "--detach")
    git(folder, "remote", "set-url", "origin", "git@example.org:a/b.git")
    detached = read_git_state(folder)
    assert detached is not None and (detached.branch, detached.remote) == ("", "git@example.org:a/b.git")


def test_a_folder_without_a_commit_or_a_repository_has_no_state(tmp_path: Path) -> None:
    task = parse_task(TEXT.format(folder=tmp_path), file="t.yaml", env={}).only
    assert add_git_state(task) is task
    git(tmp_path, "init", "-q")
    assert add_git_state(task) is task


def test_the_commit_is_on_record_and_no_part_of_the_digest_by_which_a_launch_is_found_again(folder: Path) -> None:
    task = parse_task(TEXT.format(folder=folder), file="t.yaml", env={}).only
    stated = add_git_state(task)
    assert stated.git is not None and Task.from_json(stated.to_json()).git == stated.git
    assert stated.to_compared() == task.to_compared()
    assert add_git_state(stated) is stated, "a recorded state stays: the files are those of that commit"


# What setuptools_scm 10.3.4 printed for the same repositories on 2026-11-30, but for the date of changed files.
@pytest.mark.parametrize(
    ("tag", "later", "dirty", "version"),
    [
        ("", 0, False, "0.1.dev1"),
        ("v1.2.3", 0, False, "1.2.3"),
        ("v1.2.3", 1, False, "1.2.4.dev1"),
        ("v1.2.3", 1, True, "1.2.4.dev1"),
        ("mypkg-2.0", 2, False, "2.1.dev2"),
        ("v1.2.3rc1", 1, False, "1.2.3rc2.dev1"),
        ("latest", 0, False, "0.1.dev1"),
    ],
)
def test_the_version_is_the_one_of_the_build_tool(
    folder: Path, tag: str, later: int, dirty: bool, version: str
) -> None:
    (folder / "pyproject.toml").write_text(SCM)
    git(folder, "add", ".")
    git(folder, "commit", "-q", "--amend", "-m", "first")
    if tag:
        git(folder, "tag", tag)
    for number in range(later):
        git(folder, "commit", "-q", "--allow-empty", "-m", str(number))
    if dirty:
        (folder / "a.py").write_text("2")
    state = read_git_state(folder)
    local = f"+g{git(folder, 'rev-parse', '--short=9', 'HEAD')}" if "dev" in version else ""
    assert state is not None and state.version == version + local + (".dirty" if dirty else "")


@pytest.mark.parametrize(
    ("project", "variable"),
    [
        (SCM, "SETUPTOOLS_SCM_PRETEND_VERSION_FOR_MY_PKG_X"),
        (SCM.replace("name", "names"), "SETUPTOOLS_SCM_PRETEND_VERSION"),
        (HATCH, "SETUPTOOLS_SCM_PRETEND_VERSION"),
        (PDM, "PDM_BUILD_SCM_VERSION"),
        (PDM.replace("scm", "file"), ""),
        ('[build-system]\nrequires = ["setuptools"]\n', ""),
        ("not toml", ""),
        ("project = 1\n", ""),
    ],
)
def test_the_build_tool_says_which_variable_it_reads(folder: Path, project: str, variable: str) -> None:
    (folder / "pyproject.toml").write_text(project)
    state = read_git_state(folder)
    assert state is not None and (state.version_variable, bool(state.version)) == (variable, bool(variable))
    names = {name for name, _ in state.list_variables()}
    assert names - {variable} == {"ORCH_GIT_COMMIT", "ORCH_GIT_BRANCH", "WANDB_GIT_COMMIT"}
