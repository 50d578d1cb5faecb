"""What is said of a run: warnings with the setting that mends them, times with their source, costs, few lines."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from trainer.config import Config
from trainer.errors import ConfigError
from trainer.options import parse
from trainer.shape.advice import Advice, advise
from trainer.shape.hardware import Hardware, read_hardware

GIB = 1 << 30
V5E = Hardware("v5litepod-8", "tpu", 8, "v5e", 2, 1, 16 * GIB, 197e12, 9.6, topology="2x4")
A100 = Hardware("p4d.24xlarge", "cuda", 8, "A100", 1, 1, 40 * GIB, 312e12, 32.8, 50e9)
TRN1 = Hardware("trn1.32xlarge", "neuron", 32, "Trainium", 1, 1, 16 * GIB, 95e12, 21.5, 100e9)
CPU = Hardware("local:2", "cpu", 2, hosts=2)


def given(*words: str) -> Config:
    return parse(["dtype=bf16", *words])


def codes(advice: Advice) -> dict[str, tuple[str, ...]]:
    return {concern.code: concern.fix for concern in advice.concerns}


@pytest.mark.promise("P39")
# facts/trainer.md 4.4: what the TPU compiler said of models of these sizes.
@pytest.mark.parametrize(
    ("hardware", "words", "fits"),
    [
        (V5E, ("model=1b", "batch=16", "seq_len=2048", "remat=true", "model.vocab=32000"), True),
        (V5E, ("model=8b", "batch=8", "seq_len=2048", "remat=true", "model.vocab=128256"), False),
        (
            replace(V5E, name="v6e-16", chip="v6e", devices=16, hosts=4, memory_bytes=32 * GIB, peak_flops=918e12),
            ("model=1b", "batch=128", "seq_len=4096", "remat=false", "model.vocab=32000"),
            False,
        ),
        (
            replace(V5E, name="v6e-16", chip="v6e", devices=16, hosts=4, memory_bytes=32 * GIB, peak_flops=918e12),
            ("model=1b", "batch=32", "seq_len=4096", "remat=true", "model.vocab=32000"),
            True,
        ),
    ],
)
def test_what_fits_and_what_does_not(hardware: Hardware, words: tuple[str, ...], fits: bool) -> None:
    assert advise(given(*words), hardware).fits is fits


@pytest.mark.promise("P39")
@pytest.mark.parametrize("words", [("model=1b", "batch=256"), ("model=8b", "batch=64", "remat=false")])
def test_the_setting_that_is_proposed_makes_it_fit(words: tuple[str, ...]) -> None:
    first = advise(given(*words), A100)
    assert first.fits is False
    fix = codes(first)["memory"]
    assert fix and advise(given(*words, *fix), A100).fits


def test_what_no_setting_mends_asks_for_more_devices() -> None:
    stopped = advise(given("model=70b", "batch=64"), V5E)
    fatal = [concern for concern in stopped.concerns if concern.fatal]
    assert stopped.fits is False and len(fatal) == 1
    assert fatal[0].fix == () and "more devices" in fatal[0].words


def test_heads_that_a_tpu_cannot_fill() -> None:
    found = codes(advise(given("model=1b", "model.heads=32", "model.kv_heads=8", "batch=16"), V5E))
    assert found["head-dim"] == ("model.heads=16", "model.kv_heads=8")
    assert "head-dim" not in codes(advise(given("model=1b", "batch=16"), V5E))
    assert "head-dim" not in codes(advise(given("model=1b", "model.heads=32", "batch=16"), A100))


def test_shapes_that_the_compiler_has_to_fill_up() -> None:
    found = advise(given("model=1b", "batch=16", "seq_len=1000", "model.vocab=50257"), V5E)
    words = {concern.words.partition("=")[0]: concern.fix for concern in found.concerns if concern.code == "padding"}
    assert words["seq_len"] == ("seq_len=1024",)
    assert "model.vocab" not in words  # 47 of 50,257 are not worth a word on a TPU
    cuda = advise(given("model=1b", "batch=16", "model.vocab=50257"), A100)
    assert [c.fix for c in cuda.concerns if c.code == "padding"] == [("model.vocab=50264",)]


def test_arithmetic_that_is_not_there_or_slow() -> None:
    assert codes(advise(parse(["model=1b", "batch=32", "dtype=fp16"]), TRN1))["fp16"] == ("dtype=bf16",)
    assert "Neuron" in next(
        c.words for c in advise(parse(["batch=32", "dtype=fp16"]), TRN1).concerns if c.code == "fp16"
    )
    assert codes(advise(parse(["model=1b", "batch=16"]), V5E))["fp32"] == ("dtype=bf16",)
    assert not codes(advise(parse(["batch=16"]), CPU))


def test_a_batch_too_small_to_fill_the_device() -> None:
    found = codes(advise(given("model=300m", "batch=8", "seq_len=128"), V5E))
    assert found["small-batch"] == ("batch=32",)
    assert "small-batch" not in codes(advise(given("model=300m", "batch=32", "seq_len=128"), V5E))
    split = codes(advise(given("model=300m", "batch=32", "seq_len=128", "accumulate=4"), V5E))
    assert split["small-batch"] == ("accumulate=2",)


def test_a_network_that_takes_longer_than_the_products() -> None:
    far = replace(A100, name="4 x p4d", devices=32, hosts=4, slices=4, network=1e9)
    assert "network" in codes(advise(given("model=1b", "batch=32"), far))
    assert "network" not in codes(advise(given("model=1b", "batch=32"), A100))


def test_a_batch_or_mesh_that_does_not_divide_is_an_error() -> None:
    with pytest.raises(ConfigError, match="use batch=8 or 16"):
        advise(given("batch=10"), V5E)
    with pytest.raises(ConfigError, match=r"mesh\.tensor=3"):
        advise(given("mesh.tensor=3", "batch=8"), V5E)


def test_step_time_is_a_range_that_holds_the_published_rates() -> None:
    found = advise(given("model=1b", "batch=64", "model.vocab=32000", "accumulate=2"), V5E)
    assert found.timing.seconds and found.timing.mfu and found.timing.tokens_per_day
    low, high = found.timing.seconds
    assert low == pytest.approx(found.timing.flops / (8 * 197e12 * 0.61))
    assert high > low and found.timing.mfu[1] == pytest.approx(0.61)
    assert found.timing.tokens_per_day[1] == pytest.approx(86400 * found.timing.tokens / low)
    assert "MaxText" in found.timing.source


TRN1_32 = Hardware("32 x trn1.32xlarge", "neuron", 1024, "Trainium", 32, 32, 16 * GIB, 95e12, network=100e9)
TPU7X = Hardware("tpu7x-128", "tpu", 128, "tpu7x", 16, 1, 96 * GIB, 1153.5e12)


@pytest.mark.parametrize(
    ("hardware", "words", "seconds"),
    [
        # Sequences a second by AWS (Neuron 2.24), seconds of a step by Google (tpu-recipes, 2026).
        (TRN1_32, "model=8b batch=1024", 1024 / 47.95),
        (TRN1_32, "model=70b batch=1024 mesh.tensor=8", 1024 / 7.94),
        (TPU7X, "model=70b batch=256", 12.2),
    ],
)
def test_published_runs_lie_within_what_is_expected_of_them(hardware: Hardware, words: str, seconds: float) -> None:
    found = advise(given(*words.split(), "seq_len=8192", "model.vocab=128256"), hardware)
    assert found.timing.seconds
    shortest, longest = found.timing.seconds
    assert shortest < seconds < longest


def test_the_cost_follows_from_price_and_time() -> None:
    found = advise(given("model=1b", "batch=64", "steps=1000", "accumulate=2"), V5E)
    assert found.cost and found.run_seconds
    assert found.cost.run == pytest.approx(tuple(9.6 / 3600 * seconds for seconds in found.run_seconds))
    assert found.cost.billion[0] == pytest.approx(found.cost.run[0] * 1e9 / found.run_tokens)
    assert advise(given("batch=64"), replace(V5E, price=None)).cost is None


def test_fp32_has_no_share_of_a_peak_that_nobody_published() -> None:
    found = advise(parse(["model=1b", "batch=64"]), V5E)
    assert found.timing.mfu is None and found.timing.tokens_per_day
    (line,) = [line for line in found.lines() if line.startswith("expected ")]
    assert "MFU" not in line and "tokens a day" in line


def test_without_a_published_peak_no_time_is_made_up() -> None:
    found = advise(parse(["batch=16"]), CPU)
    assert found.timing.seconds is None and found.timing.mfu is None and found.cost is None and found.fits is None


@pytest.mark.parametrize("hardware", [V5E, A100, TRN1, CPU])
@pytest.mark.parametrize("model", ["tiny", "1b", "70b"])
def test_it_is_told_in_few_lines_and_as_plain_json(hardware: Hardware, model: str) -> None:
    odd = ("seq_len=1001", "model.vocab=50257", "batch=64", "dtype=fp16", "model.heads=64", "model.kv_heads=8")
    found = advise(parse([f"model={model}", *odd]), hardware)
    lines = found.lines()
    assert 3 <= len(lines) <= 12
    again = json.loads(json.dumps(found.as_json()))
    assert again["text"] == lines and again["memory"]["total"] == found.memory.total


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("{", "no JSON"),
        ("[]", "empty"),
        ("3", "no object"),
        ('{"name": "a", "kind": "tpu"}', "'devices' is missing"),
        ('{"name": "a", "kind": "gpu", "devices": 1}', "not one of tpu"),
        ('{"name": "a", "kind": "tpu", "devices": 0}', "whole number"),
        ('{"name": "a", "kind": "tpu", "devices": 1, "hbm": 3}', "unknown field 'hbm'"),
        ('{"name": "a", "kind": "tpu", "devices": 1, "price": "3"}', "not a number"),
    ],
)
def test_hardware_that_cannot_be_read_is_named(text: str, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        read_hardware(text)
