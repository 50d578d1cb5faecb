"""Data that cannot be read in place, as token shards in the cache folder: made once on each machine.

`prepare` makes the same shards ahead of time, anywhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from trainer.config import DataConfig
from trainer.data.files.cache import find_cache_folder, hold_lock, replace_file
from trainer.data.index import INDEX_NAME
from trainer.data.tokens.tokenizers import read_tokenizer
from trainer.errors import DataError


def convert_once(
    config: DataConfig, version: str, report: Callable[[str], None], pin: Callable[[str], str] | None = None
) -> Path:
    """Return the local folder with the token shards of the data, which are made if they do not exist.

    Ranks that share the folder wait for the first one; if the file system does not support locks, they write identical
    shards. The folder is in $ORCH_DATA_CACHE, else in the user's cache folder.

    Args:
        config: Source, tokenizer, column and how many rows may be bad.
        version: Of the source, another one with each change; empty for the last one known on this machine.
        report: Prints one line for the user.
        pin: Returns the address of a version of the source; None where it has no other.

    Raises:
        DataError: The data or the folder is unusable, or a library is missing.
        ConfigError: The tokenizer is unusable.
        TrainerError: An encoding process ended.
    """
    from trainer.data.prepare import PrepareJob, prepare_shards

    tokens, cache = read_tokenizer(config.tokenizer), find_cache_folder()
    if config.control_tokens == "text":
        tokens = tokens.separate_control_tokens()
    settings = (
        config.source,
        tokens.name,
        str(tokens.eod),
        config.column,
        config.control_tokens,
        *map(str, tokens.begin),
    )
    key = hashlib.sha256("\0".join(settings).encode()).hexdigest()[:24]
    with ExitStack() as stack:
        try:
            version = _remember_version(cache / f"{key}.version", version)
            folder = cache / f"{key}-{hashlib.sha256(version.encode()).hexdigest()[:12]}"
            if (folder / INDEX_NAME).exists():
                return folder
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(hold_lock(folder.with_suffix(".lock")))
        except OSError as error:
            why = f"{cache} cannot be used: {error.strerror}: set ORCH_DATA_CACHE"
            raise DataError(f"data={config.source}: {why}") from error
        if not (folder / INDEX_NAME).exists():
            source = config.source if pin is None else pin(version)
            report(
                f"converting {source} to token shards in {folder}; `python -m trainer prepare` does it ahead of time"
            )
            job = PrepareJob(
                source=source, destination=str(folder), tokens=tokens, column=config.column, max_bad=config.max_bad
            )
            prepare_shards(job, report)
    return folder


def _remember_version(known: Path, version: str) -> str:
    """Record the version, and return it; without one, return the last that was recorded."""
    if version:
        replace_file(known, version.encode())
        return version
    return known.read_text() if known.exists() else ""
