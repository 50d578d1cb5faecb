"""A model and its tokenizer keep their meaning: imported, trained on chats, exported, and asked in transformers."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from family_folders import KINDS, QUESTIONS, make_folder, write_chats

from trainer.__main__ import main

os.environ["HF_HUB_OFFLINE"] = "1"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed"),
]
# One row holds one conversation, and some of its neighbours.
TRAINING = ["batch=32", "seq_len=48", "optim.lr=0.005", "optim.warmup=10", "data.document_mask=true", "log_every=100"]
HERE = ["device=cpu", "engine=torch", "threads=1", "metrics.file=", "eval.every=0", "compile=false"]


def read(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / name).read_text())
    return found


def run(*words: object) -> None:
    assert main([str(word) for word in words]) == 0


def imported_words(tmp_path: Path, capfd: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """Import tmp_path/hf; return the words with which the import says to train."""
    capfd.readouterr()
    run("import", tmp_path / "hf", tmp_path / "base", *words)
    line = next(line for line in capfd.readouterr().out.splitlines() if "checkpoint.start=" in line)
    return [word for word in line.split("-m trainer ")[1].split() if "=" in word and not word.startswith("data=")]


def tune(tmp_path: Path, capfd: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """Import tmp_path/hf, and train it on the questions into tmp_path/run; return the words of the training."""
    started = imported_words(tmp_path, capfd)
    chats = write_chats(tmp_path / "chats.jsonl")
    run("prepare", chats, tmp_path / "tokens", f"tokenizer={tmp_path}/hf/tokenizer.json", "chat=auto")
    training = [*started, f"data={tmp_path}/tokens", f"checkpoint.uri={tmp_path}/run", *TRAINING, *HERE]
    run(*training, *words)
    return training


def answer(model: Any, tokenizer: Any, question: str) -> tuple[str, int]:
    """Return the greedy reply, and its last token."""
    message = [{"role": "user", "content": question}]
    prompt = tokenizer.apply_chat_template(message, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    tokens = model.generate(**prompt, do_sample=False, max_new_tokens=40)[0, prompt["input_ids"].shape[1] :].tolist()
    return tokenizer.decode(tokens, skip_special_tokens=True).strip(), tokens[-1]


def assert_answers(folder: Path, model: Any = None) -> None:
    """The exported model answers in transformers, and ends its turn."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = model or AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    for question, expected in QUESTIONS.items():
        reply, last = answer(model, tokenizer, question)
        assert reply == expected
        stops = model.generation_config.eos_token_id
        assert last in (stops if isinstance(stops, list) else [stops])


def assert_same_tokenizer(folder: Path, original: Path) -> None:
    from transformers import AutoTokenizer

    ours, theirs = AutoTokenizer.from_pretrained(folder), AutoTokenizer.from_pretrained(original)
    messages = [{"role": role, "content": f"{role} 1"} for role in ("user", "assistant", "user")]
    for options in ({}, {"add_generation_prompt": True}):
        for tokenize in (False, True):
            rendered = [one.apply_chat_template(messages, tokenize=tokenize, **options) for one in (ours, theirs)]
            assert rendered[0] == rendered[1]
    text = "What is <b>bold</b></s>?"
    assert ours(text)["input_ids"] == theirs(text)["input_ids"]
    assert (ours.special_tokens_map, ours.model_max_length) == (theirs.special_tokens_map, theirs.model_max_length)


@pytest.mark.promise("P38")
@pytest.mark.parametrize(
    "name", [name if name == "llama3" else pytest.param(name, marks=pytest.mark.full) for name in KINDS]
)
def test_a_tuned_chat_model_ends_its_turn_and_keeps_its_settings(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    make_folder(tmp_path / "hf", KINDS[name])
    tune(tmp_path, capfd, "steps=200")
    run("export", tmp_path / "run", tmp_path / "out")
    assert_answers(tmp_path / "out")
    assert_same_tokenizer(tmp_path / "out", tmp_path / "hf")
    for file in ("generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        assert (tmp_path / "out" / file).read_bytes() == (tmp_path / "hf" / file).read_bytes()
    before, after = read(tmp_path / "hf", "config.json"), read(tmp_path / "out", "config.json")
    assert after == {**before, "dtype": "float32", "torch_dtype": "float32"}


OWN = (
    "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def test_adapters_of_a_base_model_stop_where_the_users_own_template_ends_a_turn_without_the_data_at_hand(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A base model stops at the document's end alone, and has no template."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = KINDS["llama3"]
    base = replace(base, roles={**base.roles, "eos_token": base.stops[0]}, stops=base.stops[:1])
    make_folder(tmp_path / "hf", base)
    (tmp_path / "hf" / "chat_template.jinja").unlink()
    (tmp_path / "own.jinja").write_text(OWN)
    started, chats = imported_words(tmp_path, capfd), write_chats(tmp_path / "chats.jsonl")
    words = [f"tokenizer={tmp_path}/hf/tokenizer.json", f"chat={tmp_path}/own.jinja"]
    run("prepare", chats, tmp_path / "tokens", *words)
    lora = [f"checkpoint.uri={tmp_path}/run", "lora.rank=16", *TRAINING, *HERE, f"data={tmp_path}/tokens"]
    run(*started, *lora, "steps=150", "checkpoint.keep=1")
    run(*started, *lora, "steps=300", "checkpoint.keep=1")  # a resume, and the first checkpoint is removed
    assert len(list((tmp_path / "run").glob("description-*.json"))) == 1
    shutil.rmtree(tmp_path / "tokens")
    shutil.rmtree(tmp_path / "base")
    run("export", tmp_path / "run", tmp_path / "out")
    run("export", tmp_path / "run", tmp_path / "adapter", "--adapter")
    for folder in (tmp_path / "out", tmp_path / "adapter"):
        assert (folder / "chat_template.jinja").read_text() == OWN
        assert read(folder, "generation_config.json")["eos_token_id"] == [1, 4]
    assert read(tmp_path / "out", "config.json")["max_position_embeddings"] == 131072
    assert_answers(tmp_path / "out")
    model: Any = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tmp_path / "hf"), tmp_path / "adapter")
    model.generation_config.eos_token_id = read(tmp_path / "adapter", "generation_config.json")["eos_token_id"]
    assert_answers(tmp_path / "adapter", model)


def test_a_model_of_bytes_is_exported_with_a_tokenizer_and_a_template_that_prepare_takes_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    chats = write_chats(tmp_path / "chats.jsonl")
    run("prepare", chats, tmp_path / "tokens", "chat=auto")
    sizes = ["model.dim=64", "model.layers=2", "model.heads=4", "model.ffn=96", "optim.lr=0.01", "batch=8"]
    longer = ["seq_len=96", "data.document_mask=true", "steps=250", f"checkpoint.uri={tmp_path}/run"]
    run(*sizes, *longer, *HERE, f"data={tmp_path}/tokens")
    run("export", tmp_path / "run", tmp_path / "out")
    assert read(tmp_path / "out", "generation_config.json")["eos_token_id"] == 0
    assert_answers(tmp_path / "out")
    run("prepare", chats, tmp_path / "again", f"tokenizer={tmp_path}/out/tokenizer.json", "chat=auto")
    indices = [read(tmp_path / name, "index.json") for name in ("tokens", "again")]
    assert [shard["sha256"] for shard in indices[0]["shards"]] == [shard["sha256"] for shard in indices[1]["shards"]]


@pytest.mark.parametrize("tied", [False, True])
def test_rows_are_added_for_the_tokens_that_were_added_to_the_tokenizer(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], tied: bool
) -> None:
    import safetensors.numpy
    from tokenizers import Tokenizer

    kind = KINDS["mistral"]
    make_folder(tmp_path / "hf", replace(kind, settings={**kind.settings, "tie_word_embeddings": tied}))
    file = tmp_path / "hf" / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(file))
    before = tokenizer.get_vocab_size()
    tokenizer.add_special_tokens(["<tool>", "</tool>", "<|im_end|>"])
    tokenizer.save(str(file))
    (tmp_path / "text.jsonl").write_text(json.dumps({"text": "<tool> What is the sum </tool>"}))
    run("prepare", tmp_path / "text.jsonl", tmp_path / "tokens", f"tokenizer={file}", "control_tokens=keep")
    words = imported_words(tmp_path, capfd)
    training = [f"data={tmp_path}/tokens", "steps=1", "batch=1", "seq_len=4", *HERE]
    assert main([*words, *training]) == 2
    assert "import FOLDER PLACE resize=auto" in capfd.readouterr().err
    shutil.rmtree(tmp_path / "base")
    run(*imported_words(tmp_path, capfd, "resize=auto"), *training)
    run("export", tmp_path / "base", tmp_path / "out")
    config = read(tmp_path / "out", "config.json")
    assert config == {**read(tmp_path / "hf", "config.json"), "vocab_size": before + 3, "torch_dtype": "float32"}
    values, stored = (safetensors.numpy.load_file(tmp_path / name / "model.safetensors") for name in ("out", "hf"))
    for name in ("model.embed_tokens.weight", *(() if tied else ("lm_head.weight",))):
        assert (values[name][:before] == stored[name]).all()
        for row in values[name][before:]:
            assert row == pytest.approx(stored[name].mean(axis=0), abs=1e-6)
    assert main(["import", str(tmp_path / "hf"), str(tmp_path / "x"), "resize=5"]) == 2
    assert "none can be removed" in capfd.readouterr().err


def test_a_tokenizer_with_more_tokens_than_the_model_trains_and_names_none_beyond_the_embedding(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Gemma 3's tokenizer has a token for images, which its text models have no row for."""
    kind = KINDS["llama3"]
    rows = 330
    make_folder(tmp_path / "hf", kind, rows)
    content = read(tmp_path / "hf", "tokenizer.json")
    content["added_tokens"].append({**content["added_tokens"][0], "id": rows, "content": "<image>"})
    (tmp_path / "hf" / "tokenizer.json").write_text(json.dumps(content))
    generation = read(tmp_path / "hf", "generation_config.json")
    generation |= {"eos_token_id": [*generation["eos_token_id"], rows], "pad_token_id": rows}
    (tmp_path / "hf" / "generation_config.json").write_text(json.dumps(generation))
    tune(tmp_path, capfd, "steps=1")
    run("export", tmp_path / "run", tmp_path / "out")
    written = read(tmp_path / "out", "generation_config.json")
    assert (written["eos_token_id"], written["pad_token_id"]) == ([1, 4], None)
    assert read(tmp_path / "out", "config.json")["vocab_size"] == rows


def test_a_checkpoint_of_an_earlier_version_resumes_and_is_exported_with_a_note(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make_folder(tmp_path / "hf", KINDS["qwen"])
    words = tune(tmp_path, capfd, "steps=2")
    for place in (tmp_path / "run", tmp_path / "base"):
        (path,) = place.glob("step-*/manifest.json")
        content = json.loads(path.read_text())
        assert content.pop("description")
        path.write_text(json.dumps(content))
        for description in place.glob("description-*.json"):
            description.unlink()
    (tmp_path / "tokens" / "description.json").unlink()
    capfd.readouterr()
    run(*words, "steps=4")
    assert "resumed from step 2" in capfd.readouterr().out
    run("export", tmp_path / "run", tmp_path / "out")
    assert "note: nothing is known of the model that this checkpoint began from" in capfd.readouterr().out
    assert read(tmp_path / "out", "generation_config.json")["eos_token_id"] == 2, "the index has the document's end"
    run("export", tmp_path / "run", tmp_path / "whole", f"tokenizer={tmp_path}/hf")
    assert "note:" not in capfd.readouterr().out
    for file in ("generation_config.json", "tokenizer_config.json", "chat_template.jinja"):
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "hf" / file).read_bytes()
    assert read(tmp_path / "whole", "config.json")["max_position_embeddings"] == 32768


def test_settings_that_a_run_changes_are_written_over_those_of_the_model(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make_folder(tmp_path / "hf", replace(KINDS["mistral"], settings={"max_position_embeddings": 16}))
    tune(tmp_path, capfd, "steps=1", "model.window=0", "model.rope_theta=5000")
    run("export", tmp_path / "run", tmp_path / "out", "dtype=bf16")
    before, after = read(tmp_path / "hf", "config.json"), read(tmp_path / "out", "config.json")
    assert before["sliding_window"] == 4096
    changed = {"sliding_window": None, "rope_theta": 5000.0, "max_position_embeddings": 48, "dtype": "bfloat16"}
    changed |= {"torch_dtype": "bfloat16", "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}}
    assert after == {**before, **changed}
    assert read(tmp_path / "out", "tokenizer_config.json") == read(tmp_path / "hf", "tokenizer_config.json")


def test_keys_of_a_configuration_that_are_not_used_are_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    make_folder(tmp_path / "hf", KINDS["qwen"])
    config = read(tmp_path / "hf", "config.json") | {"router_jitter_noise": 0.1, "z_loss": 1e-4, "resid_pdrop": 0.0}
    (tmp_path / "hf" / "config.json").write_text(json.dumps(config))
    run("import", tmp_path / "hf", tmp_path / "base")
    notes = [line for line in capfd.readouterr().out.splitlines() if line.startswith("note: ")]
    assert [note.split("'")[1] for note in notes] == ["attention_dropout", "router_jitter_noise", "z_loss"]
    assert "'attention_dropout': 0.1, which this trainer does not use: it trains without" in notes[0]


def test_a_folder_of_pickles_is_refused_with_the_way_out(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    make_folder(tmp_path / "hf", KINDS["qwen"])
    (tmp_path / "hf" / "model.safetensors").unlink()
    (tmp_path / "hf" / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch /tmp/loaded'\ntR.")
    assert main(["import", str(tmp_path / "hf"), str(tmp_path / "base")]) == 2
    error = capfd.readouterr().err
    assert "pytorch_model.bin" in error
    assert "save_pretrained(NEW_FOLDER)" in error
