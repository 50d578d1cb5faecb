"""Configurations drawn at random: transformers and this trainer compute the same function, and export what came in."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainer.__main__ import main
from trainer.checkpoint import reader
from trainer.checkpoint.regions import open_contents
from trainer.checkpoint.store import open_store
from trainer.environment import World
from trainer.options import parse_config
from trainer.shape.architecture import list_parameters
from trainer.tcp_team import SingleProcessTeam

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen3_moe", "gemma2", "gemma3_text")
VOCABULARY, LENGTH = 96, 40
DRAWS = 11  # of each family: 88 in all


def draw_settings(family: str, draw: random.Random) -> dict[str, Any]:
    """Return settings of config.json, in the ranges that published models of the family use."""
    heads = draw.choice([2, 4, 6])
    settings: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": heads * draw.choice([8, 16]),
        "num_attention_heads": heads,
        "num_key_value_heads": draw.choice([one for one in (1, 2, 3, 6) if heads % one == 0]),
        "head_dim": draw.choice([8, 16, 24]),
        "intermediate_size": draw.choice([40, 64, 104]),
        "num_hidden_layers": draw.choice([1, 2, 3]),
        "rms_norm_eps": draw.choice([1e-5, 1e-6]),
        "tie_word_embeddings": draw.random() < 0.5,
        "max_position_embeddings": draw.choice([64, 4096]),
    }
    if family == "qwen2":  # its heads divide the width
        settings["head_dim"] = settings["hidden_size"] // heads
    if family == "gemma3_text":
        settings["rope_parameters"] = {
            "full_attention": _draw_rope(draw),
            "sliding_attention": {"rope_type": "default", "rope_theta": draw.choice([500.0, 10_000.0])},
        }
    else:
        settings["rope_parameters"] = _draw_rope(draw)
    if family.startswith("gemma"):
        settings["query_pre_attn_scalar"] = draw.choice([8, 24, 256])
        settings["final_logit_softcapping"] = draw.choice([None, 5.0, 30.0])
        settings["sliding_window"] = draw.choice([4, 16, 64])
        if family == "gemma2":
            settings["attn_logit_softcapping"] = draw.choice([None, 2.0, 50.0])
    if family in ("mistral", "mixtral"):
        settings["sliding_window"] = draw.choice([None, 4, 16])
    if family in ("qwen2", "qwen3", "qwen3_moe") and draw.random() < 0.5:
        settings |= {"use_sliding_window": True, "sliding_window": draw.choice([4, 16]), "max_window_layers": 0}
    if family == "mixtral":
        settings |= {"num_local_experts": draw.choice([2, 4]), "num_experts_per_tok": draw.choice([1, 2])}
    if family == "qwen3_moe":
        settings |= {"num_experts": draw.choice([4, 6]), "num_experts_per_tok": draw.choice([1, 2, 3])}
        settings |= {"moe_intermediate_size": 24, "norm_topk_prob": draw.random() < 0.5, "decoder_sparse_step": 1}
    return settings


def _draw_rope(draw: random.Random) -> dict[str, Any]:
    theta = draw.choice([100.0, 10_000.0, 1_000_000.0])
    scaled = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    return draw.choice(
        [
            {"rope_type": "default", "rope_theta": theta},
            {"rope_type": "linear", "rope_theta": theta, "factor": 4.0},
            {**scaled, "rope_theta": theta, "original_max_position_embeddings": 32},
        ]
    )


def write_model(folder: Path, family: str, settings: dict[str, Any], seed: int) -> Any:
    import torch
    import transformers

    config = transformers.AutoConfig.for_model(family, **settings, attn_implementation="eager")
    torch.manual_seed(seed)
    model: Any = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # norms begin with 1, biases with 0: nothing would be seen of them
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return model


def compute_logits(place: str, words: list[str], tokens: np.ndarray) -> Any:
    """Return what this trainer's model of a checkpoint computes."""
    import torch

    from trainer.torch_engine.model import Transformer

    store = open_store(place)
    found = reader.find_newest_checkpoint(store, SingleProcessTeam(World()), lambda _: None)
    assert found is not None
    contents = open_contents(store, found.manifest)
    model = parse_config(words).model
    ours = Transformer(model, LENGTH).eval()
    values = {one.name: torch.from_numpy(contents.read_tensor(f"model/{one.name}")) for one in list_parameters(model)}
    ours.load_state_dict(values, strict=True)
    with torch.no_grad():
        return finish(ours, model, torch.from_numpy(tokens)[None])


def finish(ours: Any, model: Any, tokens: Any) -> Any:
    import torch

    logits = (ours(tokens) @ ours.head_weight().T)[0]
    return model.softcap * torch.tanh(logits / model.softcap) if model.softcap else logits


@pytest.mark.parametrize(
    ("family", "number"),
    [
        pytest.param(family, number, marks=[pytest.mark.full] if number else [])
        for number in range(DRAWS)
        for family in FAMILIES
    ],
)
def test_a_drawn_model_computes_the_same_here_and_after_its_export(
    tmp_path: Path, family: str, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    torch = pytest.importorskip("torch")
    import safetensors.numpy
    import transformers

    settings = draw_settings(family, random.Random(f"{family} {number}"))
    theirs = write_model(tmp_path / "hf", family, settings, number)
    place = str(tmp_path / "checkpoints")
    assert main(["import", str(tmp_path / "hf"), place]) == 0
    words = capsys.readouterr().out.split("python -m trainer ")[1].split(" ...")[0].split()
    tokens = np.random.default_rng(number).integers(0, VOCABULARY, LENGTH)
    batch = torch.from_numpy(tokens)[None]
    with torch.no_grad():
        expected = theirs(input_ids=batch).logits[0]
    logits = compute_logits(place, words, tokens)
    losses = [float(torch.nn.functional.cross_entropy(one[:-1], batch[0, 1:])) for one in (logits, expected)]
    assert abs(losses[0] - losses[1]) <= 1.5e-6 * losses[1]
    assert float((logits - expected).abs().max()) <= 2e-5 * float(expected.abs().max())

    assert main(["export", place, str(tmp_path / "again")]) == 0
    (came,) = (safetensors.numpy.load_file(file) for file in (tmp_path / "hf").glob("*.safetensors"))
    (left,) = (safetensors.numpy.load_file(file) for file in (tmp_path / "again").glob("*.safetensors"))
    assert left.keys() == came.keys()
    assert all(np.array_equal(left[name], came[name]) for name in came)
    again: Any = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "again", attn_implementation="eager")
    with torch.no_grad():
        assert torch.equal(again.eval()(input_ids=batch).logits[0], expected)
