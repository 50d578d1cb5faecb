"""Export to and import from Hugging Face's Llama layout: names, values, settings, and the same function of tokens."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from checkpoint_toy import config_of, folder_of, manifest_of, resume, save, truth
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from trainer.__main__ import main
from trainer.checkpoint import reader
from trainer.checkpoint.dtypes import decode_values, encode_values
from trainer.checkpoint.layout import part_name
from trainer.checkpoint.regions import open_contents
from trainer.checkpoint.store import open_store
from trainer.checkpoint.weights_export import ExportRequest, export_weights
from trainer.checkpoint.weights_import import import_weights
from trainer.data.described import PLAIN_TEMPLATE
from trainer.environment import World
from trainer.errors import ConfigError
from trainer.options import parse_config
from trainer.shape.architecture import list_parameters
from trainer.shape.mesh import Mesh
from trainer.tcp_team import SingleProcessTeam

WORDS = ("model.dim=32", "model.layers=2", "model.heads=4", "model.kv_heads=2", "model.ffn=48", "model.vocab=64")
SETTINGS = {
    "model_type": "llama",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "vocab_size": 64,
    "rms_norm_eps": 1e-6,
    "rope_theta": 500.0,
    "tie_word_embeddings": False,
}


_REST_OF_ROPE = '"low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 64'


def shapes(settings: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The tensors of a Llama, from its documentation."""
    dim, ffn, vocab = settings["hidden_size"], settings["intermediate_size"], settings["vocab_size"]
    head = settings.get("head_dim", dim // settings["num_attention_heads"])
    wide, narrow = head * settings["num_attention_heads"], head * settings["num_key_value_heads"]
    found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab, dim), "model.norm.weight": (dim,)}
    for layer in range(settings["num_hidden_layers"]):
        block = f"model.layers.{layer}"
        found |= {
            f"{block}.input_layernorm.weight": (dim,),
            f"{block}.post_attention_layernorm.weight": (dim,),
            f"{block}.self_attn.q_proj.weight": (wide, dim),
            f"{block}.self_attn.k_proj.weight": (narrow, dim),
            f"{block}.self_attn.v_proj.weight": (narrow, dim),
            f"{block}.self_attn.o_proj.weight": (dim, wide),
            f"{block}.mlp.gate_proj.weight": (ffn, dim),
            f"{block}.mlp.up_proj.weight": (ffn, dim),
            f"{block}.mlp.down_proj.weight": (dim, ffn),
        }
    return found if settings["tie_word_embeddings"] else {**found, "lm_head.weight": (vocab, dim)}


def llama_folder(folder: Path, **changes: Any) -> dict[str, np.ndarray]:
    """A Llama as others leave it: two files with an index. Returns its tensors."""
    settings = SETTINGS | changes
    draw = np.random.default_rng(3)
    tensors = {
        name: (draw.standard_normal(shape, np.float32) * np.float32(0.2) + (len(shape) == 1)).astype(np.float32)
        for name, shape in shapes(settings).items()
    }
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(settings))
    names = sorted(tensors)
    files = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, held in files.items():
        safetensors.numpy.save_file({name: tensors[name] for name in held}, folder / file)
    weight_map = {name: file for file, held in files.items() for name in held}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return tensors


def llama_logits(settings: dict[str, Any], weights: dict[str, np.ndarray], tokens: np.ndarray) -> np.ndarray:
    """The published Llama in float64. tokens: (length,). Returns (length, vocab)."""
    w = {name: values.astype(np.float64) for name, values in weights.items()}
    heads, kv_heads = settings["num_attention_heads"], settings["num_key_value_heads"]
    head = settings.get("head_dim") or settings["hidden_size"] // heads
    length = len(tokens)

    def norm(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + settings["rms_norm_eps"]) * scale

    angles = np.outer(np.arange(length), settings["rope_theta"] ** (-np.arange(0, head, 2) / head))
    cosine, sine = (np.concatenate([f(angles)] * 2, -1)[:, None] for f in (np.cos, np.sin))

    def rotary(x: np.ndarray) -> np.ndarray:
        half = np.concatenate([-x[..., head // 2 :], x[..., : head // 2]], -1)
        return x * cosine + half * sine

    x = w["model.embed_tokens.weight"][tokens]
    for layer in range(settings["num_hidden_layers"]):
        block = f"model.layers.{layer}"
        h = norm(x, w[f"{block}.input_layernorm.weight"])
        q, k, v = (
            (h @ w[f"{block}.self_attn.{name}_proj.weight"].T).reshape(length, count, head)
            for name, count in (("q", heads), ("k", kv_heads), ("v", kv_heads))
        )
        q, k = rotary(q), rotary(k)
        k, v = (np.repeat(t, heads // kv_heads, axis=1) for t in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(head)
        scores = np.where(np.tril(np.ones((length, length), bool)), scores, -np.inf)
        share = np.exp(scores - scores.max(-1, keepdims=True))
        share /= share.sum(-1, keepdims=True)
        mixed = np.einsum("hqk,khd->qhd", share, v).reshape(length, -1)
        x = x + mixed @ w[f"{block}.self_attn.o_proj.weight"].T
        h = norm(x, w[f"{block}.post_attention_layernorm.weight"])
        gate = h @ w[f"{block}.mlp.gate_proj.weight"].T
        x = (
            x
            + (gate / (1 + np.exp(-gate)) * (h @ w[f"{block}.mlp.up_proj.weight"].T))
            @ w[f"{block}.mlp.down_proj.weight"].T
        )
    logits: np.ndarray = norm(x, w["model.norm.weight"]) @ w.get("lm_head.weight", w["model.embed_tokens.weight"]).T
    return logits


def read_folder(folder: Path) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    for file in folder.glob("*.safetensors"):
        found |= safetensors.numpy.load_file(file)
    return found


@pytest.mark.promise("P38")
@pytest.mark.parametrize("changes", [{}, {"tie_word_embeddings": True, "head_dim": 16}])
def test_an_imported_llama_is_the_same_function_here_and_bit_equal_when_exported_again(
    tmp_path: Path, changes: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    torch = pytest.importorskip("torch")
    from trainer.torch_engine.model import Transformer

    settings = SETTINGS | changes
    tensors = llama_folder(tmp_path / "hf", **changes)
    place = str(tmp_path / "checkpoints")
    assert main(["import", str(tmp_path / "hf"), place]) == 0
    reported = capsys.readouterr().out
    words = reported.split("python -m trainer ")[1].split(" ...")[0].split()
    model = parse_config(words).model  # the printed words configure this very model
    store = open_store(place)
    found = reader.find_newest_checkpoint(store, SingleProcessTeam(World()), lambda _: None)
    assert found is not None
    contents = open_contents(store, found.manifest)
    ours = Transformer(model, 16).eval()
    ours.load_state_dict(
        {p.name: torch.from_numpy(contents.read_tensor(f"model/{p.name}")) for p in list_parameters(model)}, strict=True
    )
    tokens = np.random.default_rng(1).integers(0, 64, 16)
    with torch.no_grad():
        logits = (ours(torch.from_numpy(tokens)[None]) @ ours.head_weight().T)[0].numpy()
    expected = llama_logits(settings, tensors, tokens)
    assert np.abs(expected).max() > 1, "something to compare"
    np.testing.assert_allclose(logits, expected, atol=1e-5 * float(np.abs(expected).max()))
    assert main(["export", place, str(tmp_path / "again")]) == 0
    again = read_folder(tmp_path / "again")
    assert again.keys() == tensors.keys()
    for name, values in tensors.items():
        np.testing.assert_array_equal(again[name], values)
    written = json.loads((tmp_path / "again" / "config.json").read_text())
    types = {"dtype": "float32", "torch_dtype": "float32"}
    assert written == {**settings, **types, "architectures": ["LlamaForCausalLM"]}, "as it came"


@pytest.mark.promise("P38")
def test_a_run_begins_from_imported_weights_with_an_optimizer_at_zero(tmp_path: Path) -> None:
    llama_folder(tmp_path / "hf", tie_word_embeddings=True, rope_theta=10000.0, rms_norm_eps=1e-5)
    place = f"file://{tmp_path}/imported"
    import_weights(tmp_path / "hf", place, lambda _: None, part_bytes=5000)
    assert len(list((tmp_path / "imported" / folder_of(0, 0, 0)).glob("part-00000-*.safetensors"))) > 5
    own = str(tmp_path / "own")
    config = config_of("optim.ema=0.5")
    done, engines, lines = resume(own, config, Mesh(fsdp=2), 2, f"{place}/{folder_of(0, 0, 0)}")
    assert done == 0
    assert lines == [
        "note: the optimizer starts at zero: the checkpoint holds weights alone",
        "note: the averaged weights begin as the checkpoint's weights: it has none",
        *lines[2:],
    ]
    assert lines[2].startswith(f"started from the imported weights in {place}, read in ")
    for engine in engines:
        named = {(piece.name, piece.box): values for piece, values in engine.state.items()}
        for (name, box), values in named.items():
            if name.startswith("average/"):
                np.testing.assert_array_equal(values, named[(name.replace("average/", "model/"), box)])
            assert values.any() != name.startswith("optimizer/")
    save(own, config, Mesh(fsdp=2), 2, 1)
    assert resume(own, config, Mesh(), 1, f"{place}/{folder_of(0, 0, 0)}")[0] == 1


def test_import_prints_data_of_the_models_tokens_and_eval_asks_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "run/checkpoints"
    save(str(place), config_of("model.vocab=256"), Mesh(), 1, 1)
    assert main(["export", str(place), str(tmp_path / "bytes")]) == 0
    assert (tmp_path / "bytes" / "chat_template.jinja").read_text() == PLAIN_TEMPLATE, "that of chat=auto"
    shutil.copytree(tmp_path / "bytes", tmp_path / "named")
    (tmp_path / "named/tokenizer.json").write_text("{}")
    shutil.copytree(tmp_path / "bytes", tmp_path / "none")
    (tmp_path / "none/tokenizer.json").unlink()
    prepared = f"prepare SOURCE FOLDER tokenizer={tmp_path}/named/tokenizer.json"
    for folder, data, line in (
        ("bytes", "SOURCE", "text as it is"),
        ("named", "FOLDER", prepared),
        ("none", "SOURCE", "text as it is"),
    ):
        capsys.readouterr()
        assert main(["import", str(tmp_path / folder), str(tmp_path / f"from-{folder}")]) == 0
        printed = capsys.readouterr().out
        assert f" data={data} ...\n" in printed and line in printed
        assert ("prepare" in printed) == (folder == "named")
    llama_folder(tmp_path / "hf")
    assert main(["import", str(tmp_path / "hf"), str(tmp_path / "from-hf")]) == 0
    assert "hf has no tokenizer.json, so bring the model's own" in capsys.readouterr().out
    imported = str(tmp_path / "from-bytes")
    assert main(["eval", imported]) == 2
    assert f"python -m trainer eval {imported} data=FOLDER" in capsys.readouterr().err
    for word in (f"data={tmp_path}/absent", f"eval.source={tmp_path}/absent"):
        assert main(["eval", imported, word]) == 3, "it reads what is named"
        assert f"data={tmp_path}/absent: no such file" in capsys.readouterr().err


def test_import_names_added_tokens_that_the_embedding_has_no_row_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tokenizers import Tokenizer, models

    llama_folder(tmp_path / "hf")
    names = {f"word{number}": number for number in range(64)}
    tokenizer: Any = Tokenizer(models.WordLevel(names, unk_token="word0"))
    for count, word in ((0, ""), (7, ""), (7, "resize=auto")):
        tokenizer.add_special_tokens([f"<tool{number}>" for number in range(count)])
        tokenizer.save(str(tmp_path / "hf" / "tokenizer.json"))
        assert main(["import", str(tmp_path / "hf"), str(tmp_path / f"to-{count}{word}"), *filter(None, [word])]) == 0
        printed = capsys.readouterr().out
        assert ("note: the embedding has 64 rows, and none for 7 tokens" in printed) == (count > 0 and not word)
        assert ("'<tool0>', '<tool1>', '<tool2>', '<tool3>', '<tool4>' and 2 more; data" in printed) == (
            count > 0 and not word
        )


@pytest.mark.promise("P32")
def test_a_run_from_before_the_settings_of_families_resumes(tmp_path: Path) -> None:
    """`config_before_families.json` is what orch 0.2.0 recorded before model.qkv_bias and others."""
    place = str(tmp_path / "run")
    recorded = json.loads((Path(__file__).parent / "config_before_families.json").read_text())
    assert "model.qk_norm" not in recorded
    save(place, config_of("optim.ema=0.5"), Mesh(fsdp=2), 2, 3)
    manifest = tmp_path / "run" / manifest_of(3)
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"config": recorded}))
    done, _, lines = resume(place, config_of("optim.ema=0.5"), Mesh(), 1)
    assert done == 3
    assert not [line for line in lines if line.startswith("note: model.")]
    done, _, lines = resume(place, config_of("optim.ema=0.5", "model.window=8", "model.rope_scaling=llama3"), Mesh(), 1)
    assert done == 3
    assert [line for line in lines if line.startswith("note: model.")] == [
        "note: model.window=8, but the checkpoint was made with 0",
        "note: model.rope_scaling=llama3, but the checkpoint was made with none",
    ]
    _, _, lines = resume(place, config_of("optim.ema=0.5", "data.document_mask=true"), Mesh(), 1)
    assert "note: data.document_mask=true, but the checkpoint was made with false" in lines
    for key in ("qkv_bias", "qk_norm"):
        with pytest.raises(ConfigError, match=f"model.{key}=true, but the checkpoint was made with model.{key}=false"):
            resume(place, config_of("optim.ema=0.5", f"model.{key}=true"), Mesh(), 1)


@pytest.mark.promise("P38")
def test_biases_with_norms_of_heads_have_no_family_and_are_not_exported(tmp_path: Path) -> None:
    save(str(tmp_path / "run"), config_of("model.qkv_bias=true", "model.qk_norm=true"), Mesh(), 1, 1)
    with pytest.raises(ConfigError, match=r"model\.qkv_bias=true with model\.qk_norm=true"):
        export_weights(ExportRequest(place=str(tmp_path / "run"), folder=tmp_path / "hf"), lambda _: None)
    assert not (tmp_path / "hf").exists()


@pytest.mark.promise("P38")
@pytest.mark.parametrize(("average", "kind"), [(False, "model"), (True, "average")])
def test_the_weights_of_many_processes_are_exported_in_shards(tmp_path: Path, average: bool, kind: str) -> None:
    place, config = str(tmp_path / "run/checkpoints"), config_of("optim.ema=0.5")
    save(place, config, Mesh(fsdp=2, tensor=2), 4, 1, 2)
    lines: list[str] = []
    request = ExportRequest(place=str(tmp_path / "run"), folder=tmp_path / "hf", average=average, shard_bytes=20_000)
    export_weights(request, lines.append)
    index = json.loads((tmp_path / "hf" / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) > 2
    found = read_folder(tmp_path / "hf")
    assert found.keys() == index["weight_map"].keys()
    assert index["metadata"]["total_size"] == sum(values.nbytes for values in found.values())
    shape = {p.name: p.shape for p in list_parameters(config.model)}
    for theirs, ours in (
        ("model.layers.1.self_attn.o_proj.weight", "blocks.1.attention.out.weight"),
        ("model.layers.0.post_attention_layernorm.weight", "blocks.0.ffn_norm.weight"),
        ("model.embed_tokens.weight", "embedding.weight"),
    ):
        np.testing.assert_array_equal(found[theirs], truth(f"{kind}/{ours}", shape[ours], 2))
    assert lines[-1].endswith(f"of step 2 in {tmp_path}/hf ({index['metadata']['total_size'] / 1e6:,.1f} MB, fp32)")


def test_narrow_types_tokenizer_and_refusals_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "run/checkpoints"
    save(str(place), config_of("model.vocab=256"), Mesh(), 1, 1, 7)
    assert main(["export", f"{place}/{folder_of(1)}", str(tmp_path / "bf16"), "dtype=bf16"]) == 0
    values = safetensors.safe_open(tmp_path / "bf16" / "model.safetensors", "numpy")
    assert values.metadata() == {"format": "pt"}
    assert json.loads((tmp_path / "bf16" / "config.json").read_text())["dtype"] == "bfloat16"
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "bf16" / "tokenizer.json"))
    text = "Hé!\x00\n ok \u4e2d"
    assert tokenizer.encode(text).ids == list(text.encode())
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text
    capsys.readouterr()
    for words, text in (
        (["export", str(place), str(tmp_path / "bf16")], "exists: name a new folder"),
        (["export", str(place), str(tmp_path / "x"), "--average"], "checkpoint 7 has no averaged weights"),
        (["export", f"{place}/{folder_of(9)}", str(tmp_path / "x")], "no such checkpoint"),
        (["export", str(place), str(tmp_path / "x"), "dtype=fp16"], "beyond the range of fp16: use dtype=bf16"),
        (["export", str(place), str(tmp_path / "x"), "dtype=int8"], "dtype=int8: not one of fp32, bf16, fp16"),
        (["export", str(place)], "two places are needed"),
        (["export", str(place), str(tmp_path / "x"), "more"], "unknown word 'more'"),
        (["export", str(place), "dtypes=bf16"], "did you mean dtype=?"),
        (["import", str(tmp_path / "bf16")], "two places are needed"),
        (["import", str(tmp_path / "bf16"), str(place)], "already holds checkpoints: name another place"),
        (["import", str(tmp_path), str(tmp_path / "y")], "config.json: no such file"),
    ):
        assert main(words) != 0
        error = capsys.readouterr().err
        assert text in error
        assert error.count("\n") == 1
    assert not (tmp_path / "x").exists()
    assert not list(tmp_path.glob(".*.part"))
    part = place / folder_of(7) / part_name(0, 0)
    part.write_bytes(part.read_bytes()[:-1])
    assert main(["export", f"{place}/{folder_of(7)}", str(tmp_path / "x")]) == 10
    assert "skipped checkpoint 7: part-00000-000.safetensors has " in capsys.readouterr().err
    assert main(["export", str(place), str(tmp_path / "x")]) == 0
    assert "skipped checkpoint 7" in capsys.readouterr().out


def test_truncated_files_are_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    llama_folder(tmp_path / "hf")
    weights = tmp_path / "hf" / "model-00002-of-00002.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert main(["import", str(tmp_path / "hf"), str(tmp_path / "c")]) == 2
    assert "model-00002-of-00002.safetensors ends too early" in capsys.readouterr().err
    (tmp_path / "hf" / "model.safetensors.index.json").write_text('{"weight_map": ["model.safetensors"]}')
    assert main(["import", str(tmp_path / "hf"), str(tmp_path / "c")]) == 2
    assert "weight_map does not name" in capsys.readouterr().err


def test_export_and_import_need_no_framework(tmp_path: Path) -> None:
    llama_folder(tmp_path / "hf", tie_word_embeddings=True)
    program = (
        "import sys; from trainer.__main__ import main; status = main(sys.argv[1:]); "
        "sys.exit(status or any(name in sys.modules for name in ('torch', 'jax', 'safetensors')))"
    )
    for words in (["import", "hf", "checkpoints"], ["export", "checkpoints", "again"]):
        done = subprocess.run(
            [sys.executable, "-c", program, *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
            check=False,
        )
        assert done.returncode == 0
    assert (tmp_path / "again" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("key", "written"),
    [
        ("num_hidden_layers", "1000000000"),
        ("num_hidden_layers", "-1"),
        ("num_hidden_layers", "0"),
        ("num_hidden_layers", "Infinity"),
        ("num_attention_heads", "0"),
        ("hidden_size", "8.9"),
        ("rope_theta", "NaN"),
        ("rms_norm_eps", "-1"),
        ("rms_norm_eps", "Infinity"),
        ("rope_scaling", '"x"'),
        ("rope_scaling", "[1]"),
        ("rope_scaling", f'{{"rope_type": "llama3", "factor": -8, {_REST_OF_ROPE}}}'),
        ("layer_types", "[[]]"),
        pytest.param("deep", "[" * 100_000, id="deep"),
    ],
)
def test_settings_that_no_model_has_are_refused_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str, written: str
) -> None:
    llama_folder(tmp_path / "hf")
    kept = {"model_type": "qwen2", "use_sliding_window": True} if key == "layer_types" else {}
    text = json.dumps({name: value for name, value in {**SETTINGS, **kept}.items() if name != key})
    (tmp_path / "hf" / "config.json").write_text(f'{text[:-1]}, "{key}": {written}}}')
    assert main(["import", str(tmp_path / "hf"), str(tmp_path / "c")]) == 2
    assert capsys.readouterr().err.startswith("error[config]: ")
    assert not (tmp_path / "c").exists()


def test_files_of_any_size_and_names_of_any_length_end_in_few_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    llama_folder(tmp_path / "hf")
    config = tmp_path / "hf" / "config.json"
    config.write_text(json.dumps({**SETTINGS, **{f"key {number}": 1 for number in range(10_000)}}))
    assert main(["import", str(tmp_path / "hf"), str(tmp_path / "many")]) == 0
    output = capsys.readouterr()
    assert (output.out + output.err).count("note: config.json has") == 21
    assert "9,980 more keys" in output.out + output.err

    safetensors.numpy.save_file({"x\n" * 500: np.zeros(1)}, tmp_path / "hf" / "model-00001-of-00002.safetensors")
    assert main(["import", str(tmp_path / "hf"), str(tmp_path / "c")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    for content in ("[[1, 2]]", None):
        with config.open("w") as file:
            if content is None:
                file.truncate(1 << 40)
            else:
                file.write(content)
        assert main(["import", str(tmp_path / "hf"), str(tmp_path / "c")]) == 2
        assert "config.json" in capsys.readouterr().err


def test_files_that_are_not_those_of_the_folder_are_not_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    llama_folder(tmp_path / "hf")
    index = tmp_path / "hf" / "model.safetensors.index.json"
    os.mkfifo(tmp_path / "hf" / "pipe")
    for name in ("../../etc/passwd", "/dev/zero", "a\0b", "pipe"):
        index.write_text(json.dumps({"weight_map": {"x": name}}))
        assert main(["import", str(tmp_path / "hf"), str(tmp_path / "c")]) == 2
        assert "error[config]: " in capsys.readouterr().err


@pytest.mark.parametrize("offsets", [(-8, 1016), (0, 1 << 62), (0, 8), (8, 0)])
def test_bytes_beside_the_values_of_a_file_are_no_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], offsets: tuple[int, int]
) -> None:
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "config.json").write_text(json.dumps(SETTINGS))
    header = json.dumps({"model.norm.weight": {"dtype": "F32", "shape": [16, 16], "data_offsets": offsets}}).encode()
    content = len(header).to_bytes(8, "little") + header + bytes(2048)
    (tmp_path / "hf" / "model.safetensors").write_bytes(content)
    assert main(["import", str(tmp_path / "hf"), str(tmp_path / "c")]) == 2
    assert "model.norm.weight" in capsys.readouterr().err


@pytest.mark.promise("P38")
@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"model_type": "gpt2"}, "is of a 'gpt2' model"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 8.0}}, "rope_type='yarn'"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "cannot be used: KeyError.'low_freq_factor'"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantization_config="),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5"),
        (
            {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
            "max_window_layers=1: this trainer computes one window for all layers",
        ),
        (
            {
                "model_type": "qwen3",
                "use_sliding_window": True,
                "layer_types": ["sliding_attention", "full_attention"],
            },
            "layer_types=",
        ),
        ({"attention_bias": True}, "attention_bias=True"),
        ({"hidden_act": "gelu"}, "hidden_act='gelu'"),
        ({"intermediate_size": None}, "config.json cannot be used"),
    ],
)
def test_another_architecture_is_refused(tmp_path: Path, changes: dict[str, Any], text: str) -> None:
    llama_folder(tmp_path / "hf")
    (tmp_path / "hf" / "config.json").write_text(json.dumps(SETTINGS | changes))
    with pytest.raises(Exception, match=text):
        import_weights(tmp_path / "hf", str(tmp_path / "c"), lambda _: None)
    assert not (tmp_path / "c" / manifest_of(0, 0, 0)).exists()


@pytest.mark.promise("P38")
@given(st_numpy.arrays(np.float32, 20, elements=st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_bfloat16_is_rounded_as_torch_rounds_it(values: np.ndarray) -> None:
    torch = pytest.importorskip("torch")
    # Exactly between two that bfloat16 has, above an even and above an odd one, and just beside.
    halves = np.array([0x3F808000, 0x3F818000, 0x3F817FFF, 0x3F808001, 0xBF808000], np.uint32).view(np.float32)
    values = np.concatenate((values, halves))
    expected = torch.from_numpy(values).bfloat16()
    written = encode_values(values, "BF16")
    np.testing.assert_array_equal(written, expected.view(torch.uint16).numpy())
    np.testing.assert_array_equal(decode_values(written.data.cast("B"), "BF16"), expected.float().numpy())
