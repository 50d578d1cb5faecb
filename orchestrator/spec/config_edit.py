"""Setting one key of the configuration file. All else in it, comments and order too, stays as it was written."""

from __future__ import annotations

import json
import re
import tomllib
from typing import cast

from orchestrator.spec.config import Setting, parse_config, setting_of
from orchestrator.spec.errors import ConfigError


def with_value(text: str, path: str, full: str, words: str) -> str:
    """The file's text with this key set. full: section.name. words: the value as a person types it.

    Raises ConfigError for a key or value that cannot be, and for a file that is not written plainly enough for it.
    """
    value = setting_of(full, words)
    section, _, name = full.partition(".")
    lines = text.splitlines()
    line = f"{name} = {_toml(value)}"
    start = next((at for at, one in enumerate(lines) if _header(one) == section), None)
    if start is None:
        lines += [*([""] if lines else []), f"[{section}]", line]
    else:
        end = next((at for at in range(start + 1, len(lines)) if _header(lines[at])), len(lines))
        there = [at for at in range(start + 1, end) if re.match(rf"\s*{re.escape(name)}\s*=", lines[at])]
        if there:
            lines[there[0]] = line
        else:
            last = max(at for at in range(start, end) if lines[at].strip())
            lines.insert(last + 1, line)
    new = "\n".join(lines) + "\n"
    _check(text, new, path, full, value)
    return new


def _header(line: str) -> str:
    """The section that a line begins, "" for other lines."""
    match = re.fullmatch(r"\s*\[\s*([\w.-]+)\s*\]\s*(?:#.*)?", line)
    return match[1] if match else ""


def _toml(value: Setting) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(item) for item in value)}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)


def _check(old: str, new: str, path: str, full: str, value: Setting) -> None:
    """Only this key may have changed: a value over several lines, say, is not understood here."""
    parse_config(old, path, {})
    try:
        before, after = tomllib.loads(old), tomllib.loads(new)
    except tomllib.TOMLDecodeError:
        after, before = {}, {"": ""}
    section, _, name = full.partition(".")
    there = cast("dict[str, object]", before.get(section) or {})
    wanted = {**before, section: {**there, name: _plain(value)}}
    if after != wanted:
        what = f"`{full}` cannot be set here"
        raise ConfigError(path, None, what, "the file is not written plainly enough", f"open it: $EDITOR {path}")


def _plain(value: Setting) -> object:
    return list(value) if isinstance(value, tuple) else value
