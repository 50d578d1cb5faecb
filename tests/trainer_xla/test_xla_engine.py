"""device=xla on the real torch_xla with 4 CPU devices: torch's numbers, one program per step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainer.environment import World
from trainer.errors import ConfigError, DeviceError
from trainer.options import parse_config
from trainer.shape.mesh import Topology
from trainer.torch_engine.engine import open_torch_engine

pytestmark = pytest.mark.xla

REPOSITORY = Path(__file__).resolve().parents[2]
PYTHON = REPOSITORY / ".venv-xla" / "bin" / "python"
SMALL = ["model.dim=32", "model.layers=1", "model.heads=4", "model.kv_heads=2", "model.vocab=64", "seq_len=16"]
SMALL += ["batch=8", "threads=1", "engine=torch"]
CASES = {
    "copies": ["accumulate=2", "optim.ema=0.9"],
    "divided": ["mesh.fsdp=2", "mesh.tensor=2", "remat=true", "model.tied=false"],
    "family": ["mesh.fsdp=2", "mesh.tensor=2", "model.qkv_bias=true", "model.qk_norm=true", "model.window=5"],
    "both": ["mesh.data=2", "mesh.fsdp=2"],
}
STEPS = 4
needs_xla = pytest.mark.skipif(
    not (PYTHON.parents[1] / "complete").exists(), reason="no .venv-xla: scripts/xla-env makes it"
)


class Alone:
    world = World()

    def gather(self, value: Any) -> list[Any]:
        return [value]


def on_torch(words: list[str], rows: Any, state: dict[str, Any] | None = None) -> tuple[list[float], dict[str, Any]]:
    """Return the losses of the torch engine on the CPU, and its final state."""
    engine = open_torch_engine(parse_config([*SMALL, *words, "device=cpu"]), World(), Alone())  # type: ignore[arg-type]  # a team of one
    if state is not None:
        engine.load((piece, state[piece.name]) for piece in engine.needed())
    losses = []
    for step, batch in enumerate(rows):
        engine.step(batch, 1e-2 * (step + 1) / len(rows), False, step)
        losses.append(engine.numbers().loss)
    whole = {piece.name: np.empty(piece.box.extent, np.float32) for piece in engine.written()}
    engine.copy_out({piece: whole[piece.name] for piece in engine.written()})
    return losses, whole


@pytest.fixture(scope="module")
def rows() -> Any:
    return np.random.default_rng(7).integers(0, 64, (STEPS, 8, 17)).astype(np.uint16)


@pytest.fixture(scope="module")
def expected(rows: Any) -> dict[str, tuple[list[float], dict[str, Any]]]:
    plain = {name: [word for word in words if not word.startswith("mesh.")] for name, words in CASES.items()}
    return {name: on_torch(words, rows) for name, words in plain.items()}


@pytest.fixture(scope="module")
def found(
    tmp_path_factory: pytest.TempPathFactory, rows: Any, expected: dict[str, tuple[list[float], dict[str, Any]]]
) -> dict[str, Any]:
    """Run all cases in one process, and `moved`, which continues torch's state of `divided`."""
    folder = tmp_path_factory.mktemp("xla")
    np.save(folder / "rows.npy", rows)
    np.savez(folder / "torch.npz", **expected["divided"][1])
    cases = {name: {"words": [*SMALL, *words, "device=xla"], "state": ""} for name, words in CASES.items()}
    cases["moved"] = {"words": cases["divided"]["words"], "state": "torch.npz"}
    (folder / "cases.json").write_text(json.dumps(cases))
    env = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY),
        "PJRT_DEVICE": "CPU",
        "CPU_NUM_DEVICES": "4",
        # The programs are small and run a few times: the compiler need not try hard.
        "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true",
    }
    script = Path(__file__).with_name("xla_process.py")
    done = subprocess.run([PYTHON, script, folder], env=env, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    results: dict[str, Any] = {}
    for line in done.stdout.splitlines():
        results.update(json.loads(line))
    return {**results, "folder": folder}


@pytest.mark.promise("P31")
@needs_xla
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_losses_and_state_equal_torchs_on_the_cpu(
    found: dict[str, Any], expected: dict[str, tuple[list[float], dict[str, Any]]], name: str
) -> None:
    losses, state = expected[name]
    assert found[name]["losses"] == pytest.approx(losses, abs=1e-4)
    left = np.load(found["folder"] / f"{name}.npz")
    assert set(left.files) == set(state)
    for tensor, values in state.items():
        np.testing.assert_allclose(
            left[tensor], values, atol=2e-3 if tensor.startswith("optimizer/") else 1e-4, err_msg=tensor
        )
    assert found[name]["written"] == sum(values.size for values in state.values())


@needs_xla
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_an_evaluation_has_the_loss_of_the_step_on_the_same_rows(found: dict[str, Any], name: str) -> None:
    evaluated, stepped = found[name]["evaluated"]
    assert evaluated == pytest.approx(stepped, abs=1e-5)


@needs_xla
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_step_is_compiled_once(found: dict[str, Any], name: str) -> None:
    before, first, *later = found[name]["compiled"]
    assert first == before + 1
    # Not for another rate, nor for a stop request, nor after the state was copied out.
    assert set(later) == {first}
    assert found[name]["stops"] == 1
    # Loading compiles what takes the values in, at most, and no step.
    assert found[name]["after_load"] <= 1
    assert found[name]["fallbacks"] == []
    # fp32 is not rounded to bf16 by a TPU's products.
    assert "operand_precision={highest,highest}" in found[name]["product"]


@pytest.mark.promise("P32")
@needs_xla
@pytest.mark.slow
def test_training_continues_from_the_state_of_another_engine(
    found: dict[str, Any], expected: dict[str, tuple[list[float], dict[str, Any]]], rows: Any
) -> None:
    plain = [word for word in CASES["divided"] if not word.startswith("mesh.")]
    losses, _ = on_torch(plain, rows, expected["divided"][1])
    assert found["moved"]["losses"] == pytest.approx(losses, abs=1e-4)
    assert "mesh data=1 fsdp=2 tensor=2" in found["moved"]["headline"]
    assert found["moved"]["program"] == found["divided"]["program"] != found["copies"]["program"]


@needs_xla
@pytest.mark.slow
def test_each_of_several_hosts_places_its_rows_as_the_mesh_requires(found: dict[str, Any], rows: Any) -> None:
    quarters = np.split(rows[0], 4)
    assert found["hosts"]["copies"] == [quarter.tolist() for quarter in quarters]
    halves = np.split(rows[0], 2)  # two devices of a tensor group have the same rows
    assert found["hosts"]["divided"] == [half.tolist() for half in halves for _ in range(2)]


def test_slices_and_hosts_decide_how_the_weights_are_sharded() -> None:
    pytest.importorskip("torch")
    from trainer.xla_engine.runtime import detect_topology

    one, two = [{"name": "TPU"}] * 8, [{"slice_index": at // 4} for at in range(8)]
    assert detect_topology("TPU", 4, one) == Topology(8, 8, shard_weights=True)
    assert detect_topology("TPU", 4, two) == Topology(8, 4, shard_weights=True)
    assert detect_topology("NEURON", 32, [{}] * 64) == Topology(64, 32, shard_weights=True)
    assert not detect_topology("CPU", 4, [{}] * 4).shard_weights


def test_without_torch_xla_the_error_names_what_to_install() -> None:
    pytest.importorskip("torch")
    if "torch_xla" in sys.modules:
        pytest.skip("torch_xla is loaded")
    from trainer.xla_engine.engine import open_xla_engine

    with pytest.raises(DeviceError, match=r"torch==2\.9\.0 with torch_xla==2\.9\.0"):
        open_xla_engine(parse_config([*SMALL, "device=xla"]), World(), Alone())  # type: ignore[arg-type]  # a team of one


@pytest.mark.parametrize("kind", ["muon", "adafactor"])
def test_another_optimizer_than_adamw_is_refused(kind: str) -> None:
    with pytest.raises(ConfigError, match=f"device=xla has only optim.kind=adamw, not {kind}"):
        open_torch_engine(parse_config([*SMALL, "device=xla", f"optim.kind={kind}"]), World(), Alone())  # type: ignore[arg-type]  # a team of one


def test_experts_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"model\.experts=4: device=xla has no experts"):
        open_torch_engine(parse_config([*SMALL, "device=xla", "model.experts=4"]), World(), Alone())  # type: ignore[arg-type]  # a team of one


def test_a_missing_environment_is_reported(tmp_path: Path) -> None:
    script = tmp_path / "scripts" / "xla-env"
    script.parent.mkdir()
    script.write_bytes((REPOSITORY / "scripts" / "xla-env").read_bytes())
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "xla.lock").write_text("")
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "run scripts/xla-env" in done.stderr
