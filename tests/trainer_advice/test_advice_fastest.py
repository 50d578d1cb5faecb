"""`advise --fastest`: settings that fit, keep the batch, and are never slower than the default ones."""

from __future__ import annotations

import json

import pytest

from trainer.commands import advise
from trainer.errors import ConfigError
from trainer.options import parse_config
from trainer.shape.advice import build_advice
from trainer.shape.hardware import Hardware, Kind
from trainer.shape.memory import estimate_usable_memory
from trainer.shape.mesh import Mesh
from trainer.shape.search import find_fastest
from trainer.shape.timing import estimate_network_seconds

GIB = 1 << 30
V5E = [
    Hardware(name=f"v5e-{n}", kind="tpu", chip="v5e", devices=n, hosts=max(1, n // 4), memory_bytes=16 * GIB,
             peak_flops=197e12) for n in (1, 4, 16, 64, 256)
]  # fmt: skip
H100 = [
    Hardware(name=f"{n} x h100", kind="cuda", chip="H100", devices=8 * n, hosts=n, slices=n, memory_bytes=80 * GIB,
             peak_flops=989e12, network=400e9) for n in (1, 4, 16)
]  # fmt: skip


@pytest.mark.parametrize("model", ["300m", "1b", "8b", "70b"])
@pytest.mark.parametrize("hardware", [*V5E, *H100], ids=lambda one: one.name)
def test_the_fastest_way_fits_and_keeps_the_batch(model: str, hardware: Hardware) -> None:
    config = parse_config([f"model={model}", "batch=512"])
    found = find_fastest(config, hardware)
    try:
        usual = build_advice(config, hardware)
    except ConfigError:
        usual = None
    if found is None:
        assert usual is None or not usual.fits or usual.memory.total > 0.9 * (estimate_usable_memory(hardware) or 0)
        return
    assert found.advice.fits and found.advice.timing.seconds is not None
    assert found.advice.timing.tokens == 512 * config.seq_len
    again = build_advice(parse_config([f"model={model}", "batch=512", *found.settings]), hardware)
    assert again.timing.seconds == found.advice.timing.seconds, "the settings say the same"
    assert (again.mesh, again.memory) == (found.advice.mesh, found.advice.memory)
    if usual is not None and usual.fits and usual.timing.seconds is not None:
        assert sum(found.advice.timing.seconds) <= 1.021 * sum(usual.timing.seconds)


def test_a_mesh_that_was_given_stays_and_machines_that_it_does_not_divide_are_left_out() -> None:
    for words, shape in ((["mesh.fsdp=4"], (4, 4, 1)), (["mesh.data=2"], (2, 8, 1)), (["mesh.tensor=2"], (1, 8, 2))):
        config = parse_config(["model=300m", "batch=512", *words])
        found = {one.devices: find_fastest(config, one) for one in V5E}
        chosen = found[16]
        assert found[1] is None and chosen is not None, words
        mesh = build_advice(parse_config(["model=300m", "batch=512", *words, *chosen.settings]), V5E[2]).mesh
        assert mesh == chosen.advice.mesh and (mesh.data, mesh.fsdp, mesh.tensor) == shape


def test_rows_are_divided_over_devices_only_where_one_does_not_fit() -> None:
    hardware = H100[0]
    words = ["model=8b", "engine=torch", "compile=true", "batch=8"]
    for length, context in ((8192, 1), (524_288, 2)):
        found = find_fastest(parse_config([*words, f"seq_len={length}"]), hardware)
        assert found is not None and found.advice.mesh.context == context, length
        assert (f"mesh.context={context}" in found.settings) == (context > 1)
        assert found.advice.fits
    advice = build_advice(parse_config([*words, "seq_len=524288"]), hardware)
    (concern,) = [one for one in advice.concerns if one.code == "memory"]
    assert concern.fatal and any(word.startswith("mesh.context=") for word in concern.fix)
    network = [
        estimate_network_seconds(parse_config(words), Mesh(1, 8, 1, context), hardware) or 0.0 for context in (1, 2, 8)
    ]
    assert network[0] < network[1] < network[2]


@pytest.mark.parametrize(
    ("kind", "words"),
    [("tpu", "device=xla"), ("tpu", "engine=torch"), ("neuron", "engine=torch"), ("neuron", "engine=jax")],
)
def test_a_context_axis_is_refused_where_no_program_has_it(kind: Kind, words: str) -> None:
    hardware = Hardware(name=kind, kind=kind, chip="v5e", devices=8, memory_bytes=16 * GIB, peak_flops=1e14)
    settings = ["model=300m", "batch=64", "dtype=bf16", *words.split()]
    with pytest.raises(ConfigError, match=r"mesh.context=2: .* has no context parallelism: leave it out"):
        build_advice(parse_config([*settings, "mesh.context=2"]), hardware)
    assert build_advice(parse_config(settings), hardware).mesh.context == 1


def test_machines_on_which_nothing_fits_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    hardware = json.dumps(
        [
            {"name": "small", "kind": "tpu", "chip": "v5e", "devices": 1, "memory_bytes": 16 * GIB, "peak_flops": 1e14},
            {
                "name": "large",
                "kind": "cuda",
                "chip": "H100",
                "devices": 8,
                "memory_bytes": 80 * GIB,
                "peak_flops": 1e15,
            },
        ]
    )
    assert advise.run(["model=8b", "batch=64", "--fastest", "--json", "--hardware", hardware]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["hardware"]["name"] == "large" and found["settings"]
