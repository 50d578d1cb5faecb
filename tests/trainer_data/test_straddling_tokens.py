"""A token that holds a character of a reply is trained on, also where it begins in the prompt."""

from __future__ import annotations

from pathlib import Path

import pytest
from chat_tokenizers import write_tokenizer
from test_chat_rows import trained_text


@pytest.mark.parametrize(
    ("kind", "prompt", "completion", "expected"),
    [
        ("byte-bpe", "the quick bro", "wn fox", " brown fox"),
        ("unigram-first", "a\n", "\nfox", "<unk>fox"),
        ("sentencepiece-bpe", "the quick brown ", "fox jumps", "n fox jumps"),
        ("byte-bpe", "the quick brown", " fox", " fox"),
    ],
)
def test_a_token_on_both_sides_of_the_border_is_trained_on(
    kind: str, prompt: str, completion: str, expected: str, tmp_path: Path
) -> None:
    tokenizer = write_tokenizer(tmp_path / "model", kind)
    row = {"prompt": prompt, "completion": completion}
    assert trained_text(tmp_path / "a", tokenizer, row, "plain").replace("<|im_end|>", "") == expected
