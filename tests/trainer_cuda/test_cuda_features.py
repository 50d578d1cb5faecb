"""Masks, model families, optimizers and adapters on a GPU, compared with the same runs on the processor.

Everywhere, each test's code also runs with device=cpu, so that it is known to work when it meets a GPU.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from cuda_cases import NARROW, NEAR, cuda, losses, on_gpu, program, run

FULL = ("dtype=fp32", "exact=true")
ROWS = ("seq_len=256", "batch=4")  # two tiles of flex_attention
GEMMA = (
    *("model.window=96", "model.full_every=2", "model.local_rope_theta=1000", "model.activation=gelu_tanh"),
    *("model.post_norm=true", "model.norm_offset=true", "model.embed_scale=true"),
)
FEATURES = {
    "documents": ("data.document_mask=true", *ROWS),
    "documents and a window": ("data.document_mask=true", "model.window=96", *ROWS),
    "gemma3": (*GEMMA, "model.qk_norm=true", *ROWS),
    "gemma2": (*GEMMA, "model.attention_softcap=20", "model.softcap=10", *ROWS),
    "qwen2": ("model.qkv_bias=true",),
    "muon": ("optim.kind=muon",),
    "adafactor": ("optim.kind=adafactor",),
    "lora": ("lora.rank=4", "optim.lr=0.01"),
}
feature = pytest.mark.parametrize("settings", FEATURES.values(), ids=FEATURES)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of documents of 60 to 220 bytes."""
    folder = tmp_path_factory.mktemp("documents")
    for index in range(400):
        lines = [f"the sum of {i} and {i + 1} is {2 * i + 1}\n" for i in range(index, index + 2 + index % 6)]
        (folder / f"{index:03}.txt").write_text("".join(lines))
    return folder


@feature
@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("cpu", ("dtype=bf16", "exact=true")),
        pytest.param("cuda", (*FULL, "compile=false"), marks=cuda.marks),
        pytest.param("cuda", (*FULL, "compile=true"), marks=cuda.marks),
        pytest.param("cuda", (), marks=cuda.marks),
        pytest.param("cuda", ("remat=full",), marks=cuda.marks),
    ],
    ids=["cpu", "fp32", "fp32-compiled", "default", "remat"],
)
def test_feature_has_the_losses_of_the_processor(
    settings: tuple[str, ...], device: str, words: tuple[str, ...], tmp_path: Path, corpus: Path
) -> None:
    expected = losses(run(tmp_path / "expected", corpus, "cpu", *FULL, *settings))
    assert expected[-1] < expected[0]
    found = losses(run(tmp_path / "found", corpus, device, *words, *settings))
    assert found == pytest.approx(expected, abs=NEAR if "dtype=fp32" in words else NARROW)


@feature
@pytest.mark.parametrize("device", [pytest.param("cpu", marks=pytest.mark.slow), cuda])
def test_feature_has_the_same_losses_with_jax(
    settings: tuple[str, ...], device: str, tmp_path: Path, corpus: Path
) -> None:
    expected = losses(run(tmp_path / "expected", corpus, "cpu", *FULL, *settings))
    words = ("engine=jax", f"device={device}", *settings)
    assert losses(program(tmp_path, corpus, ["-m", "trainer"], *words, *FULL)) == pytest.approx(expected, abs=NEAR)
    if device == "cuda":
        assert losses(program(tmp_path, corpus, ["-m", "trainer"], *words)) == pytest.approx(expected, abs=NARROW)


@on_gpu
def test_a_masked_run_on_a_gpu_keeps_no_scores(tmp_path: Path, corpus: Path) -> None:
    """Compare the memory of rows of 4,096 tokens with masks and without: (length x length) numbers would be more."""
    words = ("seq_len=4096", "batch=2", "steps=3")
    plain = run(tmp_path / "plain", corpus, "cuda", *words)[-1]["memory"]
    for name in ("documents", "gemma3"):
        settings = [setting for setting in FEATURES[name] if setting not in ROWS]
        assert run(tmp_path / name, corpus, "cuda", *words, *settings)[-1]["memory"] < 1.3 * plain


@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise"])
@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("cpu", ()),
        pytest.param("cuda", ("compile=false",), marks=cuda.marks),
        pytest.param("cuda", (), marks=cuda.marks),
        pytest.param("cuda", ("remat=full",), marks=cuda.marks),
    ],
    ids=["cpu", "uncompiled", "default", "remat"],
)
def test_products_in_float8_are_near(
    recipe: str, device: str, words: tuple[str, ...], tmp_path: Path, corpus: Path
) -> None:
    sizes = ("model.ffn=192", "batch=2", "dtype=bf16")
    expected = losses(run(tmp_path / "expected", corpus, device, *sizes, *words))
    found = losses(run(tmp_path / "found", corpus, device, *sizes, *words, f"float8={recipe}"))
    assert found != expected
    assert found == pytest.approx(expected, abs=NARROW)
