"""`python -m trainer prepare SOURCE FOLDER`: tokenizes text into shards, for `data=FOLDER`."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
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
        JSON lines, JSON arrays, Parquet and Arrow have a document in each row; any other text file is one document.
        All may be compressed with gzip, Zstandard, bzip2, xz or zip. Content decides what a file is, not its name.
        With chat=, each row is a conversation: OpenAI's `messages`, ShareGPT's `conversations`, Alpaca's `instruction`
        and `output`, or `prompt` and `completion`. Only replies are trained on.
FOLDER  of this machine or of a bucket. When interrupted, the same command continues where it was.
        With --show 3 it may be left out: then three examples are printed, and nothing is written.

Examples:
  python -m trainer prepare '/data/books:*.txt' /data/books-tokens tokenizer=tokenizer.json
  python -m trainer prepare s3://bucket/web:*.jsonl.gz s3://bucket/web-tokens tokenizer=tokenizer.json column=content
  python -m trainer prepare chats.jsonl --show 3 tokenizer=llama/tokenizer.json chat=auto
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
                doc=Doc(
                    text="where the text is in JSON, Parquet, Arrow and hf:// data; empty: JSON itself is the text"
                ),
            ),
            Key(
                name="max_bad",
                kind=int,
                default=0,
                doc=Doc(text="rows of such data that are skipped where they cannot be read", least=0),
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
                name="chat_form",
                kind=("auto", "messages", "sharegpt", "alpaca", "prompt"),
                default="auto",
                doc=Doc(text="the rows of chat data; auto: found for each row"),
            ),
            Key(
                name="control_tokens",
                kind=("text", "keep"),
                default="text",
                doc=Doc(text="special tokens that a document or a message has are text; keep: they are tokens"),
            ),
            Key(
                name="date",
                kind=str,
                default="",
                doc=Doc(
                    text="the date that a chat template writes, such as 2026-11-30; empty: that of the first start"
                ),
            ),
            Key(
                name="show",
                kind=int,
                default=0,
                doc=Doc(
                    text="print so many examples first, with what is trained on; also --show 3", least=0, most=1000
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
    from trainer.data.examples import show_examples
    from trainer.data.prepare import prepare_shards

    job, shown = _parse_job(_join_show(words))
    if shown:
        show_examples(job, shown, _print_line)
    if job.destination:
        prepare_shards(job, _print_line)
    return Exit.OK


def _join_show(words: Sequence[str]) -> list[str]:
    """Return the words with `--show 3` and `--show=3` as `show=3`."""
    joined: list[str] = []
    for word in words:
        joined[-1:] = [f"{joined[-1]}{word}"] if joined and joined[-1] == "show=" else [*joined[-1:], word]
        if word == "--show" or word.startswith("--show="):
            joined[-1] = f"show={word[7:]}"
    return joined


def _parse_job(words: Sequence[str]) -> tuple[PrepareJob, int]:
    """Return the job, without a destination where nothing is to be written, and how many examples are shown first."""
    from trainer.data.chat.reader import find_chat_template
    from trainer.data.prepare import SHARD_TOKENS, PrepareJob
    from trainer.data.tokens.tokenizers import read_tokenizer

    # A key may have the name that it has in a run.
    words = [
        word.removeprefix("data.") if word.partition("=")[0].removeprefix("data.") in _KEYS else word for word in words
    ]
    places = [word for word in words if word.partition("=")[0] not in _KEYS]
    # A mistyped key would become a folder of that name.
    for word in [*(place for place in places if _LIKE_A_KEY.match(place)), *places[2:]]:
        near = difflib.get_close_matches(word.partition("=")[0], _KEYS, n=1)
        hint = f"did you mean {near[0]}=?" if near else "`python -m trainer prepare --help` lists the keys"
        raise ConfigError(f"unknown word {word!r}; {hint}")
    values = {name: key.default for name, key in _KEYS.items()}
    for word in words:
        name, _, text = word.partition("=")
        if name in _KEYS:
            values[name] = _KEYS[name].parse_value(text)
    if len(places) < (1 if values["show"] else 2):
        raise ConfigError(
            "two places are needed: python -m trainer prepare SOURCE FOLDER [tokenizer=PATH]; or --show 3"
        )
    word, name = str(values["chat"]), str(values["tokenizer"])
    tokens = read_tokenizer(name, str(values["eod"]), str(values["bos"]))
    chat = find_chat_template(word, name, tokens.end_text, _parse_date(str(values["date"]))) if word else None
    if values["control_tokens"] == "text":
        tokens = tokens.separate_control_tokens("" if chat is None else chat.text + chat.with_tools)
    job = PrepareJob(
        source=places[0],
        destination=places[1] if len(places) > 1 else "",
        tokens=replace(tokens, marked=chat is not None),
        chat=chat,
        chat_form=str(values["chat_form"]),
        column=str(values["column"]),
        max_bad=int(values["max_bad"]),
        shard_tokens=int(values["shard_tokens"]) or SHARD_TOKENS,
        workers=int(values["workers"]),
    )
    return job, int(values["show"])


def _parse_date(text: str) -> str:
    """Return a date as ISO 8601 writes it; "" for none."""
    try:
        return datetime.fromisoformat(text).isoformat() if text else ""
    except ValueError:
        raise ConfigError(f"date={text}: not a date such as 2026-11-30 or 2026-11-30T12:00") from None


def _help() -> str:
    width = max(len(f"{key.name}={key.default_text}") for key in _KEYS.values())
    rows = [f"  {f'{key.name}={key.default_text}':<{width}}  {key.doc.text}\n" for key in _KEYS.values()]
    return f"{_HELP}\nKeys (key=default):\n{''.join(rows)}"


HELP = _help()


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
