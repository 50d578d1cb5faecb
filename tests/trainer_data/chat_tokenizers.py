"""Small tokenizers of the kinds that open models have, each with ChatML's tokens."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TURNS = ("<|turn|>", "<think>", "</think>")
"""Added tokens that the file does not call special."""
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
TEXT = [
    "the quick brown fox jumps over the lazy dog, and a user asks the assistant for the end of the turn",
    "system user assistant im start end of text think turn <s> </s> <|x|> [INST] 0123456789 é ü 漢字",
] * 4


def byte_bpe(*, prefix: bool = False) -> Any:
    """Return a tokenizer as GPT-2's, Llama 3's and Qwen's."""
    tokenizer: Any = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        TEXT,
        trainers.BpeTrainer(
            vocab_size=420, special_tokens=list(CONTROL), initial_alphabet=alphabet, show_progress=False
        ),
    )
    return tokenizer


def unigram(scheme: str) -> Any:
    """Return a tokenizer as T5's or Gemma's; control tokens are pieces of its model, too."""
    tokenizer: Any = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=scheme != "first")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)
    tokenizer.train_from_iterator(
        TEXT,
        trainers.UnigramTrainer(
            vocab_size=120, special_tokens=["<unk>", *CONTROL], unk_token="<unk>", show_progress=False
        ),
    )
    return tokenizer


def sentencepiece_bpe() -> Any:
    """Return a tokenizer as Llama 2's: a normalizer puts a space before each text between control tokens."""
    tokenizer: Any = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Replace("▁", " ")
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer.train_from_iterator(
        TEXT,
        trainers.BpeTrainer(
            vocab_size=500, special_tokens=["<unk>", *CONTROL, *fallback], max_token_length=8, show_progress=False
        ),
    )
    content = json.loads(tokenizer.to_str())
    kept = ("<unk>", *CONTROL)
    content["added_tokens"] = [entry for entry in content["added_tokens"] if entry["content"] in kept]
    return Tokenizer.from_str(json.dumps(content))


def words() -> Any:
    """Return a tokenizer whose model has control tokens as words."""
    tokenizer: Any = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.train_from_iterator(
        TEXT, trainers.WordLevelTrainer(special_tokens=["<unk>", *CONTROL], show_progress=False)
    )
    return tokenizer


KINDS: Mapping[str, Callable[[], Any]] = MappingProxyType(
    {
        "byte-bpe": byte_bpe,
        "byte-bpe-prefix": lambda: byte_bpe(prefix=True),
        "unigram-always": lambda: unigram("always"),
        "unigram-first": lambda: unigram("first"),
        "sentencepiece-bpe": sentencepiece_bpe,
        "words": words,
    }
)


def write_tokenizer(folder: Path, kind: str, template: str = CHATML) -> Path:
    """Write the files of a tokenizer into a folder, and return tokenizer.json."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = KINDS[kind]()
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in TURNS])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "unk_token": "<unk>" if tokenizer.token_to_id("<unk>") is not None else None,
        "chat_template": template,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder / "tokenizer.json"
