"""Own runs go before the table of published speeds: of the same chip, with the same settings, of a like size."""

from __future__ import annotations

import json
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engine.preparation.candidates import restore_offer
from orchestrator.engine.training.automatic import MachineChooser
from orchestrator.engine.training.kept_speeds import keep_speeds, load_speeds
from orchestrator.engine.training.offers import list_offers
from orchestrator.engine.training.work import read_training
from orchestrator.offers.offers import Offer, OfferRequest
from orchestrator.offers.own_speeds import OwnSpeed, find_like_runs, measure_ratio, read_speeds
from orchestrator.task.parse import TaskFile, parse_task

SETTINGS = "engine=jax dtype=bf16 exact=false compile=false remat=none accumulate=several"
OWN = OwnSpeed(run_id="mine-1", day="2026-11-20", chip="v6e", settings=SETTINGS, flops_per_token=6e9, ratio=0.8)


def test_the_spread_of_own_runs_is_the_range_and_one_alone_is_less_certain() -> None:
    runs = [replace(OWN, run_id=f"mine-{ratio}", ratio=ratio) for ratio in (0.8, 0.9, 1.1)]
    several, one = find_like_runs(runs, "v6e", SETTINGS, 8e9), find_like_runs([OWN], "v6e", SETTINGS, 8e9)
    assert several is not None and one is not None
    assert (several.low, several.typical, several.high) == pytest.approx((0.8 / 1.15, 0.9, 1.1 * 1.15))
    assert several.source.startswith("3 own runs on v6e with these settings, 0.80 to 1.10 times")
    assert one.high / one.low == pytest.approx(1.3**2) and one.source.startswith("1 own run on v6e")


@pytest.mark.parametrize(
    ("chip", "settings", "flops"),
    [
        ("v5e", SETTINGS, 6e9),
        ("v6e", SETTINGS.replace("remat=none", "remat=full"), 6e9),
        ("v6e", SETTINGS.replace("bf16", "fp32"), 6e9),
        ("v6e", SETTINGS.replace("exact=false", "exact=true"), 6e9),
        ("v6e", SETTINGS.replace("several", "1"), 6e9),
        ("v6e", SETTINGS, 60e9),
    ],
)
def test_other_chips_settings_and_sizes_say_nothing(chip: str, settings: str, flops: float) -> None:
    assert find_like_runs([OWN], "v6e", SETTINGS, 6e9) is not None
    assert find_like_runs([OWN], chip, settings, flops) is None


def test_a_run_is_compared_with_the_middle_of_its_own_estimate() -> None:
    machines = {"chip": "v6e", "settings": SETTINGS, "flops_per_token": 6e9, "tokens_per_s": {"typical": 1000.0}}
    made = measure_ratio({"machines": {"v6e-8": machines}}, "v6e-8", 800.0, run_id="mine-1", day="2026-11-20")
    assert made == OWN
    odd: tuple[dict[str, Any], ...] = (
        {},
        {"machines": [1]},
        {"machines": {"v6e-8": {"tokens_per_s": {"typical": "x"}}}},
    )
    for estimate in odd:
        assert measure_ratio(estimate, "v6e-8", 800.0, run_id="mine-1", day="2026-11-20") is None
    assert measure_ratio({"machines": {"v6e-8": machines}}, "v6e-8", None, run_id="mine-1", day="") is None
    older = {key: value for key, value in machines.items() if key != "settings"}  # of an orch before these
    assert measure_ratio({"machines": {"v6e-8": older}}, "v6e-8", 800.0, run_id="mine-1", day="") is None


def test_what_is_kept_is_read_again_and_a_broken_file_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_HOME", str(tmp_path))
    assert load_speeds() == ()
    keep_speeds([OWN, replace(OWN, run_id="mine-2", day="2026-11-21")])
    keep_speeds([replace(OWN, ratio=0.9)])
    assert [(one.run_id, one.ratio) for one in load_speeds()] == [("mine-2", 0.8), ("mine-1", 0.9)]
    (file,) = tmp_path.rglob("speeds.json")
    assert file.stat().st_mode & 0o077 == 0
    for text in ("", "[", "{}", '[1, {"run_id": 3}]', json.dumps([OWN.as_json() | {"ratio": float("nan")}])):
        file.write_text(text)
        assert load_speeds() == ()
    assert read_speeds([OWN.as_json() | {"ratio": 90.0}]) == (), "no run is so much faster than its chip"


def test_offers_name_the_runs_and_take_their_speed() -> None:
    work, request = read_training((), model="1b", tokens=2e9), OfferRequest(only=("v6e-8", "spot"))

    def find(*speeds: OwnSpeed) -> Offer:
        (found,) = list_offers(work, request, speeds=speeds)
        return found

    table = find()
    own = find(replace(OWN, settings=SETTINGS))
    assert "MaxText" in table.speed_source and "1 own run on v6e" in own.speed_source
    assert own.step_seconds.typical == pytest.approx(table.step_seconds.typical / 0.8)
    assert own.step_seconds.high / own.step_seconds.low < table.step_seconds.high / table.step_seconds.low
    other = find(replace(OWN, settings=SETTINGS.replace("several", "1")))
    assert other.speed_source == table.speed_source


def test_speeds_of_own_runs_are_used_said_and_recorded_with_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCH_HOME", str(tmp_path))
    text = """
    resources: {accelerators: auto, auto: {tokens: 2B, only: [spot, v6e-8]}}
    train: {args: {model: 1b}}
    """

    def choose(project: str | None) -> TaskFile:
        chooser = MachineChooser(clouds=(), now=time.time(), project=project)
        return parse_task(textwrap.dedent(text), file="task.yaml", env={}, choose_machines=chooser)

    def find(file: TaskFile) -> Offer:
        offer = restore_offer(file.only.split()[0])
        assert offer is not None
        return offer

    table = choose("")
    assert any(note.startswith("auto: speed of v6e-8: MaxText") for note in table.notes)
    keep_speeds([replace(OWN, ratio=0.5)])
    own = choose("")
    assert any(note.startswith("auto: speed of v6e-8: 1 own run on v6e") for note in own.notes), own.notes
    assert find(own).seconds.typical > 1.5 * find(table).seconds.typical
    assert "1 own run" in find(own).speed_source
    assert choose(None).only == table.only, "nothing is read where a service elsewhere runs it"
