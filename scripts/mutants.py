#!/usr/bin/env python3
"""Put a fixed sample of faults into a part of the product, one at a time, and see whether its tests notice them.

scripts/mutants.py PART [COUNT]            the first COUNT faults of the sample; without COUNT all 200
scripts/mutants.py PART COUNT FOLDER...    the faults that no test noticed so far, against other folders of tests

It ends with 1 when a fault that no test notices is not in tests/mutants.toml, and prints the row that is missing. The
faulty file is mounted over the product's file in a mount namespace, which needs root. Only that run of the tests sees
it: the checkout stays as it is. Results are kept in .pytest_cache/mutants. A run continues where it was stopped, and
tries a fault of an earlier run first with the test that noticed it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from watches import MutatedPart, Watches

if TYPE_CHECKING:
    from mutations import Mutant

ROOT = Path(__file__).resolve().parent.parent
TOOL = ROOT / ".venv-mutants"  # only cosmic-ray and its parser, beside .venv
LOCK = ROOT / "requirements" / "mutants.lock"
LISTED = ROOT / "tests" / "mutants.toml"
COUNT, GOAL, WORKERS = 200, 0.9, 2
MEMORY = 6 << 20  # KiB of data of one process: a fault may allocate without end
OF_THE_LANE = ("ORCH_LANE", "ORCH_CHANGED_PATHS", "ORCH_RAN_TESTS", "ORCH_PROOF_REPORT", "PYTEST_OPENED_FILES")
NOT_MOUNTED = 99
MOUNT = f'ulimit -t "$0" && ulimit -d {MEMORY} && mount --bind "$1" "$2" || exit {NOT_MOUNTED}; shift 2; exec "$@"'
GREEN, RED, NO_TESTS = 0, 1, 5  # statuses of pytest


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of one fault.

    Attributes:
        id: Of the fault; empty for the tests without a fault.
        digest: Of the product's files and the tests that ran.
        noticed: Whether a test failed.
        test: The test that failed first, or how the run ended before one had failed; empty where none did.
        seconds: Of the processor, for the tests without a fault.
    """

    id: str
    digest: str
    noticed: bool
    test: str
    seconds: float


@dataclass
class Trial:
    """The tests of some folders, run over the faults of one part."""

    part: MutatedPart
    folders: Sequence[str]
    results: dict[str, Result] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.record = ROOT / ".pytest_cache" / "mutants" / f"{'-'.join([self.part.name, *self.folders])}.jsonl"
        self.record.parent.mkdir(parents=True, exist_ok=True)
        for line in self.record.read_text().splitlines() if self.record.exists() else []:
            result = Result(**json.loads(line))
            self.results[result.id] = result
        modules = sorted(path for folder in self.folders for path in (ROOT / "tests" / folder).glob("*.py"))
        self.texts = {str(path): path.read_text("utf-8") for path in modules if path.name.startswith("test_")}
        product = (ROOT / name for name in list_files(self.part))
        self.digest = sha256(b"".join(path.read_bytes() for path in [*product, *modules])).hexdigest()[:12]

    def check_green(self) -> bool:
        """Return whether the tests are green where a file without a fault is mounted in the same way."""
        if self.is_current(""):
            return True
        began = sum(os.times()[2:4])
        status, output = run_tests(self.texts, make_unchanged(list_files(self.part)[0]))
        if status not in (GREEN, NO_TESTS):
            print(output, "the tests fail without any fault: fix them first", sep="\n", file=sys.stderr)
            return False
        self._keep("", False, "", sum(os.times()[2:4]) - began)
        return True

    def is_current(self, id: str) -> bool:
        """Return whether a fault was tried before, in the same files and with the same tests."""
        return id in self.results and self.results[id].digest == self.digest

    def try_fault(self, mutant: Mutant) -> Result:
        """Run the test that noticed a fault before, those that are likely to, then the others, and keep the result."""
        if self.is_current(mutant.id):
            return self.results[mutant.id]
        limit = 2 * self.results[""].seconds + 20
        before = self.results.get(mutant.id)
        if before and before.test.startswith("tests/") and run_tests([before.test], mutant, limit)[0] == RED:
            return self._keep(mutant.id, True, before.test)
        stem = re.escape(Path(mutant.file).name.partition(".")[0])
        near = [name for name, text in self.texts.items() if re.search(rf"\b{stem}\b", text)]
        for tests in (near, [name for name in self.texts if name not in near]):
            status, output = run_tests(tests, mutant, limit) if tests else (NO_TESTS, "")
            if status not in (GREEN, NO_TESTS):
                match = re.search(r"^(?:FAILED|ERROR) (tests/\S+?\.py(?:::\w+)*)", output, re.M)
                return self._keep(mutant.id, True, match[1] if match else f"pytest ended with {status}")
        return self._keep(mutant.id, False, "")

    def _keep(self, id: str, noticed: bool, test: str, seconds: float = 0.0) -> Result:
        result = Result(id=id, digest=self.digest, noticed=noticed, test=test, seconds=round(seconds, 1))
        self.results[id] = result
        with self.record.open("a") as file:
            file.write(json.dumps(vars(result)) + "\n")
        return result


def main(words: list[str]) -> int:
    parts = Watches.load(ROOT).mutated
    if not words or words[0] not in parts or not all(word.isdigit() for word in words[1:2]):
        print(f"{__doc__}\nParts: {', '.join(parts)}", file=sys.stderr)
        return 2
    if os.geteuid() != 0:
        print("scripts/mutants.py mounts files, which needs root: run it as root", file=sys.stderr)
        return 1
    install_tool()
    from mutations import draw_sample

    part, count, folders = parts[words[0]], int(words[1]) if words[1:] else COUNT, words[2:]
    trial = Trial(part, folders or part.tests)
    noticed = {id for id, result in Trial(part, part.tests).results.items() if result.noticed and folders}
    sample = [mutant for mutant in draw_sample(ROOT, list_files(part), count) if mutant.id not in noticed]
    if not trial.check_green():
        return 1
    with ThreadPoolExecutor(WORKERS) as pool:
        for number, (mutant, result) in enumerate(zip(sample, pool.map(trial.try_fault, sample), strict=True), 1):
            print(f"{number}/{len(sample)} {describe(mutant)}: {result.test or 'NOT NOTICED'}", flush=True)
    return conclude(part, {mutant.id: mutant for mutant in sample}, trial.results)


def conclude(part: MutatedPart, sample: dict[str, Mutant], results: dict[str, Result]) -> int:
    """Print and report the counts, and the faults that are neither noticed nor listed."""
    rows: dict[str, Any] = {row["id"]: row for row in tomllib.loads(LISTED.read_text("utf-8")).get("mutant", [])}
    unseen = [id for id in sample if not results[id].noticed]
    elsewhere = [id for id in unseen if id in rows and "test" in rows[id] and notices(rows[id]["test"], sample[id])]
    equivalent = [id for id in unseen if id in rows and "equivalent" in rows[id]]
    missing = [id for id in unseen if id not in elsewhere and id not in equivalent]
    listed_wrong = [id for id in sample if id in rows and id not in unseen]
    noticed = len(sample) - len(equivalent) - len(missing)
    counts = {"faults": len(sample), "noticed": noticed, "without effect": len(equivalent)}
    line = json.dumps({"name": part.proof, "counts": counts, "violations": len(missing)}, ensure_ascii=False)
    print(line)
    path = os.environ.get("ORCH_PROOF_REPORT", "")
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(line + "\n")
    for id in missing:
        fault = json.dumps(describe(sample[id]), ensure_ascii=False)
        print(f'\n[[mutant]]\nid = "{id}"\nfault = {fault}\nequivalent = "because ..."')
    for id in listed_wrong:
        print(f"tests/mutants.toml: delete {id}, which {results[id].test} notices")
    enough = noticed >= GOAL * len(sample)
    print(f"{noticed} of {len(sample)} noticed" + ("" if enough else f": fewer than {GOAL:.0%}"))
    return 1 if missing or listed_wrong or not enough else 0


def describe(mutant: Mutant) -> str:
    return f"{mutant.file}:{mutant.line} {mutant.operator}: {mutant.before.splitlines()[0]} -> {mutant.after}"


def notices(test: str, mutant: Mutant) -> bool:
    """Return whether a test fails with the fault, and is green without it."""
    return run_tests([test], mutant)[0] == RED and run_tests([test])[0] == GREEN


def make_unchanged(file: str) -> Mutant:
    """Return a fault that is none."""
    from mutations import Mutant

    text = (ROOT / file).read_text("utf-8")
    return Mutant(id="0", file=file, operator="", line=0, before="", after="", text=text)


def list_files(part: MutatedPart) -> list[str]:
    return sorted({str(path.relative_to(ROOT)) for name in part.files for path in ROOT.glob(name) if path.is_file()})


def run_tests(tests: Iterable[str], mutant: Mutant | None = None, limit: float = 3600) -> tuple[int, str]:
    """Return the status and the output of the tests up to the first failure.

    Args:
        tests: Files or names.
        mutant: The fault that they meet.
        limit: Seconds of the processor for each process, which end a loop without end; pytest ends a wait without end.
    """
    command = [sys.executable, "-m", "pytest", "-x", "-rfE", "--tb=no", "-p", "no:cacheprovider", *tests]
    env = {name: value for name, value in os.environ.items() if name not in OF_THE_LANE}
    with tempfile.TemporaryDirectory(prefix="orch-mutant-") as folder:
        if mutant is not None:
            target, changed = ROOT / mutant.file, Path(folder) / "changed"
            changed.write_text(mutant.text, "utf-8")
            changed.chmod(target.stat().st_mode)
            moment = int(mutant.id, 16) % (1 << 30)  # by its time and size Python knows a file that is compiled
            os.utime(changed, (moment, moment))
            command = ["unshare", "--mount", "sh", "-c", MOUNT, str(round(limit)), str(changed), str(target), *command]
        printed = Path(folder) / "printed"  # no pipe: processes that the tests leave would keep it open
        with printed.open("w") as file:
            done = subprocess.run(command, cwd=ROOT, env=env, stdout=file, stderr=subprocess.STDOUT, check=False)
        text = printed.read_text("utf-8", "replace")
    if done.returncode == NOT_MOUNTED:
        raise OSError(f"{mutant.file if mutant else ''} cannot be mounted: {text}")
    return done.returncode, text


def install_tool() -> None:
    """Install cosmic-ray's operators where the lock file changed, and put them on the path of this process."""
    mark, digest = TOOL / "complete", sha256(LOCK.read_bytes()).hexdigest()
    if not mark.exists() or mark.read_text() != digest:
        options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes", "--upgrade"]
        pip = [sys.executable, "-m", "pip", "install", *options, "--target", str(TOOL), "-r", str(LOCK)]
        subprocess.run(pip, check=True)
        mark.write_text(digest)
    sys.path.append(str(TOOL))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
