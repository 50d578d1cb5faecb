"""Setting of one key in the configuration file; comments and order stay as they were written."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any, cast

from orchestrator.task.config import KEYS_BY_NAME, Setting, parse_config, parse_setting, unknown_key
from orchestrator.task.errors import ConfigError


def set_config_value(text: str, path: str, full: str, words: str) -> str:
    """Return the file's text with this key set.

    Args:
        text: The file's text.
        path: The file, for messages.
        full: The key as `section.name`.
        words: The value as a person types it.

    Raises:
        ConfigError: The key or value is wrong, or the file is not written plainly enough.
        UserError: As whom a cloud is called cannot be this.
    """
    value = parse_setting(full, words)
    _check_rules(full, value)
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


def unset_config_value(text: str, path: str, full: str) -> str:
    """Return the text of the file without this key; unchanged when the file does not have it.

    Raises:
        ConfigError: The key is unknown, or the file is not written plainly enough to edit it.
    """
    if full not in KEYS_BY_NAME:
        raise ConfigError.from_problems([unknown_key(full)])
    parse_config(text, path, {})  # refuses what is not TOML
    section, _, name = full.partition(".")
    if name not in cast("dict[str, object]", tomllib.loads(text).get(section) or {}):
        return text
    here, kept = "", list[str]()
    for line in text.splitlines():
        here = _header(line) or here
        if here != section or not re.match(rf"\s*{re.escape(name)}\s*=", line):
            kept.append(line)
    new = "\n".join(kept) + "\n" if kept else ""
    _check(text, new, path, full, None)
    return new


def _header(line: str) -> str:
    """Return the section that a line begins, "" for other lines."""
    match = re.fullmatch(r"\s*\[\s*([\w.-]+)\s*\]\s*(?:#.*)?", line)
    return match[1] if match else ""


def _toml(value: Setting) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(item) for item in value)}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)


def _check_rules(full: str, value: Setting) -> None:
    """Raise ConfigError or UserError when the field of a task file that this key fills in does not take the value."""
    from orchestrator.options import decode_options
    from orchestrator.task.driver_sections import list_driver_options
    from orchestrator.task.parse import find_field_issues

    path = KEYS_BY_NAME[full].task_path
    for issue in find_field_issues(path, _plain(value)) if path else ():
        step = issue.next_step.removesuffix(", or remove the key")
        raise ConfigError(full, None, issue.what, issue.why, f"{step}: orch config set {full} VALUE")
    if KEYS_BY_NAME[full].identity:  # as for a project, whose settings are checked when they are set
        provider, _, name = full.partition(".")
        options = list_driver_options()[provider]
        decode_options(options.kind, options.owner, ((name, str(value)),))


def _check(old: str, new: str, path: str, full: str, value: Setting | None) -> None:
    """Only this key may have changed: a value over several lines, say, is not understood here."""
    parse_config(old, path, {})
    try:
        before, after = tomllib.loads(old), tomllib.loads(new)
    except tomllib.TOMLDecodeError:
        before, after = cast("dict[str, Any]", {"": {}}), {}
    section, _, name = full.partition(".")
    there = cast("dict[str, object]", before.get(section) or {})
    changed = {key: one for key, one in there.items() if key != name}
    if value is not None:
        changed[name] = _plain(value)
    expected = {**before, section: changed}
    if after != expected:
        what = f"`{full}` cannot be {'set' if value is not None else 'unset'} here"
        raise ConfigError(path, None, what, "the file is not written plainly enough", f"open it: $EDITOR {path}")


def _plain(value: Setting) -> object:
    return list(value) if isinstance(value, tuple) else value
