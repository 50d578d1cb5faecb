"""LoRA from the command line: start from an import, resume on the other engine, export for transformers and peft."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
pytestmark = [
    pytest.mark.jax,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(importlib.util.find_spec("peft") is None, reason="peft is not installed"),
]

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "vocab_size": 256,
    "tie_word_embeddings": True,
}
FAMILIES = ("qwen2", "qwen3", "mistral")


def _trainer(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trainer", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=200)


def _run(*words: str) -> str:
    done = _trainer(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module", params=FAMILIES)
def tuned(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with `hf`, its import, and two exports of four steps from it, two on each engine."""
    folder = tmp_path_factory.mktemp(str(request.param))
    _run_hugging_face("make", folder, str(request.param))
    line = _run("import", str(folder / "hf"), str(folder / "base")).splitlines()[1]
    printed = line.split("-m trainer ")[1].removesuffix(" ...").split()
    words = [word for word in printed if not word.startswith("data=")]  # Python's library will do
    words += [f"checkpoint.uri={folder / 'run'}", "batch=4", "seq_len=16", "lora.rank=4", "optim.lr=0.02"]
    words += ["optim.warmup=0", "device=cpu", "threads=1", "log_every=1", "metrics.file="]
    (folder / "words").write_text(" ".join(words))
    first = _run(*words, "steps=2", "engine=torch")
    assert "started from the imported weights" in first
    assert "of LoRA adapters" in first
    assert "resumed from step 2" in _run(*words, "steps=4", "engine=jax")
    _run("export", str(folder / "run"), str(folder / "merged"))
    _run("export", str(folder / "run"), str(folder / "adapter"), "--adapter")
    _run_hugging_face("load", folder, str(request.param))
    return folder


def _run_hugging_face(command: str, folder: Path, family: str) -> None:
    done = subprocess.run(
        [sys.executable, str(HERE / "peft_models.py"), command, str(folder), family, json.dumps(SIZES)],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        env={**os.environ, "TRANSFORMERS_VERBOSITY": "error"},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_peft_computes_with_the_adapters_what_transformers_does_with_the_merged_weights(tuned: Path) -> None:
    found = np.load(tuned / "logits.npz")
    assert np.abs(found["merged"] - found["base"]).max() > 1e-3, "training has changed something"
    np.testing.assert_allclose(found["adapted"], found["merged"], atol=1e-4)


def test_the_base_weights_are_frozen_and_the_folder_has_the_names_of_peft(tuned: Path) -> None:
    before = safetensors.numpy.load_file(tuned / "hf" / "model.safetensors")
    after = safetensors.numpy.load_file(tuned / "merged" / "model.safetensors")
    for name, values in after.items():
        assert np.array_equal(values, before[name]) == ("_proj.weight" not in name), name
    ours = safetensors.numpy.load_file(tuned / "adapter" / "adapter_model.safetensors")
    theirs = safetensors.numpy.load_file(tuned / "saved" / "adapter_model.safetensors")
    assert {name: values.shape for name, values in ours.items()} == {name: one.shape for name, one in theirs.items()}
    for name, values in ours.items():
        np.testing.assert_array_equal(values, theirs[name])


@pytest.mark.parametrize(
    ("change", "expected"),
    [("lora.rank=0", "was made with lora.rank=4"), ("lora.targets=query", "lora.targets=all")],
)
def test_a_resume_with_other_adapters_is_refused(tuned: Path, change: str, expected: str) -> None:
    done = _trainer(*(tuned / "words").read_text().split(), "steps=6", "engine=torch", change)
    assert done.returncode == 2, done.stdout + done.stderr
    assert expected in done.stderr


def test_adapters_in_a_run_without_any_are_refused_and_an_alpha_is_noted(tuned: Path) -> None:
    words = (tuned / "words").read_text().split()
    assert "note: adapters are multiplied with 4" in _run(*words, "steps=5", "engine=torch", "lora.alpha=16")
    plain = [word for word in words if not word.startswith(("lora.", "checkpoint.uri"))]
    plain += [f"checkpoint.uri={tuned / 'whole'}", "engine=torch"]
    _run(*plain, "steps=1")
    done = _trainer(*plain, "steps=2", "lora.rank=4")
    assert done.returncode == 2
    assert "was made without LoRA" in done.stderr
    done = _trainer("export", str(tuned / "whole"), str(tuned / "none"), "--adapter")
    assert "has no adapters" in done.stderr
