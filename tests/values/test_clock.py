"""The clock that counts limits: neither a changed setting of this computer nor a restart of orch moves it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from orchestrator.clock import ANCHOR_FILE, SteadyClock, read_date

DAYS = 2 * 86400.0


class Setting:
    """The clock of this computer as it is set."""

    ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


@pytest.mark.parametrize("jump", [DAYS, -DAYS])
def test_a_changed_setting_moves_neither_this_process_nor_the_next(tmp_path: Path, jump: float) -> None:
    setting = Setting()
    first = SteadyClock(tmp_path, setting).keep()
    setting.ahead = jump
    assert abs(first.now() - time.time()) < 1
    later = SteadyClock(tmp_path, setting)
    assert abs(later.now() - time.time()) < 1
    assert later.skew() == pytest.approx(jump, abs=1)


def test_a_server_corrects_it_for_all_processes_and_leases_do_not_move(tmp_path: Path) -> None:
    setting = Setting()
    setting.ahead = DAYS
    first = SteadyClock(tmp_path, setting)
    before = first.uncorrected()
    first.learn(time.time())
    later = SteadyClock(tmp_path, setting)
    for clock in (first, later):
        assert abs(clock.now() - time.time()) < 1
        assert clock.uncorrected() == pytest.approx(before, abs=5)
        assert clock.skew() == pytest.approx(DAYS, abs=1)


def test_less_than_a_minute_is_no_reason_to_correct(tmp_path: Path) -> None:
    clock = SteadyClock(tmp_path)
    clock.learn(time.time() + 45)
    assert abs(clock.now() - time.time()) < 1
    assert clock.skew() == 0.0


@pytest.mark.parametrize("content", ["", "[]", '{"boot": "another", "utc_at_boot": 1.0, "correction": 0.0}'])
def test_after_a_boot_or_damage_it_begins_with_the_setting(tmp_path: Path, content: str) -> None:
    (tmp_path / ANCHOR_FILE).write_text(content)
    assert abs(SteadyClock(tmp_path).keep().now() - time.time()) < 1
    assert json.loads((tmp_path / ANCHOR_FILE).read_text())["correction"] == 0.0


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert abs(SteadyClock(tmp_path / "file" / "state").keep().now() - time.time()) < 1


def test_only_a_date_header_is_a_time() -> None:
    assert read_date("Mon, 23 Nov 2026 11:00:00 GMT") == 1795431600.0
    assert [read_date(text) for text in ("", "soon", "Mon, 99 Nov 2026 11:00:00 GMT")] == [None, None, None]


def test_a_preview_writes_nothing(tmp_path: Path) -> None:
    assert abs(SteadyClock(tmp_path).now() - time.time()) < 1
    assert list(tmp_path.iterdir()) == []
