"""Chat data: what is trained on, as the tokenizer's own template and transformers have it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_cases import opened, tokens_of
from support.chat_shards import mask_all

from trainer.commands.prepare import run
from trainer.config import Config, DataConfig, EvalConfig
from trainer.data.corpus import open_corpus
from trainer.data.held_out import hold_out_rows
from trainer.data.index import INDEX_NAME
from trainer.data.mixture import open_training_data
from trainer.errors import ConfigError, DataError
from trainer.options import parse_config

CHAT: Sequence[Mapping[str, str]] = (
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "What is the sum of 1 and 2?"},
    {"role": "assistant", "content": "3, é"},
    {"role": "user", "content": "And of 3 and 4?"},
    {"role": "assistant", "content": "7"},
)
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}"
    "{% else %}{{ m.content + '<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
# As Qwen 3's: the reasoning is in the last reply alone.
FORGETFUL = (
    "{% for m in messages %}{{ '<|' + m.role + '|>' }}"
    "{% if m.role == 'assistant' and loop.last %}{{ '<think></think>' }}{% endif %}{{ m.content + '<|end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def write_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def prepared(tmp_path: Path, rows: Sequence[Mapping[str, Any]], *words: str) -> list[int]:
    """Return the stored tokens, those that are not trained on as negative numbers."""
    run([str(write_lines(tmp_path / "chats.jsonl", rows)), str(tmp_path / "tokens"), *words])
    return tokens_of(opened(tmp_path / "tokens"))


def trained_bytes(tokens: Sequence[int]) -> str:
    """Return the text of byte tokens, with the parts that are trained on in brackets."""
    text, inside = b"", False
    for token in tokens:
        if (token >= 0) != inside:
            text, inside = text + (b"[" if token >= 0 else b"]"), token >= 0
        text += bytes([token if token >= 0 else ~token])
    return (text + (b"]" if inside else b"")).decode()


def test_replies_of_the_plain_template_are_trained_on_with_their_end(tmp_path: Path) -> None:
    assert trained_bytes(prepared(tmp_path, [{"messages": CHAT}], "chat=auto")) == (
        "<|system|>\nBe short.\n<|user|>\nWhat is the sum of 1 and 2?\n<|assistant|>\n[3, é\0]"
        "\n<|user|>\nAnd of 3 and 4?\n<|assistant|>\n[7\0]"
    )


def test_in_a_mixture_with_text_only_chats_have_tokens_that_do_not_count(tmp_path: Path) -> None:
    chats = prepared(tmp_path, [{"messages": CHAT}] * 9, "chat=auto")
    text = "".join(map(chr, range(32, 300))).encode() * 8
    (tmp_path / "text.txt").write_bytes(text)
    words = [f"data={tmp_path / 'tokens'},{tmp_path / 'text.txt'}", "data.weights=1,1", "batch=16", "seq_len=64"]
    data = open_training_data(parse_config(words), lambda _: None)
    assert data.corpus.marked
    rows = data.corpus.read(data.state.open_order().positions(0, 0, 16), 65)
    of_chats = [row.tolist() in [chats[at : at + 65] for at in range(len(chats))] for row in rows]
    assert set(of_chats) == {False, True}
    assert all(
        (row >= 0).all() and bytes(row.tolist()) in text for row, chat in zip(rows, of_chats, strict=True) if not chat
    )


def test_prompts_and_completions_are_taken_as_they_are_or_as_messages(tmp_path: Path) -> None:
    rows: list[Mapping[str, Any]] = [
        {"prompt": "1 + 1 =", "completion": " 2"},
        {"prompt": CHAT[:4], "completion": CHAT[4:]},
        {"messages": CHAT[:2]},  # nothing is trained on
    ]
    assert trained_bytes(prepared(tmp_path, rows, "chat=plain")) == (
        "1 + 1 =[ 2\0]<|system|>\nBe short.\n<|user|>\nWhat is the sum of 1 and 2?\n<|assistant|>\n3, é\0"
        "\n<|user|>\nAnd of 3 and 4?\n<|assistant|>\n[7\0]"
        "<|system|>\nBe short.\n<|user|>\nWhat is the sum of 1 and 2?\0"
    )


@pytest.fixture
def chat_tokenizer(tmp_path: Path, tokenizer_file: Path) -> Path:
    """Folder of a tokenizer with ChatML's tokens."""
    from tokenizers import Tokenizer

    folder = tmp_path / "model"
    folder.mkdir()
    tokenizer: Any = Tokenizer.from_file(str(tokenizer_file))
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "chat_template": [{"name": "tools", "template": "no"}, {"name": "default", "template": CHATML}],
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def test_the_template_of_the_tokenizer_gives_the_tokens_and_marks_of_transformers(
    tmp_path: Path, chat_tokenizer: Path
) -> None:
    from transformers import PreTrainedTokenizerFast

    opener: Any = PreTrainedTokenizerFast
    library = opener(tokenizer_file=str(chat_tokenizer / "tokenizer.json"), eos_token="<|im_end|>")
    expected = library.apply_chat_template(
        list(CHAT), chat_template=CHATML, return_dict=True, return_assistant_tokens_mask=True
    )
    words = [f"tokenizer={chat_tokenizer / 'tokenizer.json'}", "chat=auto"]
    found = prepared(tmp_path, [{"messages": CHAT}], *words)
    assert [token if token >= 0 else ~token for token in found] == expected["input_ids"]  # the template ends it
    assert [int(token >= 0) for token in found] == expected["assistant_masks"]
    assert opened(tmp_path / "tokens").read(np.array([0]), 2).dtype == np.int16


def test_a_template_beside_the_tokenizer_wins_and_may_leave_reasoning_out_of_earlier_replies(
    tmp_path: Path, chat_tokenizer: Path
) -> None:
    from tokenizers import Tokenizer

    (chat_tokenizer / "chat_template.jinja").write_text(FORGETFUL)
    words = [f"tokenizer={chat_tokenizer / 'tokenizer.json'}", "chat=auto", "eod=<|im_end|>"]
    found = prepared(tmp_path, [{"messages": CHAT}], *words)
    library = Tokenizer.from_file(str(chat_tokenizer / "tokenizer.json"))
    assert library.decode([token for token in found if token >= 0]) == "3, é<|end|><think></think>7<|end|>"


def test_a_run_reads_marks_and_counts_them(
    tmp_path: Path, chat_tokenizer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"prompt": f"{number} + 1 =", "completion": f" {number + 1}"} for number in range(200)]
    whole = prepared(tmp_path, rows, "chat=plain", "shard_tokens=300", "workers=1")
    marked = opened(tmp_path / "tokens")
    assert marked.marked
    assert f"({sum(token >= 0 for token in whole):,} of them are trained on)" in capsys.readouterr().out
    everything = open_corpus(DataConfig(source=str(tmp_path / "tokens"), loss="all"), print)
    assert not everything.marked
    assert tokens_of(everything) == [token if token >= 0 else ~token for token in whole]
    assert everything.fingerprint != marked.fingerprint

    config = Config(batch=2, seq_len=16, data=DataConfig(source=str(tmp_path / "tokens")), eval=EvalConfig(every=1))
    config = replace(config, eval=replace(config.eval, share=0.3))
    trained, held_out = hold_out_rows(config, marked, print)
    assert held_out is not None
    windows = range(held_out.windows)
    chosen = [windows[i * held_out.windows // (held_out.batches * 2)] for i in range(held_out.batches * 2)]
    firsts = [trained - 1 + window * 16 for window in chosen]
    assert held_out.tokens == sum(token >= 0 for first in firsts for token in whole[first + 1 : first + 17])

    shutil.rmtree(tmp_path / "tokens")
    assert prepared(tmp_path, rows, "chat=plain", "shard_tokens=300", "workers=2") == whole


@pytest.mark.parametrize(
    ("row", "word", "message"),
    [
        ({"text": "x"}, "auto", "line 1 has neither `messages`"),
        ({"messages": []}, "auto", "a list of {role, content}"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "auto", "only text can be trained on"),
        ({"messages": CHAT}, "", "read chat data with chat=auto"),
        ({"messages": CHAT}, "{template}", "changes the text before a reply"),
        ({"messages": CHAT}, "nowhere.jinja", "no such file: name a template"),
    ],
)
def test_what_is_no_chat_is_refused(row: Mapping[str, Any], word: str, message: str, tmp_path: Path) -> None:
    template = tmp_path / "counting.jinja"
    template.write_text("{{ messages | length }} messages")
    with pytest.raises(DataError, match=message):
        prepared(tmp_path, [row], f"chat={word.format(template=template)}")


def test_a_wrong_template_and_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "wrong.jinja").write_text("{% if %}")
    with pytest.raises(ConfigError, match="not a chat template"):
        prepared(tmp_path, [{"messages": CHAT}], f"chat={tmp_path / 'wrong.jinja'}")
    (tmp_path / "text.txt").write_text("text")
    with pytest.raises(DataError, match=r"text\.txt is plain text, and chat= needs rows"):
        run([str(tmp_path / "text.txt"), str(tmp_path / "other"), "chat=plain"])


def test_an_index_with_marks_is_refused_by_what_knows_none_and_when_it_contradicts_itself(tmp_path: Path) -> None:
    prepared(tmp_path, [{"prompt": "a", "completion": "b"}], "chat=plain")
    path = tmp_path / "tokens" / INDEX_NAME
    index = json.loads(path.read_text())
    assert index["format"] == "orch-tokens-3"
    index["shards"][0]["trained"] = None
    path.write_text(json.dumps(index))
    with pytest.raises(DataError, match="contradicts itself"):
        opened(tmp_path / "tokens")


def test_chats_without_a_reply_are_refused_when_they_are_prepared(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"chats.jsonl has nothing to train on: no conversation has a reply"):
        prepared(tmp_path, [{"messages": CHAT[:2]}] * 3, "chat=auto")
    assert not (tmp_path / "tokens" / INDEX_NAME).exists()


def test_shards_without_a_marked_token_are_refused_when_they_are_opened(tmp_path: Path) -> None:
    prepared(tmp_path, [{"messages": CHAT}, {"messages": CHAT[:2]}], "chat=auto")
    mask_all(tmp_path / "tokens")
    data = f"data={tmp_path / 'tokens'}"
    with pytest.raises(DataError, match=rf"{data} has nothing to train on: none of its \d+ tokens is marked"):
        open_training_data(parse_config([data, "seq_len=16"]), lambda _: None)
    every = open_training_data(parse_config([data, "seq_len=16", "data.loss=all"]), lambda _: None)
    assert not every.corpus.marked


def test_a_source_of_a_mixture_without_a_marked_token_is_named(tmp_path: Path) -> None:
    prepared(tmp_path, [{"messages": CHAT}], "chat=auto")
    mask_all(tmp_path / "tokens")
    (tmp_path / "text.txt").write_bytes(bytes(range(256)) * 8)
    words = [f"data={tmp_path / 'tokens'},{tmp_path / 'text.txt'}", "data.weights=1,1", "seq_len=16"]
    with pytest.raises(DataError, match=f"data={tmp_path / 'tokens'} has nothing to train on"):
        open_training_data(parse_config(words), lambda _: None)
