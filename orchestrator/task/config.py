"""The user's configuration, ~/.config/orch/config.toml, and where each value came from.

Precedence: flag > environment variable ORCH_<SECTION>_<KEY> > task file > this file > built-in. Read by light
commands: standard library only.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import Any, TypeAlias, cast

from orchestrator.paths import config_path
from orchestrator.task.errors import ConfigError, Problem, did_you_mean

Setting: TypeAlias = "str | int | float | bool | tuple[str, ...]"


class Source(StrEnum):
    """In order of precedence, the strongest first."""

    PROJECT = "project"
    FLAG = "flag"
    ENVIRONMENT = "environment"
    TASK = "task file"
    CONFIG = "configuration"
    BUILT_IN = "built-in"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value was written: the flag, the variable, or the file with its line from 1."""

    source: Source
    place: str = ""
    line: int | None = None

    def __str__(self) -> str:
        place = self.place if self.line is None else f"{self.place}:{self.line}"
        return f"{self.source} {place}".strip()


@dataclass(frozen=True, slots=True)
class SourcedValue:
    """One value of a key with its origin; of several the first is in force."""

    origin: Origin
    value: object


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """A key of the configuration.

    Attributes:
        kind: Type of its value.
        meaning: What it sets, for people.
        task_path: The field of a task file that it fills in, "" for none.
        built_in: The value that holds when it is set nowhere, if there is one.
        own_variable: Its environment variable, where that is not made from section and name.
        identity: Whether it says as whom a cloud is called, which a project can set for its members.
    """

    section: str
    name: str
    kind: type
    meaning: str
    task_path: str = ""
    built_in: Setting | None = None
    own_variable: str = ""
    identity: bool = False

    @property
    def full_name(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def variable(self) -> str:
        return self.own_variable or f"ORCH_{self.section}_{self.name}".upper()


_KINDS: Mapping[str, Any] = {"str": str, "int": int, "float": float, "bool": bool, "list": list}


def _load_keys() -> tuple[ConfigKey, ...]:
    """Read the keys that export.py made from the models, which light commands do not import."""
    rows: list[dict[str, Any]] = json.loads(
        (Path(__file__).parent / "data" / "config.json").read_text(encoding="utf-8")
    )
    return tuple(ConfigKey(**{**row, "kind": _KINDS[row["kind"]]}) for row in rows)


KEYS = _load_keys()
KEYS_BY_NAME: Mapping[str, ConfigKey] = {key.full_name: key for key in KEYS}
SECTIONS: tuple[str, ...] = tuple(dict.fromkeys(key.section for key in KEYS))


@dataclass(frozen=True, slots=True)
class Config:
    """All layers that are not a flag or a task file. Make one with `load_config`."""

    path: str
    environment: Mapping[str, SourcedValue]
    file: Mapping[str, SourcedValue]

    def explain(self, key: str) -> tuple[SourcedValue, ...]:
        """Return every value of `section.name`, the one in force first.

        Raises:
            ConfigError: The key is unknown.
        """
        known = KEYS_BY_NAME.get(key)
        if known is None:
            raise ConfigError.from_problems([unknown_key(key)])
        layers = [layer[key] for layer in (self.environment, self.file) if key in layer]
        if known.built_in is not None:
            layers.append(SourcedValue(Origin(Source.BUILT_IN), known.built_in))
        return tuple(layers)

    def without_clouds(self) -> Config:
        """Return the same without what it sets for clouds: a service has its own accounts and networks."""
        layers = [
            {name: value for name, value in layer.items() if not KEYS_BY_NAME[name].task_path.startswith("config.")}
            for layer in (self.environment, self.file)
        ]
        return Config(self.path, *layers)

    def text(self, key: str) -> str:
        """Return a text value, "" when it is not set."""
        return str(self._value(key, str) or "")

    def flag(self, key: str) -> bool:
        return bool(self._value(key, bool))

    def texts(self, key: str) -> tuple[str, ...]:
        value = self._value(key, list)
        return cast("tuple[str, ...]", value) if value else ()

    def number(self, key: str) -> int:
        """Return a whole number, 0 when it is not set."""
        return cast("int", self._value(key, int) or 0)

    def _value(self, key: str, kind: type) -> object:
        if KEYS_BY_NAME[key].kind is not kind:
            raise TypeError(f"{key} is a {KEYS_BY_NAME[key].kind.__name__}")
        layers = self.explain(key)
        return layers[0].value if layers else None


def load_config(env: Mapping[str, str]) -> Config:
    """Read the file, if there is one, and the ORCH_ variables.

    A file named by ORCH_CONFIG must exist; the default one need not.

    Raises:
        ConfigError: With the line of what is wrong.
    """
    path = config_path(env)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if env.get("ORCH_CONFIG"):
            raise ConfigError(str(path), None, "does not exist", "ORCH_CONFIG names it", "unset ORCH_CONFIG") from None
        text = ""
    except (OSError, UnicodeError) as error:
        raise ConfigError(str(path), None, "cannot be read", str(error), f"ls -l {quote(str(path))}") from error
    return parse_config(text, str(path), env)


def parse_config(text: str, path: str, env: Mapping[str, str]) -> Config:
    """Parse the text of a configuration file, as `load_config` does."""
    try:
        data = tomllib.loads(text)
    except ValueError as error:  # also of a number with thousands of digits
        line = _line_in(str(error))
        raise ConfigError(path, line, "is not valid TOML", str(error), "correct that line, or remove it") from error
    problems: list[Problem] = []
    file = dict(_from_file(data, _lines(text), path, problems))
    environment = dict(_from_environment(env, problems))
    if problems:
        raise ConfigError.from_problems(problems)
    return Config(path, environment, file)


def _from_file(
    data: Mapping[str, object], lines: Mapping[str, int], path: str, problems: list[Problem]
) -> Iterator[tuple[str, SourcedValue]]:
    for section, content in data.items():
        if section not in SECTIONS or not isinstance(content, dict):
            near = did_you_mean(section, SECTIONS)
            hint = f", did you mean `[{near}]`?" if near else ""
            allowed = "allowed: " + ", ".join(f"[{name}]" for name in SECTIONS)
            problems.append(
                Problem(
                    file=path,
                    line=lines.get(section),
                    what=f"unknown section `{section}`{hint}",
                    why=allowed,
                    next_step=f"write [{near}]" if near else "remove it, or move its keys into one of these",
                )
            )
            continue
        for name, value in cast("dict[str, object]", content).items():
            full = f"{section}.{name}"
            key = KEYS_BY_NAME.get(full)
            if key is None:
                problem = unknown_key(full)
                problems.append(
                    Problem(
                        file=path, line=lines.get(full), what=problem.what, why=problem.why, next_step=problem.next_step
                    )
                )
            elif (typed := _typed(key, value)) is None:
                what = f"`{full}` must be {_WORDS[key.kind]}; here it is {_shown(value)}"
                problems.append(Problem(file=path, line=lines.get(full), what=what, next_step=_CORRECT_OR_REMOVE))
            else:
                yield full, SourcedValue(Origin(Source.CONFIG, path, lines.get(full)), typed)


def _from_environment(env: Mapping[str, str], problems: list[Problem]) -> Iterator[tuple[str, SourcedValue]]:
    for key in KEYS:
        text = env.get(key.variable)
        if text is None or text == "":
            continue
        value = _from_text(key, text)
        if value is None:
            problems.append(
                Problem(
                    file=key.variable,
                    what=f"must be {_WORDS[key.kind]}; here it is `{text}`",
                    next_step="give it such a value, or unset the variable",
                )
            )
        else:
            yield key.full_name, SourcedValue(Origin(Source.ENVIRONMENT, key.variable), value)


_CORRECT_OR_REMOVE = "write such a value, or remove the line"
_WORDS = {
    str: "text",
    int: "a whole number, 0 or more",
    float: "a number above 0",
    bool: "true or false",
    list: "a list of texts",
}


_LARGEST = 2**53  # up to here every whole number is exact in JSON


def _shown(value: object) -> str:
    """Return a wrong value for a message; Python itself does not print a number of thousands of digits."""
    too_long = isinstance(value, int) and abs(value) > _LARGEST
    return "a number too large" if too_long else f"`{value}`"


def _typed(key: ConfigKey, value: object) -> Setting | None:
    """Return the value if it has the key's type, else None."""
    if key.kind is bool or isinstance(value, bool):
        return value if key.kind is bool and isinstance(value, bool) else None
    if key.kind is list:
        items = cast("list[object]", value) if isinstance(value, list) else [None]
        texts = tuple(item for item in items if isinstance(item, str))
        return texts if len(texts) == len(items) else None
    if key.kind is float and isinstance(value, int | float):
        return float(value) if 0 < value <= _LARGEST else None
    if key.kind is int and isinstance(value, int):
        return value if 0 <= value <= _LARGEST else None
    return value if key.kind is str and isinstance(value, str) and value else None


def _from_text(key: ConfigKey, text: str) -> Setting | None:
    """Return the value of a variable, None when it is wrong."""
    try:
        if key.kind is bool:
            return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(text.lower())
        if key.kind is list:
            return tuple(part.strip() for part in text.split(",") if part.strip())
        return _typed(key, key.kind(text))
    except ValueError:
        return None


def parse_setting(full: str, words: str) -> Setting:
    """Return the value of this key, as a person types it.

    Raises:
        ConfigError: The key is unknown or the value not allowed.
    """
    key = KEYS_BY_NAME.get(full)
    if key is None:
        raise ConfigError.from_problems([unknown_key(full)])
    value = _from_text(key, words)
    if value is None:
        what = f"must be {_WORDS[key.kind]}; here it is `{words}`"
        raise ConfigError(full, None, what, next_step=f"give such a value: orch config set {full} VALUE")
    return value


def unknown_key(full: str) -> Problem:
    """Return the mistake of naming a key that there is none of."""
    section, _, name = full.partition(".")
    names = [key.name for key in KEYS if key.section == section]
    near = _find_near_key(full, section, name)
    return Problem(
        file=full,
        line=None,
        what=f"unknown key `{full}`" + (f", did you mean `{near}`?" if near else ""),
        why=f"[{section}] has {len(names)} other keys" if names else f"the sections are {', '.join(SECTIONS)}",
        next_step=f"orch config set {near} VALUE" if near else "orch config list shows all keys",
    )


def _find_near_key(full: str, section: str, name: str) -> str:
    """Return the key that is meant, or "". A right section says nothing of the name: aws.region is not aws.role_arn."""
    if section not in SECTIONS:
        return did_you_mean(full, list(KEYS_BY_NAME))
    near = did_you_mean(name, [key.name for key in KEYS if key.section == section])
    elsewhere = next((key.full_name for key in KEYS if key.name == name), "")
    return f"{section}.{near}" if near else elsewhere


def _lines(text: str) -> dict[str, int]:
    """Return the line of every `[section]` and of every `key =` in it, for the plain form that people write."""
    found: dict[str, int] = {}
    section = ""
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if line.startswith("[") and "]" in line:
            section = line.strip("[").partition("]")[0].strip()
            found.setdefault(section, number)
        elif "=" in line and not line.startswith("#"):
            name = line.partition("=")[0].strip().strip("\"'")
            full = f"{section}.{name}" if section else name
            found.setdefault(full, number)
            found.setdefault(full.partition(".")[0], number)
    return found


def _line_in(message: str) -> int | None:
    """Return the line that tomllib names in its message: "... (at line 3, column 5)"."""
    _, found, rest = message.partition("at line ")
    digits = rest.partition(",")[0]
    return int(digits) if found and digits.isdigit() else None
