"""The description of the tokenizer of data (trainer/checkpoint/description.py): made by `prepare`, read by a run."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any, cast

from trainer.checkpoint.byte_tokenizer import describe_bytes, is_byte_tokenizer
from trainer.checkpoint.description import TEMPLATE, TOKENIZER, TOKENIZER_CONFIG, Description
from trainer.checkpoint.manifest import CorruptCheckpoint
from trainer.checkpoint.store import open_store
from trainer.config import BYTE_VOCAB, DataConfig, ModelConfig
from trainer.data import sources
from trainer.data.chat.reader import ChatReader
from trainer.data.chat.templates import ChatTemplate
from trainer.data.documents import TextChunk
from trainer.data.index import DESCRIPTION_NAME, INDEX_NAME, TOKENIZER_NAME, Index
from trainer.data.tokens.document_starts import remove_stored_starts
from trainer.data.tokens.encoding import encode_batches
from trainer.data.tokens.roles import parse_tokens
from trainer.data.tokens.tokenizers import BYTES, TokenizerSpec, read_tokenizer
from trainer.data.weights import list_sources
from trainer.errors import ConfigError, DataError

PLAIN_TEMPLATE = (
    "{%- for message in messages -%}\n"
    "{%- if not loop.first %}{{ '\\n' }}{% endif -%}\n"
    "{{- '<|' + message['role'] + '|>\\n' + message['content'] -}}\n"
    "{%- if message['role'] == 'assistant' %}{{ eos_token }}{% endif -%}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}\n"
    "{%- if messages %}{{ '\\n' }}{% endif -%}\n"
    "{{- '<|assistant|>\\n' -}}\n"
    "{%- endif -%}\n"
)
"""The plain template of chat data (trainer/data/chat/reader.py), as a Jinja template for those who use the model."""


def describe_tokens(tokens: TokenizerSpec, chat: ChatTemplate | None) -> Description:
    """Return the description of what `prepare` made.

    Args:
        tokens: The tokenizer.
        chat: The template of chat data; None for text, which leaves the tokenizer's own as it is.
    """
    described = (
        describe_bytes()
        if tokens.name == BYTES
        else Description(files={**tokens.beside, TOKENIZER: tokens.text.decode()}, end=tokens.eod)
    )
    if chat is None:
        return described
    known = chat.text in _list_own_templates(described)
    template = {} if known else {TEMPLATE: chat.text or PLAIN_TEMPLATE}
    return replace(described, files={**described.files, **template}, turn_ends=_find_turn_ends(tokens, chat))


def _list_own_templates(files: Description) -> list[Any]:
    """Return the templates of tokenizer_config.json: a text, or a list of named ones."""
    found = files.read_object(TOKENIZER_CONFIG).get("chat_template")
    if isinstance(found, list):
        named = [cast("dict[str, Any]", one) for one in cast("list[object]", found) if isinstance(one, dict)]
        return [one.get("template") for one in named]
    return [] if TEMPLATE in files.files else [found]


def find_data_description(config: DataConfig, model: ModelConfig) -> Description | None:
    """Return the description of the data that a run reads; None where it cannot be read from here.

    Of a mixture, the template is that of the last source of chat data. Of bytes there is one only for a model with a
    token for each: another one has its tokenizer.

    Raises:
        StorageError: A bucket fails.
    """
    try:
        names = [one.source for one in list_sources(config)]
        found = [_read_description(config, name) for name in names]
    except (DataError, ConfigError):
        return None
    found.sort(key=lambda one: bool(one.turn_ends))
    if not found or (model.tokens != BYTE_VOCAB and is_byte_tokenizer(found[-1].files.get(TOKENIZER, ""))):
        return None
    return reduce(Description.join, found)


def _read_description(config: DataConfig, source: str) -> Description:
    """Return the description beside an index; that of bytes where the source is text.

    Raises:
        DataError: The source or the tokenizer cannot be read.
        ConfigError: The tokenizer does not have the tokens that are needed.
        StorageError: The bucket fails.
    """
    if source.startswith(sources.HUB_SCHEME):
        return describe_tokens(read_tokenizer(config.tokenizer), None)  # of which a run makes the shards itself
    place, pattern = sources.split_pattern(source)
    if source == sources.PYTHON_STDLIB or pattern != sources.MATCH_ALL:
        return describe_bytes()
    folder = Path(place).expanduser()
    if not sources.is_bucket(place) and not folder.is_dir():
        if folder.exists():
            return describe_bytes()
        raise DataError(f"data={place}: no such file or folder")
    store = open_store(place if sources.is_bucket(place) else str(folder))
    index, described, text = (store.find(name) for name in (INDEX_NAME, DESCRIPTION_NAME, TOKENIZER_NAME))
    if index is None or not Index.is_index(index.data):
        return describe_bytes()
    try:
        if described is not None:
            return Description.from_json(described.data)
    except CorruptCheckpoint as error:
        raise DataError(f"{store.name_object(DESCRIPTION_NAME)}: {error}") from error
    end = Index.from_json(index.data, source).eod  # an earlier version prepared it
    if text is None:
        return describe_bytes()
    return Description(files={TOKENIZER: text.data.decode(errors="replace")}, end=end)


def _find_turn_ends(tokens: TokenizerSpec, chat: ChatTemplate) -> tuple[int, ...]:
    """Return the token that the template puts behind a reply: the first that stands for no text."""
    known = parse_tokens(tokens.text.decode())
    controls = {tokens.eod, *(known.numbers[text] for text in known.special)}
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    reader = ChatReader(chat, tokens.control)
    try:
        rows = list(reader.read_row({"messages": messages}, chat.name))
    except DataError:
        return ()  # the template wants other conversations
    finally:
        reader.end()
    reply = TextChunk(b"b", is_last=True, replies=((0, 1),))
    # The process of a worker has limits, which the tokenizer may pass with what the template writes.
    whole, alone = (
        [token for token in remove_stored_starts(batch.tokens).tolist() if token >= 0]
        for batch in encode_batches(tokens, [rows, [reply]], workers=1)
    )
    begins = max((at for at, token in enumerate(whole) if token in alone[-1:]), default=-1)
    return tuple(token for token in whole[begins + 1 :] if token in controls)[:1]
