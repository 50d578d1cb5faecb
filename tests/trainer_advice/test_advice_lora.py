"""What LoRA changes in the estimates of memory, work and traffic, and which settings are refused."""

from __future__ import annotations

import pytest

from trainer.errors import ConfigError
from trainer.options import parse_config
from trainer.shape.advice import build_advice
from trainer.shape.architecture import count_flops_per_token, count_parameters
from trainer.shape.concerns import Concern
from trainer.shape.hardware import Hardware, Kind
from trainer.shape.lora import count_run_flops_per_token, list_run_parameters, list_targets
from trainer.shape.memory import estimate_memory
from trainer.shape.mesh import Mesh
from trainer.shape.timing import Traffic

WORDS = ["model=1b", "batch=8", "remat=full"]


@pytest.mark.parametrize("engine", ["torch", "jax"])
def test_gradients_and_optimizer_are_those_of_the_adapters_alone(engine: str) -> None:
    # Of one micro-batch torch has no gradient yet at the moment that needs the most.
    config = parse_config([*WORDS, "lora.rank=16", f"accumulate={2 if engine == 'torch' else 1}"])
    adapters = sum(one.size for one in list_run_parameters(config.model, config.lora) if not one.frozen)
    need = estimate_memory(config, Mesh(), engine)  # type: ignore[arg-type]  # of parametrize
    assert need.gradients == 4 * adapters
    assert need.optimizer == 8 * adapters
    assert need.weights == 4 * (count_parameters(config.model) + adapters)
    whole = estimate_memory(parse_config(WORDS), Mesh(), engine)  # type: ignore[arg-type]  # of parametrize
    assert need.total < 0.6 * whole.total


def test_work_and_traffic_are_less_than_in_full_training() -> None:
    config, whole = parse_config([*WORDS, "lora.rank=16"]), parse_config(WORDS)
    flops = count_run_flops_per_token(config.model, config.lora, 128)
    assert 0.64 < flops / count_flops_per_token(whole.model, 128) < 0.75
    mesh = Mesh(data=2, fsdp=4)
    assert Traffic.of(config, mesh).fsdp < Traffic.of(whole, mesh).fsdp
    assert Traffic.of(config, mesh).data < Traffic.of(whole, mesh).data / 10


def test_targets_are_all_layers_or_named_ones() -> None:
    assert list_targets(parse_config([]).lora) == ()
    assert len(list_targets(parse_config(["lora.rank=4"]).lora)) == 7
    assert list_targets(parse_config(["lora.rank=4", "lora.targets=value, query"]).lora) == ("query", "value")
    with pytest.raises(ConfigError, match="'q_proj' is no layer"):
        list_targets(parse_config(["lora.rank=4", "lora.targets=q_proj"]).lora)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["lora.rank=4", "optim.kind=muon"], "optimizer"),
        (["lora.rank=4", "device=xla"], "lora"),
        (["data.document_mask=true", "device=xla"], "documents"),
        (["data.loss=marked", "device=xla"], "loss"),
    ],
)
def test_what_engines_refuse_stops_the_plan(words: list[str], code: str) -> None:
    config = parse_config([*WORDS, "engine=torch", *words])
    found = build_advice(config, Hardware(name="h", kind="tpu", devices=8, chip="v5e", hosts=1, slices=1)).concerns
    assert code in {concern.code for concern in found if concern.fatal}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["lora.rank=4"], "lora"),
        (["data.document_mask=true"], "documents"),
        (["data.loss=marked"], "loss"),
        (["optim.kind=muon"], "optimizer"),
    ],
)
def test_torch_on_a_tpu_that_may_become_torch_xla_names_what_that_refuses(words: list[str], code: str) -> None:
    tpu = Hardware(name="h", kind="tpu", devices=8, chip="v5e", hosts=1, slices=1)

    def find(*more: str) -> list[Concern]:
        found = build_advice(parse_config([*WORDS, *words, *more]), tpu).concerns
        return [concern for concern in found if concern.code == code]

    (concern,) = find("engine=torch")
    assert "torch_xla" in concern.words and concern.fix == ("device=tpu",) and not concern.fatal
    assert not find("engine=torch", *concern.fix)
    assert not find("engine=jax") and not find()


@pytest.mark.parametrize(
    ("kind", "words", "device"),
    [
        ("tpu", ["engine=torch", "device=xla"], "torch_xla"),
        ("tpu", ["engine=torch"], "torch on a TPU"),
        ("neuron", ["engine=torch"], "Neuron"),
        ("neuron", ["engine=jax"], "Neuron"),
    ],
)
def test_experts_are_refused_where_their_products_were_never_tried(kind: Kind, words: list[str], device: str) -> None:
    machines = Hardware(name="h", kind=kind, devices=8)
    with pytest.raises(ConfigError, match=f"model.experts=8: {device} has no mixture of experts"):
        build_advice(parse_config([*WORDS, *words, "model.experts=8"]), machines)
    build_advice(parse_config([*WORDS, *words]), machines)


PRICED = Hardware(name="h", kind="cuda", devices=8, chip="H100", price=50.0, peak_flops=989e12)


def test_the_rule_of_20_tokens_a_parameter_prices_no_lora() -> None:
    whole, adapters = (build_advice(parse_config([*WORDS, *more]), PRICED) for more in ([], ["lora.rank=4"]))
    assert whole.cost is not None and whole.cost.full is not None and adapters.cost is not None
    assert "(20 a parameter)" in " ".join(whole.lines()) and "a parameter" not in " ".join(adapters.lines())
    assert adapters.cost.full is None and 0 < adapters.cost.billion[0] < whole.cost.billion[0]


def test_every_how_many_blocks_have_no_window_means_nothing_without_a_window() -> None:
    def name_concerns(*words: str) -> set[str]:
        return {one.code for one in build_advice(parse_config([*WORDS, *words]), PRICED).concerns}

    assert "window" in name_concerns("model.full_every=2")
    assert "window" not in name_concerns("model.full_every=2", "model.window=64") | name_concerns()
