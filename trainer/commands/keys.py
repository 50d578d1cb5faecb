"""`python -m trainer keys`: every setting as JSON, for programs that check settings before machines are rented."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from trainer.errors import ConfigError, Exit
from trainer.options import ALIASES, Key, list_keys
from trainer.presets import PRESETS

SUMMARY = "every setting as JSON: keys, aliases, presets"


def run(words: Sequence[str]) -> int:
    """Print the table as JSON.

    Raises:
        ConfigError: A word was given.
    """
    if words:
        raise ConfigError(f"keys takes no words, but got {words[0]!r}")
    sys.stdout.write(json.dumps(describe_keys(), indent=1) + "\n")
    return Exit.OK


def describe_keys() -> dict[str, Any]:
    """Return every key, alias and preset, JSON-able.

    Returns:
        {"keys": [{"name", "kind", "choices", "default", "least", "most", "auto", "doc"}], "aliases": {short: key},
        "presets": {name: {key: text}}}. kind: bool, int, float, str or choice. choices: the words of a choice, else
        null. least, most: both allowed themselves, null for no limit. auto: an integer that also takes `auto`, which
        the default 0 then means.
    """
    return {
        "keys": [_as_json(key) for key in list_keys()],
        "aliases": dict(ALIASES),
        "presets": {name: dict(preset) for name, preset in PRESETS.items()},
    }


def _as_json(key: Key) -> dict[str, Any]:
    return {
        "name": key.name,
        "kind": "choice" if isinstance(key.kind, tuple) else key.kind.__name__,
        "choices": list(key.words) or None,
        "default": key.default,
        "least": key.doc.least,
        "most": key.doc.most,
        "auto": key.doc.auto,
        "doc": key.doc.text,
    }
