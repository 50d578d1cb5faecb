#!/usr/bin/env python3
"""Run the static checks and a set of tests; scripts/test calls it after it has installed what the tests need.

scripts/test                      the core: the same tests for the same commit, at most ten minutes on two cores
scripts/test --changed [PART...]  the core, and every folder that watches what changed since the newest tree of
                                  tests/green.toml among the ancestors; at most 60 minutes. PART...: only these parts
scripts/test --full [PART...]     everything at every point: these parts, or all that are due; writes docs/proofs.json
scripts/test ARG...               arguments of pytest; then only pytest runs
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Collection
from pathlib import Path

import proofs
from green import CHANGED, NAME, Green
from steps import ROOT, Run, open_run
from watches import Folder, Watches

LIMIT = 60 * 60  # seconds of `--changed`
CORE, CHECKS = "core", proofs.CHECKS
NO_TESTS = 5  # status of pytest when it has selected none
SHELL = ["scripts/bootstrap", "scripts/quickstart", "scripts/test", "scripts/lock", "scripts/tpu-compiler", ".ci/run"]
STATIC = (
    ("ruff", "format", "--check", ".", "scripts/xla-env"),
    ("ruff", "check", ".", "scripts/xla-env"),
    ("shellcheck", *SHELL),
    ("lint-imports", "--no-cache"),
    ("python", "scripts/check_language.py"),
)


def main(words: list[str]) -> int:
    os.chdir(ROOT)
    if words and not words[0].startswith(("--changed", "--full")):
        os.execvp("python", ["python", "-m", "pytest", *words])
    option, parts = (words[0] if words else "", words[1:])
    watches = Watches.load()
    known = [CHECKS, *([CORE] if option == "--changed" else watches.mutated), *parts_of(watches)]
    unknown = sorted(set(parts) - set(known))
    if option not in ("", "--changed", "--full") or unknown:
        print(__doc__)
        print(f"unknown: {', '.join(unknown) or option}. Parts: {', '.join(known)}")
        return 2
    run = open_run(LIMIT if option == "--changed" and not parts else float("inf"))
    try:
        match option:
            case "--changed":
                return Changed(run).all(parts)
            case "--full":
                return full(run, parts)
            case _:
                return core_lane(run)
    except KeyboardInterrupt:
        print("interrupted")
        return 130
    finally:
        run.end()
        shutil.rmtree(run.folder, ignore_errors=True)


# The core


def core_lane(run: Run) -> int:
    """Run the static checks, the stricter type checker and the core, and report what `--changed` would run besides."""
    report_age()
    if not static_checks(run):
        return closing(run, CORE)
    changed = Changed(run)
    run.beside("types: pyright", "pyright")
    ran = run.folder / "ran"
    core_tests(run, env={"ORCH_RAN_TESTS": str(ran)})
    if changed.folders:
        run.beside("tests of --changed", *pytest(), "--collect-only", *changed.test_paths(), env=changed.env)
    run.finish("types: pyright")
    if changed.folders:
        changed.report_not_run(*run.wait("tests of --changed"), ran)
    report_age()
    return closing(run, CORE)


def static_checks(run: Run) -> bool:
    """Run the checks that need no test, and stop at the first that fails."""
    return all(run.step(" ".join(command[:2]), *command) for command in STATIC)


def core_tests(run: Run, without: Collection[str] = (), env: dict[str, str] | None = None) -> bool:
    ignored = [f"--ignore=tests/{name}" for name in without]
    # Most tests wait for something (hosts, servers, deadlines), so more of them run in parallel than there are cores.
    env = {"ORCH_LANE": CORE, **(env or {})}
    return tests(run, "core", *pytest(5), *ignored, "tests", env=env, may_be_empty=bool(ignored))


def report_age() -> None:
    """Print the parts of the full lane that are due."""
    for line in proofs.due_lines():
        print(f"!!! The full lane is due: {line}", flush=True)


# --changed


class Changed:
    """The run of `--changed` in this tree: its base, the folders that watch a change, and their parts."""

    def __init__(self, run: Run) -> None:
        self.run, self.green, self.watches = run, Green(ROOT), Watches.load()
        self.tree = self.green.digest(self.green.tree())
        self.base = self.green.base()
        paths = list(self.green.changed_paths(self.base)) if self.base else []
        self.env = {
            "ORCH_LANE": CHANGED,
            "ORCH_CHANGED_PATHS": "\n".join(path for path in paths if path.startswith("tests/")),
        }
        if self.base:
            self.folders = self.watches.touched(paths)
        else:
            self.folders = dict.fromkeys(self.watches.folders, "everything, for there is no base")
        self.parts = {
            part: folders
            for part, names in parts_of(self.watches).items()
            if (folders := [folder for folder in names if folder.name in self.folders])
        }

    def test_paths(self) -> list[str]:
        return [f"tests/{name}" for name in self.folders]

    def all(self, chosen: list[str]) -> int:
        """Run the chosen parts, or all that the time allows: first those that were not green in this tree before."""
        self._report_plan()
        needed = [CHECKS, CORE, *self.parts]
        recorded = self.green.sets_of(self.tree)
        late: list[str] = []
        for part in sorted([part for part in needed if part in (chosen or needed)], key=lambda part: part in recorded):
            if not chosen and self.run.elapsed + self.minutes(part) * 60 > LIMIT:
                late.append(part)
            elif self._run_part(part) and self.green.digest(self.green.tree()) == self.tree:
                self.green.record(self.tree, part)
        if self.run.failed:
            return closing(self.run, "--changed")
        left = [part for part in needed if part not in self.green.sets_of(self.tree)]
        if not left or CHANGED in recorded:
            self.green.record(self.tree, CHANGED)
            print(f"Everything that the change could break is green; commit {NAME}, which records it.")
        elif self.green.digest(self.green.tree()) != self.tree:
            print("The files changed during the run, so that nothing is recorded.")
        elif chosen:
            print(f"Not yet run in this tree: scripts/test --changed {' '.join(left)}")
        else:
            self.run.failed.append(f"incomplete: run scripts/test --changed {' '.join(left)}")
        return closing(self.run, "--changed")

    def minutes(self, part: str) -> float:
        """Return the estimate of a part."""
        return {CHECKS: 1, CORE: 10}.get(part, 0) + sum(folder.minutes for folder in self.parts.get(part, []))

    def report_not_run(self, status: int, collected: str, ran: Path) -> None:
        """Print how many tests of `--changed` the core did not run, by folder."""
        if status not in (0, NO_TESTS):
            print(
                "!!! --changed would fail, for not all of its tests can be collected:",
                *collected.splitlines()[-20:],
                sep="\n",
            )
        done = set(ran.read_text().splitlines()) if ran.exists() else set()
        names = {line for line in collected.splitlines() if re.match(r"tests/\w+/test_\w+\.py::", line)} - done
        by_folder = Counter(name.split("/")[1] for name in names)
        rows = ", ".join(f"{folder} {many}" for folder, many in by_folder.most_common())
        since = (
            f"what changed since {self.base[:9]} touches" if self.base else f"without a base in {NAME} it is everything"
        )
        print(f"Not run: {len(names)} tests of scripts/test --changed ({since}): {rows}")

    def _report_plan(self) -> None:
        self.run.title(f"what changed since {self.base[:9]}" if self.base else f"no base in {NAME}: everything")
        for name, path in self.folders.items():
            print(f"   tests/{name} ({self.watches.folders[name].part}): {path}")
        print(f"   about {sum(map(self.minutes, [CHECKS, CORE, *self.parts])):.0f} minutes on two cores", flush=True)

    def _run_part(self, part: str) -> bool:
        before = len(self.run.failed)
        if part == CHECKS:
            checks(self.run)
        elif part == CORE:
            core_tests(self.run, self.folders)
        else:
            for folder in self.parts[part]:
                whole_folder(self.run, folder, self.watches, self.env)
        return len(self.run.failed) == before


def checks(run: Run) -> None:
    """Run the static checks and both type checkers."""
    if static_checks(run):
        run.beside("types: mypy", "mypy")
        run.step("types: pyright", "pyright")
        run.finish("types: mypy")


# --full


def full(run: Run, chosen: list[str]) -> int:
    """Run these parts, or all that are due, each at every point, and record each by itself in docs/proofs.json."""
    watches = Watches.load()
    names = chosen or list(proofs.due_parts())
    for part in names:
        before, records = len(run.failed), run.folder / f"proofs-{part}"
        records.touch()
        reported = {"ORCH_PROOF_REPORT": str(records)}
        if part == CHECKS:
            checks(run)
        elif part in watches.mutated:
            run.step(f"faults: {part}", "python", "scripts/mutants.py", part, env=reported)
        else:
            for folder in parts_of(watches)[part]:
                whole_folder(run, folder, watches, {"ORCH_LANE": "full", **reported})
        if len(run.failed) == before:
            if proofs.add(records, part):
                run.failed.append(f"record of {part}")
        else:
            kept = ROOT / ".pytest_cache" / records.name
            kept.parent.mkdir(exist_ok=True)
            shutil.copy(records, kept)
            run.title(f"{part} is not recorded, because something failed; its counts are in {kept.relative_to(ROOT)}")
    return closing(run, f"--full {' '.join(names)}")


# Folders and steps


def whole_folder(run: Run, folder: Folder, watches: Watches, env: dict[str, str]) -> None:
    """Run all tests of a folder that the lane has, and compare the files that its processes opened with its row."""
    opened = run.folder / f"opened-{folder.name}"
    opened.touch()
    env = {**env, "PYTEST_OPENED_FILES": str(opened)}
    for stack, files in split_by_stack(sorted((ROOT / "tests" / folder.name).glob("test_*.py"))).items():
        if stack:
            prepare_stack(run, stack)
        # A stack's files run in separate processes: JAX is multi-threaded from its import on, and many tests fork.
        workers = 2 if stack else min(5, len(files) + 1)
        name, may_be_empty = f"{folder.name} {stack}".strip(), env["ORCH_LANE"] == CHANGED  # all may be marked `full`
        tests(run, name, *pytest(workers), *map(str, files), env=env, may_be_empty=may_be_empty)
    missing = watches.missing(folder.name, opened.read_text().splitlines())
    if missing:
        run.failed.append(f"tests/watches.toml: tests/{folder.name} does not watch what its processes open")
        print(f"tests/watches.toml: add to [folders.{folder.name}] what covers", *missing[:40], sep="\n   ", flush=True)


def split_by_stack(files: list[Path]) -> dict[str, list[Path]]:
    """Return the files of each stack, and those of none under ""."""
    found: dict[str, list[Path]] = {}
    for file in files:
        stack = re.search(r"mark\.(jax|xla)\b", file.read_text("utf-8"))
        found.setdefault(stack[1] if stack else "", []).append(file)
    return dict(sorted(found.items()))


def prepare_stack(run: Run, stack: str) -> None:
    """Make the environments of the TPU compiler and of torch_xla. Without one, its tests are skipped."""
    for seconds, script in ((300, "scripts/tpu-compiler"), *([(900, "scripts/xla-env")] if stack == "xla" else [])):
        if not run.step(script, "timeout", str(seconds), script):
            run.failed.remove(script)
            run.title("a stack is missing, and its tests are skipped: read above why")


def pytest(workers: int = 0) -> list[str]:
    parallel = ["-n", str(workers), "--dist", "loadgroup", "--no-loadscope-reorder"] if workers else []
    return ["python", "-m", "pytest", *parallel]


def tests(run: Run, name: str, *command: str, env: dict[str, str], may_be_empty: bool = False) -> bool:
    before = run.elapsed
    succeeded = run.step(f"tests: {name}", *command, env=env, allowed=(NO_TESTS,) if may_be_empty else ())
    run.summaries.append(f"{name}: {'green' if succeeded else 'RED'} in {run.elapsed - before:.0f} s")
    return succeeded


def parts_of(watches: Watches) -> dict[str, list[Folder]]:
    """Return the folders of each part of the full lane."""
    parts: dict[str, list[Folder]] = {}
    for folder in watches.folders.values():
        parts.setdefault(folder.part, []).append(folder)
    return parts


def closing(run: Run, lane: str) -> int:
    run.title(f"done: {lane}")
    print(*run.summaries, sep="\n")
    for name in run.failed:
        print(f"FAILED: {name}")
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
