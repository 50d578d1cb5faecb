"""`python -m trainer prepare SOURCE FOLDER`: tokenizes text into shards, for `data=FOLDER`."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from trainer.config import AUTO, Doc
from trainer.errors import ConfigError, Exit
from trainer.options import Key

if TYPE_CHECKING:
    from trainer.data.prepare import PrepareJob

SUMMARY = "turn text into token shards, for data=FOLDER: SOURCE FOLDER [tokenizer=PATH]"

_HELP = """\
SOURCE  a path or a bucket folder (s3://, gs://), each with an optional :GLOB, or hf://NAME[#CONFIG][@REVISION][:SPLIT].
        .jsonl, .ndjson and .parquet files have a document in each line or row, other files are one; .gz may follow.
        With chat=, .jsonl files have a conversation in each line: `messages`, a list of {"role", "content"}, or
        `prompt` and `completion`. Only the assistant's messages, or the completion, are trained on.
FOLDER  of this machine or of a bucket. When interrupted, the same command continues where it was.

Examples:
  python -m trainer prepare '/data/books:*.txt' /data/books-tokens tokenizer=tokenizer.json
  python -m trainer prepare s3://bucket/web:*.jsonl.gz s3://bucket/web-tokens tokenizer=tokenizer.json column=content
  python -m trainer prepare chats.jsonl /data/chats tokenizer=llama/tokenizer.json chat=auto
  python -m trainer model=100m data=s3://bucket/web-tokens
"""

_LIKE_A_KEY = re.compile(r"[a-z_.]+=")  # a place of such a name is written ./NAME

_KEYS: Mapping[str, Key] = MappingProxyType(
    {
        key.name: key
        for key in (
            Key(name="tokenizer", kind=str, default="bytes", doc=Doc(text="bytes, or the path of a tokenizer.json")),
            Key(
                name="column",
                kind=str,
                default="text",
                doc=Doc(text="where the text is in .jsonl, .parquet and hf:// data"),
            ),
            Key(
                name="chat",
                kind=str,
                default="",
                doc=Doc(
                    text="chat data: auto (the tokenizer's template, else plain), plain, or a Jinja file; empty: text"
                ),
            ),
            Key(
                name="eod",
                kind=str,
                default="",
                doc=Doc(text="the token that ends a document; empty: the one that has this role in the tokenizer"),
            ),
            Key(
                name="bos",
                kind=str,
                default="auto",
                doc=Doc(text="the token that begins a document; auto: what the tokenizer puts there itself; none"),
            ),
            Key(
                name="shard_tokens",
                kind=int,
                default=AUTO,
                doc=Doc(text="tokens of a shard, at least; auto: 64 Mi", least=1, auto=True),
            ),
            Key(
                name="workers",
                kind=int,
                default=AUTO,
                doc=Doc(text="processes that make tokens; auto: a core each", least=1, auto=True),
            ),
        )
    }
)


def run(words: Sequence[str]) -> int:
    """Prepare the data.

    Raises:
        ConfigError: The words are wrong.
        DataError: The source cannot be read as text.
        StorageError: A bucket fails.
    """
    from trainer.data.prepare import prepare_shards

    prepare_shards(_parse_job(words), _print_line)
    return Exit.OK


def _parse_job(words: Sequence[str]) -> PrepareJob:
    from trainer.data.chat import find_chat_template
    from trainer.data.prepare import SHARD_TOKENS, PrepareJob
    from trainer.data.tokenizers import read_tokenizer

    places = [word for word in words if word.partition("=")[0] not in _KEYS]
    # A mistyped key would become a folder of that name.
    for word in [*(place for place in places if _LIKE_A_KEY.match(place)), *places[2:]]:
        near = difflib.get_close_matches(word.partition("=")[0], _KEYS, n=1)
        hint = f"did you mean {near[0]}=?" if near else "`python -m trainer prepare --help` lists the keys"
        raise ConfigError(f"unknown word {word!r}; {hint}")
    if len(places) < 2:
        raise ConfigError("two places are needed: python -m trainer prepare SOURCE FOLDER [tokenizer=PATH]")
    values = {name: key.default for name, key in _KEYS.items()}
    for word in words:
        name, _, text = word.partition("=")
        if name in _KEYS:
            values[name] = _KEYS[name].parse_value(text)
    word, name = str(values["chat"]), str(values["tokenizer"])
    tokens = read_tokenizer(name, str(values["eod"]), str(values["bos"]))
    chat = find_chat_template(word, name, tokens.end_text) if word else None
    return PrepareJob(
        source=places[0],
        destination=places[1],
        tokens=replace(tokens, marked=chat is not None),
        chat=chat,
        column=str(values["column"]),
        shard_tokens=int(values["shard_tokens"]) or SHARD_TOKENS,
        workers=int(values["workers"]),
    )


def _help() -> str:
    width = max(len(f"{key.name}={key.default_text}") for key in _KEYS.values())
    rows = [f"  {f'{key.name}={key.default_text}':<{width}}  {key.doc.text}\n" for key in _KEYS.values()]
    return f"{_HELP}\nKeys (key=default):\n{''.join(rows)}"


HELP = _help()


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
