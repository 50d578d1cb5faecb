"""Models of transformers: imported, they are the same function with the same gradients, and so they are exported."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from jax_cases import give, jax_engine, rows_of, settings, state_of, torch_engine

from trainer.__main__ import main
from trainer.checkpoint import reader
from trainer.checkpoint.family_names import map_parameter_names
from trainer.checkpoint.regions import open_contents
from trainer.checkpoint.restore_plan import read_model_config
from trainer.checkpoint.store import open_store
from trainer.checkpoint.weights_import import import_weights
from trainer.config import ModelConfig
from trainer.engine import Engine, FloatArray
from trainer.environment import World
from trainer.shape.architecture import list_parameters
from trainer.tcp_team import SingleProcessTeam

HERE = Path(__file__).resolve().parent
pytestmark = [
    pytest.mark.jax,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed"),
]

CASES = (
    "llama-3.1",
    "llama-3.2",
    "mistral",
    "mistral-0.3",
    "qwen2.5",
    "qwen2-window",
    "qwen3",
    "qwen3-window",
    "llama-linear",
    "mixtral",
    "mixtral-window",
    "qwen3_moe",
    "qwen3_moe-normalized",
    "gemma2",
    "gemma2-uncapped",
    "gemma3_text",
    "gemma3_text-linear",
)
ROWS = "batch=8 seq_len=16 grad_clip=0 optim.beta1=0.9"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which each case was made, imported, and exported again."""
    folder = tmp_path_factory.mktemp("families")
    np.save(folder / "rows.npy", rows_of(settings("model.vocab=64 seq_len=16 batch=8"), 0))
    for name in CASES:
        (folder / name).mkdir()
    _run_transformers("make", folder)
    for name in CASES:
        lines: list[str] = []
        import_weights(folder / name / "hf", str(folder / name / "checkpoints"), lines.append)
        (folder / name / "words").write_text(lines[1].split("step-00000000 ")[1].removesuffix(" ..."))
        assert main(["export", str(folder / name / "checkpoints"), str(folder / name / "again")]) == 0
    _run_transformers("load", folder)
    return folder


def _run_transformers(command: str, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(HERE / "hugging_face.py"), command, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
        env={**os.environ, "TRANSFORMERS_VERBOSITY": "error"},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _read_imported(folder: Path) -> tuple[ModelConfig, Mapping[str, FloatArray]]:
    found = reader.find_newest_checkpoint(open_store(str(folder)), SingleProcessTeam(World()), lambda _: None)
    assert found is not None
    model = read_model_config(found.manifest.config)
    contents = open_contents(found.store, found.manifest)
    return model, {
        parameter.name: contents.read_tensor(f"model/{parameter.name}") for parameter in list_parameters(model)
    }


def _assert_close(found: np.ndarray, expected: np.ndarray, what: str) -> None:
    size = float(np.abs(expected).max())
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * max(1.0, size), err_msg=what)


@pytest.mark.promise("P38")
@pytest.mark.parametrize("name", CASES)
def test_an_imported_model_has_the_logits_of_transformers(made: Path, name: str) -> None:
    torch = pytest.importorskip("torch")
    from trainer.torch_engine.loss import cap_logits
    from trainer.torch_engine.model import Transformer

    model, weights = _read_imported(made / name / "checkpoints")
    ours = Transformer(model, 16).eval()
    ours.load_state_dict({key: torch.from_numpy(values) for key, values in weights.items()}, strict=True)
    rows = torch.from_numpy(np.load(made / "rows.npy").astype(np.int64))
    numbers = (torch.arange(16)[:, None] >= torch.tensor([5, 11])).sum(dim=1).to(torch.int32)
    with torch.no_grad():
        logits = cap_logits(ours(rows[:, :-1]) @ ours.head_weight().T, model.softcap).numpy()
        apart = ours(rows[:, :-1], numbers.expand(len(rows), -1))
        packed = cap_logits(apart @ ours.head_weight().T, model.softcap).numpy()
    expected = np.load(made / name / "expected.npz")
    assert np.abs(expected["logits"]).max() > 1, "something to compare"
    _assert_close(logits, expected["logits"], "logits")
    assert np.abs(expected["packed"] - expected["logits"]).max() > 0.1, "documents differ from the row"
    _assert_close(packed, expected["packed"], "logits of packed documents")


@pytest.mark.promise("P38")
@pytest.mark.parametrize(
    ("name", "framework"),
    [
        *((name, "torch") for name in CASES),
        *((name, "jax") for name in ("qwen2.5", "qwen3-window", "mixtral", "qwen3_moe", "gemma2", "gemma3_text")),
        ("gemma3_text-linear", "jax"),
    ],
)
def test_a_step_from_imported_weights_has_the_gradients_of_transformers(made: Path, name: str, framework: str) -> None:
    model, weights = _read_imported(made / name / "checkpoints")
    words = f"{ROWS} model.head=auto {(made / name / 'words').read_text()}"  # the words that the import prints
    config = settings(words)
    assert config.model == model
    engine: Engine = torch_engine(words) if framework == "torch" else jax_engine(words)
    start = {f"model/{key}": values for key, values in weights.items()}
    moments = {piece.name: np.zeros(piece.shape, np.float32) for piece in engine.needed() if piece.name not in start}
    give(engine, {**start, **moments})
    engine.step(np.load(made / "rows.npy"), 0.0, False, 0)
    expected = np.load(made / name / "expected.npz")
    assert engine.numbers().loss == pytest.approx(float(expected["loss"]), abs=1e-5)
    assert (engine.numbers().router_loss or 0.0) == pytest.approx(float(expected["router_loss"]), abs=1e-5)
    state = state_of(engine)
    compared = map_parameter_names(model)
    assert set(compared) == set(expected.files) - {"logits", "loss", "packed", "router_loss"}
    for theirs, one in compared.items():
        # After the first step the first moment is (1 - beta1) times the gradient.
        moment = one.select_values(state[f"optimizer/{one.parameter.name}/exp_avg"])
        gradient = moment / (1 - config.optim.beta1)
        assert np.abs(expected[theirs]).max() > 1e-6, theirs
        _assert_close(gradient, expected[theirs], theirs)


@pytest.mark.promise("P38")
@pytest.mark.parametrize("name", CASES)
def test_an_exported_model_has_the_same_values_and_logits_in_transformers(made: Path, name: str) -> None:
    before = safetensors.numpy.load_file(made / name / "hf" / "model.safetensors")
    after = safetensors.numpy.load_file(made / name / "again" / "model.safetensors")
    assert after.keys() == before.keys() - ({"lm_head.weight"} if "lm_head.weight" not in after else set())
    for key, values in after.items():
        np.testing.assert_array_equal(values, before[key])
    expected = np.load(made / name / "expected.npz")["logits"]
    _assert_close(np.load(made / name / "again.npz")["logits"], expected, "logits")
    config = json.loads((made / name / "again" / "config.json").read_text())
    original = json.loads((made / name / "hf" / "config.json").read_text())
    assert config == {**original, "dtype": "float32", "torch_dtype": "float32"}, "as it came"
