"""Small models as others publish them: weights, tokenizer, chat template and settings, one for each kind of roles.

The tokenizers are trained here, and have the special tokens of the published ones in the same roles.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

QUESTIONS: Mapping[str, str] = {
    "What is the sum of 1 and 2?": "It is 3.",
    "What is the sum of 3 and 4?": "It is 7.",
    "Which letter follows A?": "B follows it.",
    "Which letter follows Y?": "Z follows it.",
    "Say <b>bold</b> in plain words.": "bold",
}
TEXT = [*QUESTIONS, *QUESTIONS.values(), "system user assistant model", "</s> and <s> are tags of HTML", "Ā é 中"] * 9


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of published model.

    Attributes:
        family: `model_type`.
        special: Its special tokens, in the order of their numbers.
        roles: Of tokenizer_config.json.
        stops: Special tokens at which generation stops; the first is what config.json has.
        template: The chat template.
        begins: Whether the post-processor puts bos before a text.
        pieces: Whether the vocabulary is a Unigram of pieces with an underline for space, else byte-level BPE.
        settings: Of config.json, beside sizes.
    """

    family: str
    special: Sequence[str]
    roles: Mapping[str, Any]
    stops: Sequence[str]
    template: str
    begins: bool = False
    pieces: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)


KINDS: Mapping[str, Kind] = {
    "llama3": Kind(
        family="llama",
        special=["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
        roles={"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"},
        stops=["<|end_of_text|>", "<|eot_id|>"],
        begins=True,
        template=(
            "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' "
            "+ m['content'] | trim + '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}"
            "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"
        ),
        settings={
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 500000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
            },
            "max_position_embeddings": 131072,
        },
    ),
    "qwen": Kind(
        family="qwen2",
        special=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        roles={"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "bos_token": None, "model_max_length": 131072},
        stops=["<|im_end|>", "<|endoftext|>"],
        template=(
            "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nBe brief.<|im_end|>\\n' }}{% endif %}"
            "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}"
            "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
        ),
        settings={"tie_word_embeddings": True, "max_position_embeddings": 32768, "attention_dropout": 0.1},
    ),
    "gemma": Kind(
        family="gemma2",
        special=["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"],
        roles={"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>"},
        stops=["<eos>", "<end_of_turn>"],
        begins=True,
        pieces=True,
        template=(
            "{{ bos_token }}{% for m in messages %}{{ '<start_of_turn>' "
            "+ ('model' if m['role'] == 'assistant' else m['role']) + '\\n' + m['content'] | trim "
            "+ '<end_of_turn>\\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"
        ),
        settings={"head_dim": 16, "query_pre_attn_scalar": 16, "max_position_embeddings": 8192},
    ),
    "mistral": Kind(
        family="mistral",
        special=["<unk>", "<s>", "</s>", "[INST]", "[/INST]"],
        roles={"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "add_bos_token": True},
        stops=["</s>"],
        begins=True,
        pieces=True,
        template=(
            "{{ bos_token }}{% for m in messages %}"
            "{% if m['role'] == 'user' %}{{ '[INST] ' + m['content'] + '[/INST]' }}"
            "{% else %}{{ ' ' + m['content'] | trim + eos_token }}{% endif %}{% endfor %}"
        ),
        settings={"sliding_window": None, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5},
    ),
    "phi": Kind(
        family="llama",
        special=["<unk>", "<s>", "<|endoftext|>", "<|assistant|>", "<|end|>", "<|user|>", "<|system|>"],
        roles={"bos_token": "<s>", "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>", "unk_token": "<unk>"},
        stops=["<|endoftext|>", "<|end|>"],
        pieces=True,
        template=(
            "{% for m in messages %}{{ '<|' + m['role'] + '|>\\n' + m['content'] + '<|end|>\\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}"
        ),
        settings={"max_position_embeddings": 4096},
    ),
}


def train_tokenizer(kind: Kind) -> Any:
    """Return the `tokenizers` library's tokenizer."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    special = list(kind.special)
    tokenizer: Any  # its setters take more than its types say
    trainer: Any
    if kind.pieces:
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.normalizer = normalizers.Replace(Regex(" "), "▁")
        tokenizer.decoder = decoders.Replace("▁", " ")
        trainer = trainers.UnigramTrainer(
            vocab_size=180, special_tokens=special, unk_token="<unk>", show_progress=False
        )
    else:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=320,
            special_tokens=special,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
    tokenizer.train_from_iterator(TEXT, trainer)
    if kind.begins:
        bos = kind.roles["bos_token"]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos}:0 $A:0", pair=f"{bos}:0 $A:0 $B:1", special_tokens=[(bos, tokenizer.token_to_id(bos))]
        )
    return tokenizer


def make_folder(folder: Path, kind: Kind, rows: int | None = None) -> None:
    """Write a model with random weights as it is published; `rows` of its embedding, or one for each token."""
    import torch
    import transformers

    folder.mkdir()
    tokenizer = train_tokenizer(kind)
    tokenizer.save(str(folder / "tokenizer.json"))
    number: Callable[[str], int] = tokenizer.token_to_id
    roles = {"tokenizer_class": "PreTrainedTokenizerFast", **kind.roles, "clean_up_tokenization_spaces": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(roles))
    (folder / "chat_template.jinja").write_text(kind.template)
    tokens = {
        f"{role}_id": number(text) for role, text in kind.roles.items() if role in ("bos_token", "pad_token") and text
    }
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    sizes |= {"intermediate_size": 96, "vocab_size": rows or tokenizer.get_vocab_size()}
    settings = {"bos_token_id": None, "pad_token_id": None, "eos_token_id": number(kind.stops[0]), **tokens}
    config = transformers.AutoConfig.for_model(kind.family, **{**sizes, **settings, **kind.settings})
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.generation_config = transformers.GenerationConfig(
        **tokens, eos_token_id=[number(text) for text in kind.stops], do_sample=True, temperature=0.6, top_p=0.9
    )
    model.save_pretrained(folder)


def write_chats(path: Path) -> Path:
    """Write the questions and their answers as conversations."""
    rows = [
        {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}
        for question, answer in QUESTIONS.items()
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows * 20))
    return path
