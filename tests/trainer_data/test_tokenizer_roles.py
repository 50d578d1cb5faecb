"""The tokens that begin and end a document are found by their role, as the files of a tokenizer give it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from data_cases import opened, tokens_of

from trainer.checkpoint.byte_tokenizer import describe_bytes
from trainer.commands.prepare import run
from trainer.config import DataConfig, ModelConfig
from trainer.data.described import find_data_description
from trainer.data.index import DESCRIPTION_NAME, INDEX_NAME
from trainer.data.tokens.tokenizers import read_tokenizer
from trainer.errors import ConfigError

SPECIAL = ("<pad>", "<eos>", "<bos>")


def make_tokenizer(
    folder: Path, files: Mapping[str, Any], *, single: str = "$A", special: tuple[str, ...] = SPECIAL
) -> Path:
    """A tokenizer of letters; as in Gemma's, the tags of HTML are tokens too. `single`: what surrounds a text."""
    from tokenizers import Tokenizer, models, processors

    texts = ["</s>", *special, *"abcdefghijklmnopqrstuvwxyz <>/"]
    tokenizer: Any = Tokenizer(models.BPE({text: number for number, text in enumerate(texts)}, []))
    tokenizer.add_tokens(["</s>"])
    tokenizer.add_special_tokens(list(special))
    numbers = [(text, texts.index(text)) for text in special]
    tokenizer.post_processor = processors.TemplateProcessing(single=single, pair="$A $B", special_tokens=numbers)
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    return path


@pytest.mark.parametrize(
    ("files", "single"),
    [
        ({"tokenizer_config.json": {"eos_token": "<eos>"}}, "$A"),
        ({"tokenizer_config.json": {"eos_token": {"content": "<eos>", "lstrip": False}}}, "$A"),
        ({"special_tokens_map.json": {"eos_token": "<eos>"}}, "$A"),
        ({"generation_config.json": {"eos_token_id": [2, 3]}, "config.json": {"eos_token_id": 3}}, "$A"),
        ({"config.json": {"eos_token_id": 2}}, "$A"),
        ({}, "<bos> $A <eos>"),
        # What is more exact wins; a file that says nothing, or nonsense, is passed over.
        ({"tokenizer_config.json": {"eos_token": "<eos>"}, "config.json": {"eos_token_id": 3}}, "$A <bos>"),
        ({"tokenizer_config.json": {"eos_token": None}, "config.json": {"eos_token_id": 2}}, "$A"),
        ({"tokenizer_config.json": [], "config.json": {"eos_token_id": 2}}, "$A"),
        ({"tokenizer_config.json": {"eos_token": "<unknown>"}, "config.json": {"eos_token_id": True}}, "$A <eos>"),
    ],
)
def test_the_end_of_a_document_is_what_the_files_say(tmp_path: Path, files: Mapping[str, Any], single: str) -> None:
    path = make_tokenizer(tmp_path, files, single=single)
    assert (read_tokenizer(str(path)).eod, read_tokenizer(str(path)).end_text) == (2, "<eos>")
    assert read_tokenizer(str(path), "</s>").eod == 0, "a setting says otherwise"


def test_without_a_role_the_end_must_be_named_unless_one_token_is_special(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="do not say which token ends a document: name one of its tokens with eod="):
        read_tokenizer(str(make_tokenizer(tmp_path / "three", {})))
    assert read_tokenizer(str(make_tokenizer(tmp_path / "one", {}, special=("<end>",)))).end_text == "<end>"


@pytest.mark.parametrize(
    ("single", "config", "words", "begin"),
    [
        ("$A", {}, [], []),
        ("<bos> $A", {}, [], [3]),
        ("<bos> <pad> $A <eos>", {}, [], [3, 1]),
        ("<bos> $A", {}, ["bos=none"], []),
        ("<bos> $A", {}, ["bos=<pad>"], [1]),
        ("$A", {}, ["bos=<bos>"], [3]),
        ("$A", {"bos_token": "<bos>", "add_bos_token": True}, [], [3]),  # as transformers does
        ("<bos> $A", {"bos_token": "<bos>", "add_bos_token": False}, [], []),
    ],
)
def test_a_document_begins_as_in_use(
    tmp_path: Path, single: str, config: Mapping[str, Any], words: list[str], begin: list[int]
) -> None:
    from tokenizers import Tokenizer

    path = make_tokenizer(tmp_path / "hf", {"tokenizer_config.json": {"eos_token": "<eos>", **config}}, single=single)
    (tmp_path / "text.jsonl").write_text('{"text": "one </s>"}\n{"text": "two"}\n')
    run([str(tmp_path / "text.jsonl"), str(tmp_path / "tokens"), f"tokenizer={path}", "workers=1", *words])
    library = Tokenizer.from_file(str(path))
    one, two = (library.encode(text, add_special_tokens=False).ids for text in ("one </s>", "two"))
    assert tokens_of(opened(tmp_path / "tokens")) == [*begin, *one, 2, *begin, *two, 2]
    from transformers import AutoTokenizer

    if not words and "add_bos_token" not in config:
        opener: Any = AutoTokenizer
        assert [token for token in opener.from_pretrained(path.parent)("two")["input_ids"] if token != 2] == [
            *begin,
            *two,
        ]


def test_only_the_first_part_of_a_long_document_begins_one_and_prompts_begin_untrained(tmp_path: Path) -> None:
    path = make_tokenizer(tmp_path / "hf", {"tokenizer_config.json": {"eos_token": "<eos>"}}, single="<bos> $A")
    (tmp_path / "long.txt").write_text("abc\n" * 600_000)  # two parts and a half
    run([str(tmp_path / "long.txt"), str(tmp_path / "long"), f"tokenizer={path}", "workers=2", "shard_tokens=1000000"])
    found = tokens_of(opened(tmp_path / "long"))
    assert (found[0], found[-1], found.count(3), found.count(2)) == (3, 2, 1, 1)
    (tmp_path / "chat.jsonl").write_text('{"prompt": "ab", "completion": "c"}\n')
    run([str(tmp_path / "chat.jsonl"), str(tmp_path / "chat"), f"tokenizer={path}", "chat=plain"])
    letters = dict(zip("abc", read_ids(path, "abc"), strict=True))
    assert tokens_of(opened(tmp_path / "chat")) == [~3, ~letters["a"], ~letters["b"], letters["c"], 2]


def read_ids(path: Path, text: str) -> list[int]:
    from tokenizers import Tokenizer

    found: list[int] = Tokenizer.from_file(str(path)).encode(text, add_special_tokens=False).ids
    return found


def test_the_largest_token_of_the_data_is_recorded_and_that_of_earlier_data_is_the_tokenizers(tmp_path: Path) -> None:
    path = make_tokenizer(tmp_path / "hf", {"tokenizer_config.json": {"eos_token": "<eos>"}})
    (tmp_path / "text.jsonl").write_text('{"text": "ab"}\n{"text": "c"}\n')
    (tmp_path / "chat.jsonl").write_text('{"prompt": "c", "completion": "a"}\n')
    largest, vocab = read_ids(path, "c")[0], read_tokenizer(str(path)).vocab
    for name, words in (("text", []), ("chat", ["chat=plain"])):
        run([str(tmp_path / f"{name}.jsonl"), str(tmp_path / name), f"tokenizer={path}", *words])
        assert opened(tmp_path / name).largest == largest < vocab - 1
    index = tmp_path / "text" / INDEX_NAME
    content = json.loads(index.read_text())
    for shard in content["shards"]:
        del shard["largest"]
    index.write_text(json.dumps(content))
    assert opened(tmp_path / "text").largest == vocab - 1


def test_prepare_adds_the_description_to_a_folder_of_an_earlier_version(tmp_path: Path) -> None:
    path = make_tokenizer(tmp_path / "hf", {"tokenizer_config.json": {"eos_token": "<eos>"}})
    (tmp_path / "text.txt").write_text("abc")
    words = [str(tmp_path / "text.txt"), str(tmp_path / "tokens"), f"tokenizer={path}"]
    run(words)
    described = (tmp_path / "tokens" / DESCRIPTION_NAME).read_bytes()
    assert json.loads(described)["files"]["tokenizer_config.json"] == '{"eos_token": "<eos>"}'
    (tmp_path / "tokens" / DESCRIPTION_NAME).unlink()
    run(words)
    assert (tmp_path / "tokens" / DESCRIPTION_NAME).read_bytes() == described


@pytest.mark.parametrize("listed", [False, True])
def test_a_template_of_the_tokenizers_own_settings_stays_there_and_ends_a_turn_behind_the_reply(
    tmp_path: Path, listed: bool
) -> None:
    own = "{% for m in messages %}<bos>{{ m.content }}<pad>{% endfor %}{% if add_generation_prompt %}<bos>{% endif %}"
    stored = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": own}] if listed else own
    files = {"tokenizer_config.json": {"eos_token": "<eos>", "chat_template": stored}}
    path = make_tokenizer(tmp_path / "hf", files)
    chats = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "c"}]
    (tmp_path / "chat.jsonl").write_text(json.dumps({"messages": chats}))
    (tmp_path / "other.jinja").write_text(own.replace("<pad>", "<eos> </s>"))
    for chat, turn_ends, named in (("auto", [1], False), (tmp_path / "other.jinja", [2], True), ("plain", [2], True)):
        folder = tmp_path / f"tokens {turn_ends} {chat == 'plain'}"
        run([str(tmp_path / "chat.jsonl"), str(folder), f"tokenizer={path}", f"chat={chat}"])
        described = json.loads((folder / DESCRIPTION_NAME).read_bytes())
        assert (described["turn_ends"], described["end"]) == (turn_ends, 2)
        assert ("chat_template.jinja" in described["files"]) == named


def test_the_plain_template_is_the_same_as_text_and_as_a_template(tmp_path: Path) -> None:
    rows = [
        {"messages": [{"role": role, "content": f"{role} \n"} for role in roles]}
        for roles in (
            ("user", "assistant"),
            ("system", "user", "assistant", "user"),
            ("user", "assistant", "assistant"),
        )
    ]
    (tmp_path / "chat.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    run([str(tmp_path / "chat.jsonl"), str(tmp_path / "plain"), "chat=plain"])
    described = json.loads((tmp_path / "plain" / DESCRIPTION_NAME).read_bytes())
    (tmp_path / "plain.jinja").write_text(described["files"]["chat_template.jinja"])
    run([str(tmp_path / "chat.jsonl"), str(tmp_path / "same"), f"chat={tmp_path}/plain.jinja"])
    assert tokens_of(opened(tmp_path / "plain")) == tokens_of(opened(tmp_path / "same"))


def test_text_is_described_as_bytes_wherever_it_is_and_what_is_absent_as_nothing(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("abc")
    for source in (tmp_path / "text.txt", tmp_path, f"{tmp_path}:*.txt", "python-stdlib"):
        assert find_data_description(DataConfig(source=str(source)), ModelConfig()) == describe_bytes()
        assert find_data_description(DataConfig(source=str(source)), ModelConfig(vocab=300)) is None
    assert find_data_description(DataConfig(source=str(tmp_path / "absent")), ModelConfig()) is None
