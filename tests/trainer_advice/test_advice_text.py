"""The advice for a run: warnings with the setting that fixes them, times with their source, costs, few lines."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from trainer.config import Config
from trainer.errors import ConfigError
from trainer.options import parse_config
from trainer.shape.advice import Advice, build_advice
from trainer.shape.hardware import Hardware, parse_hardware

GIB = 1 << 30
V5E = Hardware(
    name="v5litepod-8",
    kind="tpu",
    devices=8,
    chip="v5e",
    hosts=2,
    slices=1,
    memory_bytes=16 * GIB,
    peak_flops=197e12,
    price=9.6,
    topology="2x4",
)
A100 = Hardware(
    name="p4d.24xlarge",
    kind="cuda",
    devices=8,
    chip="A100",
    hosts=1,
    slices=1,
    memory_bytes=40 * GIB,
    peak_flops=312e12,
    price=32.8,
    network=50e9,
)
TRN1 = Hardware(
    name="trn1.32xlarge",
    kind="neuron",
    devices=32,
    chip="Trainium",
    hosts=1,
    slices=1,
    memory_bytes=16 * GIB,
    peak_flops=95e12,
    price=21.5,
    network=100e9,
)
CPU = Hardware(name="local:2", kind="cpu", devices=2, hosts=2)


def given(*words: str) -> Config:
    return parse_config(["dtype=bf16", *words])


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
def test_memory_estimate_decides_whether_a_run_fits(hardware: Hardware, words: tuple[str, ...], fits: bool) -> None:
    assert build_advice(given(*words), hardware).fits is fits


@pytest.mark.promise("P39")
@pytest.mark.parametrize("words", [("model=1b", "batch=256", "remat=none"), ("model=8b", "batch=64", "remat=none")])
def test_the_setting_that_is_proposed_makes_it_fit(words: tuple[str, ...]) -> None:
    first = build_advice(given(*words), A100)
    assert first.fits is False
    fix = codes(first)["memory"]
    assert fix and build_advice(given(*words, *fix), A100).fits


@pytest.mark.parametrize("batch", [8192, 100_000])
def test_a_large_batch_is_divided_as_often_as_needed(batch: int) -> None:
    v5e_4 = replace(V5E, name="v5e-4", devices=4, hosts=1)
    words = ("model=300m", f"batch={batch}")
    fix = codes(build_advice(given(*words), v5e_4))["memory"]
    assert fix and build_advice(given(*words, *fix), v5e_4).fits


def test_run_that_no_setting_makes_fit_needs_more_devices() -> None:
    stopped = build_advice(given("model=70b", "batch=64"), V5E)
    fatal = [concern for concern in stopped.concerns if concern.fatal]
    assert stopped.fits is False and len(fatal) == 1
    assert fatal[0].fix == () and "more devices" in fatal[0].words


def test_heads_that_a_tpu_cannot_fill() -> None:
    found = codes(build_advice(given("model=1b", "model.heads=32", "model.kv_heads=8", "batch=16"), V5E))
    assert found["head-dim"] == ("model.heads=16", "model.kv_heads=8")
    assert "head-dim" not in codes(build_advice(given("model=1b", "batch=16"), V5E))
    assert "head-dim" not in codes(build_advice(given("model=1b", "model.heads=32", "batch=16"), A100))


def test_shapes_that_the_compiler_has_to_fill_up() -> None:
    found = build_advice(given("model=1b", "batch=16", "seq_len=1000", "model.vocab=50257"), V5E)
    words = {concern.words.partition("=")[0]: concern.fix for concern in found.concerns if concern.code == "padding"}
    assert words["seq_len"] == ("seq_len=1024",)
    assert "model.vocab" not in words  # 47 of 50,257 are not worth a word on a TPU
    cuda = build_advice(given("model=1b", "batch=16", "model.vocab=50257"), A100)
    assert [c.fix for c in cuda.concerns if c.code == "padding"] == [("model.vocab=50264",)]


def test_an_optimizer_other_than_adamw_on_torch_xla_is_fatal() -> None:
    xla, native = (
        build_advice(parse_config(["model=1b", "batch=32", "engine=torch", "optim.kind=muon", *more]), TRN1).concerns
        for more in (["device=xla"], ["device=neuron"])
    )
    assert [(concern.fix, concern.fatal) for concern in xla if concern.code == "optimizer"] == [
        (("optim.kind=adamw",), True)
    ]
    assert "optimizer" not in {concern.code for concern in native}


def test_missing_or_slow_arithmetic_is_a_warning() -> None:
    assert codes(build_advice(parse_config(["model=1b", "batch=16", "dtype=fp32"]), V5E))["fp32"] == ("dtype=bf16",)
    assert "fp32" not in codes(build_advice(parse_config(["model=1b", "batch=16"]), V5E))
    assert not codes(build_advice(parse_config(["batch=16"]), CPU))
    slow = codes(build_advice(parse_config(["model=1b", "batch=64", "compile=false", "exact=true"]), A100))
    assert (slow["uncompiled"], slow["exact"]) == (("compile=true",), ("exact=false",))
    assert not {"uncompiled", "exact"} & set(codes(build_advice(parse_config(["model=1b", "batch=64"]), A100)))


def test_a_batch_too_small_to_fill_the_device() -> None:
    found = codes(build_advice(given("model=300m", "batch=8", "seq_len=128"), V5E))
    assert found["small-batch"] == ("batch=32",)
    assert "small-batch" not in codes(build_advice(given("model=300m", "batch=32", "seq_len=128"), V5E))
    split = codes(build_advice(given("model=300m", "batch=32", "seq_len=128", "accumulate=4"), V5E))
    assert split["small-batch"] == ("accumulate=2",)
    divided = ("model=300m", "batch=1", "seq_len=2048", "mesh.context=8")
    assert codes(build_advice(given(*divided), V5E))["small-batch"] == ("batch=2",), "256 tokens of a row on each"


def test_a_network_that_takes_longer_than_the_products() -> None:
    far = replace(A100, name="4 x p4d", devices=32, hosts=4, slices=4, network=1e9)
    assert "network" in codes(build_advice(given("model=1b", "batch=32"), far))
    assert "network" not in codes(build_advice(given("model=1b", "batch=32"), A100))


def test_a_batch_or_mesh_that_does_not_divide_is_an_error() -> None:
    with pytest.raises(ConfigError, match="use batch=8 or 16"):
        build_advice(given("batch=10"), V5E)
    with pytest.raises(ConfigError, match=r"mesh\.tensor=3"):
        build_advice(given("mesh.tensor=3", "batch=8"), V5E)


def test_step_time_is_a_range_that_holds_the_published_rates() -> None:
    found = build_advice(given("model=1b", "batch=64", "model.vocab=32000", "accumulate=2"), V5E)
    assert found.timing.seconds and found.timing.mfu and found.timing.tokens_per_day
    low, high = found.timing.seconds
    assert low == pytest.approx(found.timing.flops / (8 * 197e12 * 0.61))
    assert high > low and found.timing.mfu[1] == pytest.approx(0.61)
    assert found.timing.tokens_per_day[1] == pytest.approx(86400 * found.timing.tokens / low)
    assert "MaxText" in found.timing.source


@pytest.mark.parametrize(("layers", "times"), [(16, 1), (2, 4)], ids=["all", "two-of-eight"])
def test_muon_takes_the_time_of_its_products_on_the_busiest_device(layers: int, times: int) -> None:
    words = ("model=1b", f"model.layers={layers}", "batch=64", "model.vocab=32000", "remat=none")
    adam, muon = (build_advice(given(*words, f"optim.kind={kind}"), V5E) for kind in ("adamw", "muon"))
    assert adam.timing.seconds and muon.timing.seconds
    wide, narrow, hidden = 2048, 512, 5632
    square, keys, gates = (
        5 * (4 * low * low * high + 2 * low**3) for low, high in ((wide, wide), (narrow, wide), (wide, hidden))
    )
    flops = layers * (2 * square + 2 * keys + 3 * gates)
    assert muon.timing.flops == adam.timing.flops
    extra = muon.timing.seconds[0] - adam.timing.seconds[0]
    assert extra == pytest.approx(times * flops / (8 * 197e12 * 0.61))
    assert muon.timing.network_seconds and adam.timing.network_seconds
    assert muon.timing.network_seconds > adam.timing.network_seconds


TRN1_32 = Hardware(
    name="32 x trn1.32xlarge",
    kind="neuron",
    devices=1024,
    chip="Trainium",
    hosts=32,
    slices=32,
    memory_bytes=16 * GIB,
    peak_flops=95e12,
    network=100e9,
)
TPU7X = Hardware(
    name="tpu7x-128",
    kind="tpu",
    devices=128,
    chip="tpu7x",
    hosts=16,
    slices=1,
    memory_bytes=96 * GIB,
    peak_flops=1153.5e12,
)


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
    found = build_advice(given(*words.split(), "seq_len=8192", "model.vocab=128256"), hardware)
    assert found.timing.seconds
    shortest, longest = found.timing.seconds
    assert shortest < seconds < longest


def test_the_cost_follows_from_price_and_time() -> None:
    found = build_advice(given("model=1b", "batch=64", "steps=1000", "accumulate=2"), V5E)
    assert found.cost and found.run_seconds
    assert found.cost.run == pytest.approx(tuple(9.6 / 3600 * seconds for seconds in found.run_seconds))
    assert found.cost.billion[0] == pytest.approx(found.cost.run[0] * 1e9 / found.run_tokens)
    assert build_advice(given("batch=64"), replace(V5E, price=None)).cost is None


def test_fp32_has_no_mfu_without_a_published_peak() -> None:
    found = build_advice(parse_config(["model=1b", "batch=64", "dtype=fp32"]), V5E)
    assert found.timing.mfu is None and found.timing.tokens_per_day
    (line,) = [line for line in found.lines() if line.startswith("expected ")]
    assert "MFU" not in line and "tokens a day" in line


def test_without_a_published_peak_no_time_is_estimated() -> None:
    found = build_advice(parse_config(["batch=16"]), CPU)
    assert found.timing.seconds is None and found.timing.mfu is None and found.cost is None and found.fits is None


@pytest.mark.parametrize("hardware", [V5E, A100, TRN1, CPU])
@pytest.mark.parametrize("model", ["tiny", "1b", "70b"])
def test_advice_is_a_few_lines_or_plain_json(hardware: Hardware, model: str) -> None:
    odd = ("seq_len=1001", "model.vocab=50257", "batch=64", "dtype=fp32", "model.heads=64", "model.kv_heads=8")
    found = build_advice(parse_config([f"model={model}", *odd]), hardware)
    lines = found.lines()
    assert 3 <= len(lines) <= 13
    again = json.loads(json.dumps(found.as_json()))
    assert any(line.startswith("libtpu ") for line in lines) == (hardware.kind == "tpu")
    assert again["text"] == lines and again["memory"]["total"] == found.memory.total


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("{", "not JSON"),
        ("[]", "empty"),
        ("3", "not an object"),
        ('{"name": "a", "kind": "tpu"}', "'devices' is missing"),
        ('{"name": "a", "kind": "gpu", "devices": 1}', "not one of tpu"),
        ('{"name": "a", "kind": "tpu", "devices": 0}', "not a positive integer"),
        ('{"name": "a", "kind": "tpu", "devices": 1, "hbm": 3}', "unknown field 'hbm'"),
        ('{"name": "a", "kind": "tpu", "devices": 1, "price": "3"}', "not a number"),
    ],
)
def test_hardware_that_cannot_be_read_is_named(text: str, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        parse_hardware(text)


@pytest.mark.parametrize(
    ("words", "factor"),
    [
        (("compile=false",), 1.25),
        (("exact=true",), 1.08),
        (("compile=false", "exact=true"), 1.25 * 1.08),
        (("dtype=fp32",), 3.1),
        (("dtype=fp32", "exact=true"), 16 * 1.08),
        (("remat=selective",), 1.01),
        (("remat=full",), 1.07),
    ],
)
def test_time_on_a_gpu_follows_every_switch(words: tuple[str, ...], factor: float) -> None:
    fast, slow = (
        build_advice(
            parse_config(["model=1b", "batch=64", "optim.kind=adafactor", "remat=none", *more]), A100
        ).timing.seconds
        for more in ((), words)
    )
    assert fast and slow
    assert slow[0] / fast[0] == pytest.approx(factor)
    assert slow[1] > fast[1]
