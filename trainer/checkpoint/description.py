"""The description of a model and its tokenizer: one object beside a run's checkpoints, named by its digest.

    description-<sha256>.json    {"files": {name: text}, "end": int or null, "turn_ends": [int]}

`files` are those of a folder of Hugging Face that have no weights, as they came: config.json with the positions and
the rotary angles, generation_config.json with the tokens at which generation stops, tokenizer.json and
tokenizer_config.json with the special tokens, and the chat template. `end` is the token that ends a document, and
`turn_ends` those that end a reply in chat data.

`import` makes one of a model's folder and `prepare` one of a tokenizer. A run joins both, and writes the result before
its first manifest, which names the digest. Nothing removes it: it belongs to all checkpoints of the run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from trainer.checkpoint.epoch import shorten
from trainer.checkpoint.manifest import MOST_BYTES, CorruptCheckpoint, name_description, parse_count
from trainer.checkpoint.store import Store
from trainer.errors import ConfigError

CONFIG, GENERATION = "config.json", "generation_config.json"
TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
SPECIAL_TOKENS, TEMPLATE = "special_tokens_map.json", "chat_template.jinja"
MODEL_FILES = (CONFIG, GENERATION)
TOKENIZER_FILES = (TOKENIZER, TOKENIZER_CONFIG, SPECIAL_TOKENS, TEMPLATE)


@dataclass(frozen=True, kw_only=True)
class Description:
    """The description of a model and its tokenizer, without the weights.

    Attributes:
        files: Text of the files by name, as they came.
        end: The token that ends a document; None: unknown.
        turn_ends: The tokens that end a reply in chat data.
    """

    files: Mapping[str, str] = field(default_factory=dict[str, str])
    end: int | None = None
    turn_ends: tuple[int, ...] = ()

    @cached_property
    def content(self) -> bytes:
        """The stored form: equal descriptions have equal bytes."""
        return json.dumps(asdict(self), sort_keys=True, ensure_ascii=False).encode()

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the stored form."""
        return hashlib.sha256(self.content).hexdigest()

    def read_object(self, name: str) -> dict[str, Any]:
        """Return the JSON object of a file; an empty one where it is absent or something else."""
        try:
            found: Any = json.loads(self.files.get(name, "{}"))
        except (ValueError, RecursionError):
            return {}
        return cast("dict[str, Any]", found) if isinstance(found, dict) else {}

    def join(self, other: Description) -> Description:
        """Return this description with another one's tokenizer and tokens, where it has some.

        Files beside a tokenizer stay where the other tokenizer is the same one.
        """
        files = dict(self.files)
        if other.files.get(TOKENIZER, files.get(TOKENIZER)) != files.get(TOKENIZER):
            files = {name: text for name, text in files.items() if name not in TOKENIZER_FILES}
        return Description(
            files={**files, **other.files},
            end=self.end if other.end is None else other.end,
            turn_ends=tuple(dict.fromkeys((*self.turn_ends, *other.turn_ends))),
        )

    @classmethod
    def from_json(cls, text: bytes) -> Description:
        """Parse the stored form.

        Raises:
            CorruptCheckpoint: It is something else.
        """
        try:
            content: Any = json.loads(text)
            files = {str(name): file for name, file in dict[str, Any](content["files"]).items()}
            end = None if content["end"] is None else parse_count(content["end"])
            turn_ends = tuple(parse_count(token) for token in content["turn_ends"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CorruptCheckpoint(f"the description cannot be read: {shorten(error)}") from error
        if not all(isinstance(file, str) for file in files.values()) or not {*files} <= {
            *MODEL_FILES,
            *TOKENIZER_FILES,
        }:
            raise CorruptCheckpoint("the description has files that no model has")
        return cls(files=files, end=end, turn_ends=turn_ends)


def find_description(store: Store, digest: str, report: Callable[[str], None]) -> Description | None:
    """Return the description that a manifest names; None where it names none, or the file is damaged or absent.

    Args:
        store: The folder of checkpoints.
        digest: Of the manifest; "" for none.
        report: Receives why it cannot be used.

    Raises:
        StorageError: The bucket fails.
    """
    if not digest:
        return None
    found = store.find(name_description(digest))
    where = store.name_object(name_description(digest))
    if found is None:
        report(f"note: {where} is missing: what it says of model and tokenizer is unknown")
        return None
    if len(found.data) > MOST_BYTES or hashlib.sha256(found.data).hexdigest() != digest:
        report(f"note: {where} does not have its checksum, and is not used")
        return None
    try:
        return Description.from_json(found.data)
    except CorruptCheckpoint as error:
        report(f"note: {where} is not used: {error}")
        return None


def store_description(store: Store, description: Description) -> None:
    """Write the description beside the checkpoints, unless it is there.

    Raises:
        StorageError: The bucket fails.
    """
    name = name_description(description.digest)
    found = store.find(name)
    if found is None or found.data != description.content:  # what a damaged one said is said again
        store.put(name, description.content)


def read_described_files(folder: Path, names: tuple[str, ...] = (*MODEL_FILES, *TOKENIZER_FILES)) -> dict[str, str]:
    """Return the text of those files of a folder that exist.

    Raises:
        ConfigError: One cannot be read as text, or is no file.
    """
    found: dict[str, str] = {}
    for path in (folder / name for name in names):
        if not path.exists():
            continue
        if not path.is_file() or path.stat().st_size > MOST_BYTES:  # a pipe would block, a device never end
            raise ConfigError(f"{path} is not a file of at most {MOST_BYTES >> 20} MiB")
        try:
            found[path.name] = path.read_bytes().decode()
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"{path} is not text in UTF-8: {error}") from error
    return found
