"""What experts change in the estimates: all of them need memory, those of a token need work."""

from __future__ import annotations

import pytest

from trainer.options import parse_config
from trainer.shape.advice import build_advice
from trainer.shape.architecture import count_active_parameters, count_flops_per_token, count_parameters
from trainer.shape.hardware import Hardware
from trainer.shape.memory import estimate_memory
from trainer.shape.mesh import Mesh

H100 = Hardware(name="8 H100", kind="cuda", devices=8, chip="H100", hosts=1, slices=1, peak_flops=989e12, price=30.0)


@pytest.mark.parametrize(("name", "active"), [("mixtral-8x7b", 12.9e9), ("qwen3-30b-a3b", 3.3e9)])
def test_active_parameters_are_those_that_the_publishers_state(name: str, active: float) -> None:
    """Mixtral of Experts, arXiv 2401.04088, abstract: 13B; Qwen3 Technical Report, arXiv 2505.09388: 3B."""
    assert count_active_parameters(parse_config([f"model={name}"]).model) == pytest.approx(active, rel=0.02)


def test_work_does_not_grow_with_the_number_of_experts_and_memory_does() -> None:
    few, many = (parse_config(["model=300m", f"model.experts={count}"]) for count in (8, 32))
    routers = 24 * 1024 * (32 - 8)
    assert count_flops_per_token(many.model, 64) - count_flops_per_token(few.model, 64) == 6 * routers
    assert count_parameters(many.model) > 3.5 * count_parameters(few.model)
    need = [estimate_memory(config, Mesh(1, 8), "torch") for config in (few, many)]
    assert need[1].state > 3.5 * need[0].state
    assert need[1].activations < 1.05 * need[0].activations


def test_a_token_computes_as_much_as_in_a_dense_model_of_that_width() -> None:
    dense = parse_config(["model=300m"])
    words = ["model=300m", "model.experts=8", "model.experts_per_token=2", "model.expert_hidden=1408"]
    routed = parse_config(words)
    routers = 24 * 1024 * 8
    assert count_flops_per_token(routed.model, 64) == count_flops_per_token(dense.model, 64) + 6 * routers
    assert count_active_parameters(routed.model) == count_parameters(dense.model) + routers


def test_the_plan_names_all_and_active_parameters() -> None:
    advice = build_advice(parse_config(["model=mixtral-8x7b", "batch=64", "engine=torch"]), H100)
    assert advice.lines()[0].startswith("model    46.7B parameters, 12.9B active, engine torch")
    assert "258B (20 an active parameter)" in next(line for line in advice.lines() if line.startswith("cost"))
    assert advice.as_json()["active"] == advice.active < advice.parameters
    assert "experts=true" in advice.speed_settings
    dense = build_advice(parse_config(["model=1b", "batch=64", "engine=torch"]), H100)
    assert dense.active == dense.parameters and "active" not in dense.lines()[0]
