"""The files beside exported weights: config.json, generation_config.json and those of the tokenizer.

They are those of the description as they came. What a run changes is written over it: settings of the model, an
embedding of another size, positions beyond the earlier ones, and the tokens that end a document or a reply, at which
generation stops. A token beyond the embedding is named nowhere: generation would end in an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from trainer.checkpoint.description import (
    CONFIG,
    GENERATION,
    TEMPLATE,
    TOKENIZER,
    TOKENIZER_CONFIG,
    TOKENIZER_FILES,
    Description,
)
from trainer.checkpoint.families import make_hf_config, parse_hf_config
from trainer.config import ModelConfig
from trainer.data.tokens.roles import Tokens, find_end, find_number, find_numbers, read_tokens
from trainer.errors import ConfigError

_POSITIONS, _LENGTH, _EOS = "max_position_embeddings", "model_max_length", "eos_token_id"
_ROLES = ("bos_token", "pad_token")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedModel:
    """A model that is exported, with what its settings follow from.

    Attributes:
        description: Of model and tokenizer.
        model: Of the checkpoint.
        seq_len: Length of the rows that it was trained on.
        dtype: Of the written weights, as torch names it.
    """

    description: Description
    model: ModelConfig
    seq_len: int
    dtype: str


def make_settings(exported: ExportedModel, *, adapter: bool) -> dict[str, str]:
    """Return the text of each file; an adapter needs no config.json.

    Raises:
        ConfigError: No family computes what the model does.
    """
    tokens = read_tokens(exported.description)
    stops = _list_stops(exported, tokens)
    config = _make_config(exported, tokens, stops)
    files = {} if adapter else {CONFIG: config}
    files[GENERATION] = _make_generation_config(exported, tokens, stops)
    return _keep_unchanged(exported.description, {**files, **_make_tokenizer_files(exported, tokens)})


def _make_config(exported: ExportedModel, tokens: Tokens, stops: Sequence[int]) -> dict[str, Any]:
    model, seq_len, dtype = exported.model, exported.seq_len, exported.dtype
    before = exported.description.read_object(CONFIG)
    family = str(before.get("model_type", ""))
    made = make_hf_config(model, seq_len, dtype, family)
    base = _parse_base(before)
    types = {"torch_dtype": dtype, "dtype": dtype}  # the former is read by transformers before version 5
    if base is None or made["model_type"] != family:
        kept = {key: before[key] for key in (_POSITIONS, *(f"{role}_id" for role in _ROLES)) if key in before}
        made |= {**_name_tokens(exported, tokens, stops), **kept}
        return _limit_tokens(_lengthen(made, _POSITIONS, seq_len), model.tokens)
    usual = make_hf_config(base, seq_len, dtype, family)
    changed = {key: value for key, value in made.items() if usual.get(key) != value}
    kept = {key: value for key, value in before.items() if key in made or key not in usual}
    config = {"architectures": made["architectures"], **kept, **changed, **types}
    added = [token for token in stops if token not in find_numbers(exported.description, _EOS)]
    config |= {_EOS: _as_value((*_as_list(before.get(_EOS)), *added))} if added else {}
    return _limit_tokens(_lengthen(config, _POSITIONS, seq_len), model.tokens)


def _make_generation_config(exported: ExportedModel, tokens: Tokens, stops: Sequence[int]) -> dict[str, Any]:
    before = exported.description.read_object(GENERATION)
    named = _name_tokens(exported, tokens, stops)
    if not before:
        return _limit_tokens({"_from_model_config": True, **named}, exported.model.tokens)
    same = set(_as_list(before.get(_EOS))) == set(stops)
    return _limit_tokens(before if same else {**before, _EOS: named.get(_EOS)}, exported.model.tokens)


def _make_tokenizer_files(exported: ExportedModel, tokens: Tokens) -> dict[str, Any]:
    """Return the files of the tokenizer; none where tokenizer.json is missing, for the others mean nothing without."""
    description = exported.description
    if TOKENIZER not in description.files:
        return {}
    files: dict[str, Any] = {name: description.files[name] for name in TOKENIZER_FILES if name in description.files}
    config = description.read_object(TOKENIZER_CONFIG)
    if not config:
        names = {number: text for text, number in tokens.numbers.items()}
        roles = {"eos_token": description.end, **{role: find_number(description, tokens, role) for role in _ROLES}}
        config = {"tokenizer_class": "PreTrainedTokenizerFast"}
        config |= {role: names[number] for role, number in roles.items() if number is not None and number in names}
    if CONFIG not in description.files:
        config = {_LENGTH: exported.seq_len, **config}
    if description.turn_ends and TEMPLATE in files and isinstance(config.get("chat_template"), str):
        config = {**config, "chat_template": files[TEMPLATE]}  # read by libraries that do not know the file
    files[TOKENIZER_CONFIG] = _lengthen(config, _LENGTH, exported.seq_len)
    return files


def _keep_unchanged(description: Description, files: Mapping[str, Any]) -> dict[str, str]:
    """Return the text of all files: the one that came wherever its content is the same."""
    found: dict[str, str] = {}
    for name, content in files.items():
        if isinstance(content, str):
            found[name] = content
        elif content == description.read_object(name) and name in description.files:
            found[name] = description.files[name]
        else:
            found[name] = f"{json.dumps(content, indent=2, ensure_ascii=False)}\n"
    return found


def _parse_base(config: Mapping[str, Any]) -> ModelConfig | None:
    """Return the settings of the imported model; None without one."""
    try:
        return parse_hf_config(config) if config else None
    except ConfigError:
        return None  # it was parsed when it was imported, so another program changed it


def _list_stops(exported: ExportedModel, tokens: Tokens) -> list[int]:
    """Return the tokens at which generation stops."""
    description = exported.description
    end = description.end if description.end is not None else tokens.numbers.get(find_end(description, tokens))
    found = (*find_numbers(description, _EOS), *([] if end is None else [end]), *description.turn_ends)
    return [token for token in dict.fromkeys(found) if token < exported.model.tokens]


def _name_tokens(exported: ExportedModel, tokens: Tokens, stops: Sequence[int]) -> dict[str, Any]:
    """Return the tokens by their roles, as far as they are known."""
    found: dict[str, Any] = {_EOS: _as_value(stops)} if stops else {}
    for role in _ROLES:
        number = find_number(exported.description, tokens, role)
        if number is not None:
            found[f"{role}_id"] = number
    if stops and CONFIG not in exported.description.files:
        found.setdefault("bos_token_id", stops[0])  # a document follows the end of another one
    return found


def _limit_tokens(config: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Return a configuration without the tokens beyond the embedding."""
    found = dict(config)
    for key, value in config.items():
        if key.endswith("_token_id"):
            numbers = [one for one in _as_list(value) if not isinstance(one, int) or one < count]
            found[key] = value if len(numbers) == len(_as_list(value)) else _as_value(numbers)
    return found


def _lengthen(config: Mapping[str, Any], key: str, seq_len: int) -> dict[str, Any]:
    """Return a configuration for at least as many positions as the rows had that the model was trained on."""
    before = config.get(key)
    shorter = isinstance(before, int | float) and not isinstance(before, bool) and before < seq_len
    return {**config, key: seq_len} if shorter else dict(config)


def _as_list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return cast("list[object]", value)
    return [] if value is None else [value]


def _as_value(tokens: Sequence[int]) -> Any:
    """Return one token as a number, several as a list."""
    return tokens[0] if len(tokens) == 1 else list(dict.fromkeys(tokens)) or None
