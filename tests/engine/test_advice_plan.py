"""`orch plan` of a training: what it needs and costs, from the trainer itself; impossible settings are refused."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from orchestrator.__main__ import main
from orchestrator.engine.loop.job_opening import record_estimate
from orchestrator.engine.preparation.commands import prepare_launch
from orchestrator.engine.training import compilation
from orchestrator.engine.training.advice import DoesNotFit, add_advice, replace_estimate
from orchestrator.errors import NotFoundError
from orchestrator.offers.predictions import QUANTITIES
from orchestrator.paths import load_paths
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.store.read import Reader
from orchestrator.store.store import Store
from orchestrator.task.config import load_config
from orchestrator.task.parse import parse_task

ROOT = Path(__file__).resolve().parents[2]
TASK = """
name: big
resources:
  infra: gcp
  accelerators: v5litepod-16
train:
  args: {model: 1b, batch: 64, dtype: bf16, remat: "true", model.vocab: "32000", steps: 1000}
"""
SIMPLE = """
resources:
  infra: local:1
run: echo hello
"""


@dataclass(frozen=True)
class Said:
    status: int
    out: str
    err: str


@pytest.fixture
def orch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    for name in list(os.environ):
        if name.startswith("ORCH_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ORCH_HOME", str(tmp_path / "orch"))
    (tmp_path / "elsewhere" / "trainer").mkdir(parents=True)
    (tmp_path / "elsewhere" / "trainer" / "__init__.py").touch()
    (tmp_path / "elsewhere" / "trainer" / "__main__.py").write_text("raise SystemExit('the wrong trainer')\n")
    monkeypatch.chdir(tmp_path / "elsewhere")

    def run(*words: str) -> Said:
        status = main(words)
        said = capsys.readouterr()
        return Said(status, said.out, said.err)

    return run


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "task.yaml"
    path.write_text(text)
    return str(path)


@pytest.mark.promise("P39")
def test_the_plan_shows_what_a_training_needs_takes_and_costs(orch: Callable[..., Said], tmp_path: Path) -> None:
    said = orch("plan", written(tmp_path, TASK))
    assert said.status == 0, said.err
    lines = {line[2:12].strip(): line for line in said.out.splitlines() if line.startswith("  ") and line[2] != " "}
    assert "1.06B parameters, engine jax on v5litepod-16, 16 devices (fsdp 16)" in lines["model"]
    assert "of 15.8 GiB a device, fits" in lines["memory"]
    assert "PFLOP" in lines["step"] or "TFLOP" in lines["step"]
    assert "MFU" in lines["expected"] and "tokens a day" in lines["expected"]
    assert "131M tokens in " in lines["run"] and "$" in lines["run"] and "for a billion tokens" in lines["cost"]


def test_programs_get_the_same_as_numbers(orch: Callable[..., Said], tmp_path: Path) -> None:
    plan: dict[str, Any] = json.loads(orch("plan", written(tmp_path, TASK), "-o", "json").out)
    schema = json.loads((ROOT / "orchestrator" / "plan" / "data" / "plan.schema.json").read_text())
    jsonschema.validate(plan, schema)
    (advice,) = plan["advice"]
    price = plan["wanted"]["candidates"][0]["price_per_hour"]
    hours = [seconds / 3600 for seconds in advice["run_seconds"]]
    assert advice["cost"]["run"] == pytest.approx([price * hour for hour in hours])
    assert advice["hardware"]["peak_flops"] == 197e12 and advice["hardware"]["memory_bytes"] == 16 << 30
    assert advice["fits"] is True
    assert advice["mesh"] == {"data": 1, "fsdp": 16, "tensor": 1, "context": 1, "pipeline": 1}


T4 = """
resources: {{accelerators: 'T4:1'}}
train: {{args: {{model: tiny, {more} steps: 10}}}}
"""


def test_a_gpu_without_bf16_is_refused_before_money_and_trains_in_fp32(
    orch: Callable[..., Said], tmp_path: Path
) -> None:
    said = orch("plan", written(tmp_path, T4.format(more="dtype: bf16,")))
    assert said.status == 2
    assert "on g4dn.xlarge: dtype=bf16 is computed in bf16, which T4 does not have: dtype=fp32" in said.err
    plan: dict[str, Any] = json.loads(orch("plan", written(tmp_path, T4.format(more="")), "-o", "json").out)
    (advice,) = plan["advice"]
    assert advice["hardware"]["has_bf16"] is False and advice["hardware"]["peak_flops"] is None
    assert not [concern for concern in advice["concerns"] if concern["code"] == "fp32"], "bf16 would not be faster"


def test_other_tasks_get_no_advice(orch: Callable[..., Said], tmp_path: Path) -> None:
    assert "advice" not in json.loads(orch("plan", written(tmp_path, SIMPLE), "-o", "json").out)


def test_each_other_kind_of_machine_gets_a_line(orch: Callable[..., Said], tmp_path: Path) -> None:
    several = TASK.replace(
        "  infra: gcp\n  accelerators: v5litepod-16\n",
        "  ordered:\n    - {infra: gcp, accelerators: v5litepod-16}\n    - {infra: gcp, accelerators: v6e-8}\n",
    )
    said = orch("plan", written(tmp_path, several))
    assert said.status == 0, said.err
    text = " ".join(said.out.split())
    assert text.count(" or on ") == 1
    assert re.search(r" or on v6e-8: fits, [0-9.]+ to [0-9.]+B tokens a day, .* for a billion tokens ", text)


@pytest.mark.promise("P39")
def test_a_training_that_may_not_fit_is_reported_with_the_setting_that_fixes_it(orch: Callable[..., Said]) -> None:
    words = ("train", "p4d.24xlarge", "model=8b", "batch=16", "seq_len=3200", "dtype=bf16", "remat=false")
    said = orch(*words, "--dry-run")
    assert said.status == 0, said.err
    (stop,) = [line for line in said.out.splitlines() if line.startswith("  stop ")]
    assert "does not fit" in stop
    too_large = orch(*words)  # without a terminal it is not begun; but before that the warning stands
    assert too_large.status == 2 and "warning: on p4d.24xlarge it does not fit" in too_large.err


@pytest.mark.promise("P39")
@pytest.mark.parametrize(
    ("words", "fix"),
    [
        (("p4d.24xlarge", "model=8b", "batch=128", "dtype=bf16", "remat=none"), "next: accumulate=16   makes it fit"),
        (("L4:1", "model=8b"), "devices with more memory"),
        (("local:2", "model=70b"), "a smaller model"),
    ],
)
def test_a_training_that_cannot_fit_is_refused_before_anything_is_made(
    orch: Callable[..., Said], tmp_path: Path, words: tuple[str, ...], fix: str
) -> None:
    preview, begun = orch("train", *words, "--dry-run"), orch("train", *words, "--yes")
    assert preview.status == begun.status == 2
    assert "Refused: [does-not-fit]" in preview.out and "To do it" not in preview.out
    assert "error[does-not-fit]" in begun.err and fix in begun.err and "--allow-misfit" in begun.err
    assert not (tmp_path / "orch" / "state" / "orch.db").exists()
    allowed = orch("train", *words, "--allow-misfit", "--dry-run")
    assert allowed.status == 0 and "does NOT fit" in allowed.out and "To do it" in allowed.out


def test_one_machine_of_several_on_which_it_cannot_fit_is_named(orch: Callable[..., Said], tmp_path: Path) -> None:
    several = TASK.replace(
        "  infra: gcp\n  accelerators: v5litepod-16\n",
        "  ordered:\n    - {infra: gcp, accelerators: v5litepod-16}\n    - {infra: gcp, accelerators: v5litepod-1}\n",
    )
    said = orch("plan", written(tmp_path, several))
    assert said.status == 2 and "the training does not fit v5litepod-1 (exit 2)" in said.out
    allowed = orch("plan", written(tmp_path, several + "  allow_misfit: true\n"))
    assert allowed.status == 0, allowed.err


def test_a_training_too_large_for_this_computer_is_not_rehearsed(orch: Callable[..., Said], tmp_path: Path) -> None:
    large = TASK.replace("model: 1b, batch: 64", "model: 70b, batch: 128").replace("v5litepod-16", "v5p-256")
    said = orch("rehearse", written(tmp_path, large))
    assert said.status == 2 and "error[does-not-fit]" in said.err and "v5p-256" in said.err
    assert "a device needs" in said.err and "--allow-misfit" in said.err


@pytest.mark.promise("P39")
@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("batch=10", "does not divide over 16 shares"),
        ("mesh.tensor=32", "mesh.tensor=32 does not divide"),
        ("mesh.context=32", "mesh.context=32 does not divide"),
    ],
)
def test_settings_impossible_on_these_machines_are_refused_before_anything_is_made(
    orch: Callable[..., Said], tmp_path: Path, setting: str, why: str
) -> None:
    for more in (("--dry-run",), ("--yes",)):
        said = orch("train", "v5litepod-16", "--bucket", "gs://bbb", "model=tiny", setting, *more)
        assert said.status == 2 and why in said.err and "v5litepod-16" in said.err
    assert not (tmp_path / "orch" / "state" / "orch.db").exists()


def test_devices_are_what_a_program_sees(orch: Callable[..., Said], tmp_path: Path) -> None:
    (tmp_path / "orch").mkdir()
    (tmp_path / "orch" / "config.toml").write_text('[aws]\ninstance_profile = "orch"\n')

    def hardware(*words: str) -> dict[str, Any]:
        said = orch("train", *words, "batch=512", "--dry-run", "-o", "json")
        assert said.status == 0, said.err
        found: dict[str, Any] = json.loads(said.out)["advice"][0]["hardware"]
        return found

    trn1 = hardware("trn1.32xlarge", "--bucket", "s3://bbb")
    assert (trn1["kind"], trn1["devices"], trn1["memory_bytes"]) == ("neuron", 32, 16 << 30)
    two = hardware("v5p-16", "--num-nodes", "2", "--bucket", "gs://bbb")
    assert (two["devices"], two["hosts"], two["slices"]) == (16, 4, 2)
    v7 = hardware("tpu7x-8", "--bucket", "gs://bbb", "--infra", "gcp/us-central1/us-central1-c")
    assert (v7["devices"], v7["memory_bytes"]) == (8, 96 << 30)
    here = hardware("local:2")
    assert (here["kind"], here["devices"], here["peak_flops"]) == ("cpu", 2, None)


@pytest.mark.parametrize(
    ("machines", "setting"),
    [
        (("v5litepod-8", "--backend", "xla"), "model.experts=4"),
        (("v5litepod-8", "--backend", "xla", "--smoke"), "optim.kind=muon"),
        (("v5litepod-8", "--backend", "xla", "--allow-misfit"), "data.document_mask=true"),
        (("trn1.32xlarge", "--backend", "neuron"), "lora.rank=4"),
        (("v5litepod-8", "--backend", "xla"), "data.loss=marked"),
        (("v5litepod-8", "--backend", "xla"), "mesh.context=2"),
    ],
)
@pytest.mark.parametrize("action", ["--dry-run", "--yes"])
def test_settings_with_which_a_run_ends_when_it_starts_are_refused(
    orch: Callable[..., Said], machines: tuple[str, ...], setting: str, action: str
) -> None:
    bucket = "s3://mine/runs" if machines[0].startswith("trn") else "gs://mine/runs"
    said = orch("train", *machines, "--bucket", bucket, action, "model=tiny", "steps=20", "batch=64", setting)
    assert said.status == 2 and not said.out
    assert "the trainer cannot run with these settings" in said.err
    assert setting.partition("=")[0] in said.err


@pytest.mark.parametrize(
    ("machine", "train", "why"),
    [
        ("{infra: gcp, accelerators: v5litepod-8}", "{backend: xla, args: {%s, lora.rank: 4}}", "no LoRA"),
        ("{infra: gcp, accelerators: v5litepod-8}", "{backend: xla, args: {%s, model.experts: 4}}", "mixture of exp"),
        ("{infra: gcp, accelerators: v5litepod-8}", "{args: {%s, float8: rowwise}}", "float8=rowwise: the JAX engine"),
        ("{infra: gcp, accelerators: v5litepod-8}", "{args: {%s, mesh.tensor: 32}}", "mesh.tensor=32 does not divide"),
        ("{infra: aws, accelerators: 'Trainium:16'}", "{backend: neuron, args: {%s}}", "on several hosts"),
    ],
)
def test_what_a_launch_refuses_for_its_machines_is_not_rehearsed_on_processors(
    orch: Callable[..., Said], tmp_path: Path, machine: str, train: str, why: str
) -> None:
    nodes = "num_nodes: 2\n" if "aws" in machine else ""
    settings = train % "model: tiny, batch: 64, steps: 2"
    task = written(tmp_path, f"name: big\n{nodes}resources: {machine}\ntrain: {settings}\n")
    planned, rehearsed = orch("plan", task), orch("rehearse", task)
    assert planned.status == rehearsed.status == 2
    assert why in planned.out + planned.err and why in rehearsed.err


def test_only_what_jax_trains_on_tpus_is_compiled(orch: Callable[..., Said], tmp_path: Path) -> None:
    assert "no `train` section" in orch("plan", written(tmp_path, SIMPLE), "--compile").err
    local = orch("plan", written(tmp_path, TASK), "--infra", "local:2", "--compile")
    assert local.status == 2 and "not a TPU slice" in local.err
    trained = orch("train", "local:2", "--compile", "--dry-run", "model=tiny")
    assert trained.status == 2 and "not a TPU slice" in trained.err


def test_without_a_compiler_the_error_explains_how_to_install_one(
    orch: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCH_TPU_COMPILER", str(tmp_path / "nothing"))
    said = orch("plan", written(tmp_path, TASK), "--compile")
    assert said.status == 3 and "ORCH_TPU_COMPILER" in said.err
    if not (ROOT / ".venv-libtpu" / "complete").exists():
        monkeypatch.delenv("ORCH_TPU_COMPILER")
        said = orch("plan", written(tmp_path, TASK), "--compile")
        assert said.status == 3 and "scripts/tpu-compiler" in said.err


def test_a_step_that_does_not_fit_by_its_compilation_is_refused_in_the_plan(
    orch: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text("""#!/bin/sh\necho '{"fits": false, "error": "wanted: 99 GiB", "seconds": 1}'\nexit 4\n""")
    compiler.chmod(0o755)
    monkeypatch.setenv("ORCH_TPU_COMPILER", str(compiler))
    words = ("train", "v5litepod-4", "--bucket", "gs://mine/runs", "--compile", "model=tiny", "batch=8", "steps=9")
    shown = orch(*words, "--dry-run")
    assert shown.status == 2 and "does NOT fit" in shown.out
    assert "Refused: [does-not-fit]" in shown.out and "wanted: 99 GiB" in shown.out
    assert "succeeded" not in shown.out and "To do it" not in shown.out
    as_json = orch(*words, "-o", "json", "--dry-run")
    assert as_json.status == 2 and json.loads(as_json.out)["refusal"]["code"] == "does-not-fit"
    begun = orch(*words, "--yes")
    assert begun.status == 2 and "error[does-not-fit]" in begun.err


def test_only_what_torch_trains_is_built_in_one_process(orch: Callable[..., Said], tmp_path: Path) -> None:
    said = orch("plan", written(tmp_path, TASK), "--rehearse-world")
    assert said.status == 2 and "--compile" in said.err
    lazy = TASK.replace("train:\n", "train:\n  backend: xla\n")
    said = orch("plan", written(tmp_path, lazy), "--rehearse-world")
    assert said.status == 2 and "one program for all devices" in said.err


def test_a_partly_installed_compiler_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ORCH_TPU_COMPILER", raising=False)
    checkout = tmp_path / "checkout"
    python = checkout / ".venv-libtpu" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    monkeypatch.setattr(compilation, "trainer_folder", lambda: checkout)
    where = replace(load_paths(), state=tmp_path / "state")
    with pytest.raises(NotFoundError, match="not installed"):
        compilation.find_compiler(where)
    (checkout / ".venv-libtpu" / "complete").touch()
    assert compilation.find_compiler(where) == python


def test_an_exact_answer_takes_the_place_of_the_estimate(orch: Callable[..., Said], tmp_path: Path) -> None:
    large = TASK.replace('remat: "true"', 'remat: "false"').replace("batch: 64", "batch: 512")
    task = parse_task(large, file="t", env={}, config=load_config({"HOME": str(tmp_path)})).only
    ready = add_advice(prepare_launch(task, cluster=None, after=TeardownPolicy.KEEP), task)
    assert isinstance(ready.refused, DoesNotFit)
    assert replace_estimate(ready, ready.advice).refused is None
    assert isinstance(replace_estimate(ready, (*ready.advice, *ready.advice)).refused, DoesNotFit)


@pytest.mark.usefixtures("orch")
def test_the_estimate_of_a_run_is_recorded_once_for_each_kind_of_machine(tmp_path: Path) -> None:
    task = parse_task(TASK, file="t.yaml", env={}).only
    ready = add_advice(prepare_launch(task, cluster="mine", after=TeardownPolicy.DOWN), task)
    with Store(tmp_path / "orch.db") as store:
        record_estimate(store, ready, "mine-run")
        record_estimate(store, ready, "mine-run")
        record_estimate(store, replace(ready, advice=()), "other-run")
    with Reader(tmp_path / "orch.db") as reader:
        (one,) = reader.predictions()
    (machines,) = json.loads(one.estimate)["machines"].items()
    name, estimate = machines
    assert (one.run_id, name) == ("mine-run", "v5litepod-16")
    for quantity in QUANTITIES:
        assert 0 < estimate[quantity]["low"] < estimate[quantity]["typical"] < estimate[quantity]["high"]
    assert "MaxText" in estimate["source"]
