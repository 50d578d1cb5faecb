"""Checks are done at once, each for so long and no longer, and told in their own order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import AccessError, CloudError
from orchestrator.exits import Exit
from orchestrator.providers.checks import Check, Finding, Outcome, Verdict, choose_exit_status, ok, run_checks


class Notes:
    def __init__(self) -> None:
        self.told: list[tuple[tuple[str, ...], int, int]] = []

    def __call__(self, running: Sequence[str], done: int, total: int) -> None:
        self.told.append((tuple(running), done, total))


def test_all_at_once_and_told_in_their_own_order() -> None:
    together = threading.Barrier(3, timeout=10)

    def check(name: str) -> Check:
        def work() -> Outcome:
            together.wait()
            time.sleep(0.05 if name == "a" else 0)
            return ok(name, "fine")

        return Check(name, work)

    assert [one.check for one in run_checks([check("a"), check("b"), check("c")], Notes())] == ["a", "b", "c"]


def test_what_a_check_makes_possible_comes_after_it() -> None:
    more = Check("more", lambda: ok("more", "fine"))
    first = Check("first", lambda: Outcome(ok("first", "fine").findings, (more, more)))
    notes = Notes()
    found = run_checks([first, Check("last", lambda: ok("last", "fine"))], notes)
    assert [one.check for one in found] == ["first", "more", "more", "last"]
    assert notes.told[0] == (("first", "last"), 0, 2)
    assert notes.told[-1][1:] == (3, 4)


def test_one_that_hangs_is_left_alone() -> None:
    never = threading.Event()

    def hang() -> Outcome:
        never.wait(30)
        return ok("hangs", "too late")

    began = time.monotonic()
    found = run_checks([Check("hangs", hang, seconds=0.3), Check("b", lambda: ok("b", "fine"))], Notes())
    assert time.monotonic() - began < 5
    never.set()
    assert [(one.check, one.verdict, one.status) for one in found] == [
        ("hangs", Verdict.UNKNOWN, Exit.TIMEOUT),
        ("b", Verdict.OK, Exit.OK),
    ]


def test_an_error_is_a_finding_and_a_fault_of_ours_is_not() -> None:
    def refuse() -> Outcome:
        raise AccessError("no", "because", "do this")

    def fail() -> Outcome:
        raise CloudError("no answer")

    found = run_checks([Check("a", refuse), Check("b", fail)], Notes())
    assert found[0] == Finding(
        check="a", verdict=Verdict.FIX, words="no: because", fix="do this", status=Exit.PERMISSION
    )
    assert (found[1].verdict, found[1].fix) == (Verdict.UNKNOWN, "run the same command again")

    def bug() -> Outcome:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_checks([Check("bug", bug)], Notes())


def test_what_has_to_be_mended_decides_before_what_is_not_known() -> None:
    def finding(verdict: Verdict, status: int) -> Finding:
        return Finding(check="x", verdict=verdict, words="", fix="", status=status)

    fine, open_, wrong = finding(Verdict.OK, 0), finding(Verdict.UNKNOWN, 124), finding(Verdict.FIX, 4)
    assert choose_exit_status([fine, open_, wrong, finding(Verdict.FIX, 5)]) == 4
    assert choose_exit_status([fine, open_]) == 0
    assert choose_exit_status([fine, finding(Verdict.UNUSED, 0)]) == 0


def test_this_computer(orch: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = orch("check", "local", "-o", "json")
    assert (said.status, list(said.findings())) == (0, ["sshd", "folder", "ports"])
    assert {one["verdict"] for one in said.findings().values()} == {"ok"}
    monkeypatch.setenv("ORCH_SSHD", "/nowhere/sshd")
    (tmp_path / "orch").mkdir()
    (tmp_path / "orch" / "state").write_text("in the way")
    said = orch("check", "local", "-o", "json")
    found = said.findings()
    assert (said.status, [one["verdict"] for one in found.values()]) == (2, ["fix", "fix", "ok"])
    assert "/nowhere/sshd" in found["sshd"]["words"]
    assert found["folder"]["words"].endswith("orch/state is not a folder")
    assert "ORCH_HOME" in found["folder"]["fix"]
