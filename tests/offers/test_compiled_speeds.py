"""A step that was compiled has its speed from that, after own runs of the same step and before the table.

data/compiled_v5e.json is what `orch plan --compile` kept for TASK on 2026-11-27, with libtpu 0.0.43.2. Identity of the
step and digest of the trainer are of that day's trainer: tests write those of today's into it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support.orch_process import Orch

from orchestrator.catalog.accelerators import resolve
from orchestrator.engine.training.compiled_steps import (
    digest_trainer,
    keep_answer,
    load_compiled_speeds,
    read_answer,
)
from orchestrator.engine.training.kept_speeds import keep_speeds, load_speeds
from orchestrator.engine.training.machine_advice import MachineKind, describe_hardware, request_advice
from orchestrator.engine.training.offers import list_offers
from orchestrator.engine.training.work import read_training
from orchestrator.offers.offers import Offer, OfferRequest
from orchestrator.offers.own_speeds import OwnSpeed
from orchestrator.offers.predictions import make_estimate
from orchestrator.offers.speed_choice import SpeedSource, read_compiled_speed
from orchestrator.paths import load_paths
from orchestrator.slices import Candidate, OnDemand

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "compiled_v5e.json").read_text())
WORDS = ("model=tiny", "batch=8", "seq_len=128")
OFFERS = ("offers", *WORDS, "--tokens", "100M", "--only", "v5litepod-4,on-demand", "-o", "json")
TASK = f"""
resources: {{infra: gcp, accelerators: v5litepod-4}}
train:
  args: {{{", ".join(word.replace("=", ": ") for word in WORDS)}, steps: 97657}}
"""


@pytest.fixture
def plan(tmp_path: Path) -> Callable[[], dict[str, Any]]:
    """Return the trainer's advice of the task's plan."""
    task = tmp_path / "task.yaml"
    task.write_text(TASK)
    orch = Orch(tmp_path)
    schema = json.loads(files("orchestrator.plan").joinpath("data", "plan.schema.json").read_text())

    def read() -> dict[str, Any]:
        found = json.loads(orch.ok("plan", str(task), "-o", "json"))
        jsonschema.validate(found, schema)
        return dict(found["advice"][0])

    return read


def keep(folder: Path, **changes: Any) -> None:
    """Write the recorded answer where orch keeps such ones."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "0123.json").write_text(json.dumps(RECORDED | {"trainer": digest_trainer()} | changes))


def test_offers_and_plan_name_the_compilation_of_exactly_this_step(
    tmp_path: Path, plan: Callable[[], dict[str, Any]]
) -> None:
    orch = Orch(tmp_path)
    folder, identity = orch.state / "compiled", plan()["step"]
    (table,) = json.loads(orch.ok(*OFFERS))["offers"]
    assert table["speed_origin"] == "published" and "speed" not in plan()
    keep(folder, identity=identity)
    document = json.loads(orch.ok(*OFFERS))
    jsonschema.validate(
        document, json.loads(files("orchestrator.cli").joinpath("data", "offers.schema.json").read_text())
    )
    (found,) = document["offers"]
    assert found["speed_origin"] == "compiled"
    assert found["speed_source"].startswith("compiled for v5e:2x2 on 2026-11-27: libtpu's estimate")
    assert found["seconds"]["typical"] != table["seconds"]["typical"]
    assert "compiled" in orch.ok(*OFFERS[:-2]).splitlines()[1]
    planned = plan()
    timing = RECORDED["timing"]
    assert planned["speed"]["origin"] == "compiled" and planned["timing"]["source"].startswith("MaxText")
    assert planned["speed"]["step_seconds"] == {name: timing[name] for name in ("low", "typical", "high")}
    assert planned["text"][-1].startswith("speed    about 0.00") and "compiled for v5e:2x2" in planned["text"][-1]
    keep(folder, identity=identity, trainer="of another version")
    assert json.loads(orch.ok(*OFFERS))["offers"] == [table] and "speed" not in plan()
    keep(folder, identity=identity)
    other = (word.replace("batch=8", "batch=16") for word in OFFERS)
    (larger,) = json.loads(orch.ok(*other))["offers"]
    assert larger["speed_origin"] == "published", "another batch is another step"


def test_own_runs_of_the_step_go_before_its_compilation_and_like_ones_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCH_HOME", str(tmp_path))
    work, request = read_training(WORDS, tokens=1e8), OfferRequest(only=("v5litepod-4", "on-demand"))
    settings = "engine=jax dtype=bf16 exact=false compile=false remat=none accumulate=1"

    def find(*speeds: OwnSpeed) -> Offer:
        (found,) = list_offers(work, request, speeds=speeds)
        return found

    machine = resolve("v5litepod-4")
    kind = MachineKind(describe_hardware(machine, nodes=1, hosts=1, kind="tpu"), work.settings)
    (advice,) = request_advice([kind], fastest=True)
    like = OwnSpeed(run_id="a", day="2026-11-20", chip="v5e", settings=settings, flops_per_token=4e6, ratio=0.5)
    same = replace(like, run_id="b", step=advice["step"])
    assert find(like).speed_origin is SpeedSource.LIKE_RUNS
    keep(load_paths().state / "compiled", identity=advice["step"])
    assert find(like).speed_origin is find().speed_origin is SpeedSource.COMPILED
    own = find(like, same)
    assert own.speed_origin is SpeedSource.OWN_RUNS and "of this step" in own.speed_source
    keep_speeds([same])
    assert load_speeds() == (same,)


@pytest.mark.parametrize(
    "change",
    [
        {"fits": False},
        {"timing": None},
        {"identity": ""},
        {"identity": 3},
        {"timing": {**RECORDED["timing"], "low": 9.0}},
        {"timing": {**RECORDED["timing"], "high": float("inf")}},
        {"timing": {**RECORDED["timing"], "high": 10**400}},
        {"timing": {**RECORDED["timing"], "typical": True}},
    ],
)
def test_an_answer_without_a_time_says_nothing(change: dict[str, Any]) -> None:
    assert read_compiled_speed(RECORDED) is not None
    assert read_compiled_speed({**RECORDED, **change}) is None


def test_a_kept_answer_is_private_and_a_broken_one_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_HOME", str(tmp_path))
    assert load_compiled_speeds() == {}
    keep_answer("ab", RECORDED)
    (file,) = tmp_path.rglob("compiled/*.json")
    assert file.stat().st_mode & 0o077 == 0 and list(load_compiled_speeds()) == [RECORDED["identity"]]
    for text in ("", "[", "[]", "3"):
        file.write_text(text)
        assert load_compiled_speeds() == {}


def test_the_newest_answer_for_a_step_counts_whatever_its_file_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCH_HOME", str(tmp_path))
    folder = tmp_path / "state" / "compiled"
    for key, day in (("aa", "2026-11-27"), ("zz", "2026-11-01")):
        keep_answer(key, RECORDED)
        file = folder / f"{key}.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"day": day}))
    for key, age in (("aa", 0), ("zz", 60)):
        os.utime(folder / f"{key}.json", (0, 1_800_000_000 - age))
    (speed,) = load_compiled_speeds().values()
    assert "on 2026-11-27" in speed.source
    os.utime(folder / "zz.json", (0, 1_800_000_060))
    (speed,) = load_compiled_speeds().values()
    assert "on 2026-11-01" in speed.source


def test_only_the_five_hundred_newest_answers_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_HOME", str(tmp_path))
    keep_answer("ab", RECORDED)
    (file,) = tmp_path.rglob("compiled/*.json")
    os.utime(file, (0, 1_000_000_000))
    for number in range(499):
        (file.parent / f"{number}.json").write_text("{}")
    assert load_compiled_speeds()
    (file.parent / "499.json").write_text("{}")
    assert load_compiled_speeds() == {}


def test_an_answer_of_more_than_a_mebibyte_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_HOME", str(tmp_path))
    keep_answer("ab", RECORDED)
    (file,) = tmp_path.rglob("compiled/*.json")
    whole = file.read_text()
    for size, is_read in ((1 << 20, True), ((1 << 20) + 1, False)):
        file.write_text(whole.ljust(size))
        assert (read_answer("ab") is not None) is bool(load_compiled_speeds()) is is_read


def test_a_launch_records_the_identity_of_its_step() -> None:
    advice = {
        "hardware": {"name": "v5litepod-4", "chip": "v5e", "devices": 4},
        "timing": {"seconds": [0.1, 0.2], "tokens": 1024, "flops": 1e12, "source": "table"},
        "step": "abc",
    }
    candidate = Candidate(
        provider="gcp", accelerator="v5litepod-4", hosts=1, chips_per_host=4, market=OnDemand(), region="", zone=""
    )
    assert make_estimate([advice], [candidate])["machines"]["v5litepod-4"]["step"] == "abc"
