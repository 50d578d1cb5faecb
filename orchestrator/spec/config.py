"""The user's configuration, ~/.config/orch/config.toml, and where each value came from.

Precedence: flag > environment variable ORCH_<SECTION>_<KEY> > task file > this file > built-in. Read by light
commands: standard library only.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias, cast

from orchestrator.spec.errors import ConfigError, Problem, did_you_mean

Setting: TypeAlias = "str | int | float | bool | tuple[str, ...]"


class Source(StrEnum):
    """In order of precedence, the strongest first."""

    FLAG = "flag"
    ENVIRONMENT = "environment"
    TASK = "task file"
    CONFIG = "configuration"
    BUILT_IN = "built-in"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value was written. place: the flag, the variable or the file. line: from 1, None without one."""

    source: Source
    place: str = ""
    line: int | None = None

    def __str__(self) -> str:
        place = self.place if self.line is None else f"{self.place}:{self.line}"
        return f"{self.source} {place}".strip()


@dataclass(frozen=True, slots=True)
class Valued:
    """One value of a key with its origin; of several the first one holds."""

    origin: Origin
    value: object


@dataclass(frozen=True, slots=True)
class Key:
    """A key of the configuration. task_path: the field of a task file that it fills in, "" for none."""

    section: str
    name: str
    kind: type
    meaning: str
    task_path: str = ""
    built_in: Setting | None = None

    @property
    def full(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def variable(self) -> str:
        return f"ORCH_{self.section}_{self.name}".upper()


KEYS: tuple[Key, ...] = (
    Key("defaults", "infra", str, "where to run; absent: where the accelerator is, else local", "resources.infra"),
    Key("defaults", "use_spot", bool, "ask for spot capacity", "resources.use_spot", False),
    Key("defaults", "disk_size", int, "boot disk, GB", "resources.disk_size"),
    Key("defaults", "max_hourly_cost", float, "US dollars an hour for one slice", "resources.max_hourly_cost"),
    Key("defaults", "bucket", str, "where runs keep checkpoints and logs", "checkpoint.bucket"),
    Key("defaults", "max_preemptions", int, "how often a lost slice is replaced", "recovery.max_preemptions", 100),
    Key("defaults", "max_failures", int, "how often a failed program is started again", "recovery.max_failures", 0),
    Key("defaults", "max_hours", float, "the machines end after so many hours", "limits.max_hours"),
    Key("defaults", "idle_minutes", int, "the machines end when idle so long", "limits.idle_minutes"),
    Key("defaults", "max_cost", float, "US dollars for a whole run", "limits.max_cost"),
    Key("gcp", "project", str, "project that pays", "config.gcp.project"),
    Key("gcp", "network", str, "VPC network", "config.gcp.vpc_name", "default"),
    Key("gcp", "subnetwork", str, "subnetwork", "config.gcp.subnet_names"),
    Key("gcp", "service_account", str, "service account of the machines", "config.gcp.service_account"),
    Key("gcp", "internal_ips", bool, "give machines no external address", "config.gcp.internal_ips", False),
    Key("gcp", "access", str, "way to the machines: external, internal, iap, jump", "config.gcp.access"),
    Key("gcp", "jump", str, "jump host, for access jump: user@host:port", "config.gcp.jump"),
    Key("gcp", "firewall", bool, "make a rule that lets SSH in", "config.gcp.firewall", True),
    Key("gcp", "ssh_cidr", str, "who may reach port 22; your own address when absent", "config.gcp.ssh_cidr"),
    Key("gcp", "oslogin", bool, "log in by OS Login", "config.gcp.oslogin", False),
    Key("aws", "profile", str, "profile of the AWS configuration", "config.aws.profile"),
    Key("aws", "subnets", list, "subnets to try, in order", "config.aws.subnets"),
    Key("aws", "security_group", str, "security group; made when absent", "config.aws.security_group"),
    Key("aws", "instance_profile", str, "IAM instance profile of the machines", "config.aws.instance_profile"),
    Key("aws", "access", str, "way to the machines: eips, eip, public, ssm, private, jump", "config.aws.access"),
    Key("aws", "jump", str, "jump host, for access jump: user@host:port", "config.aws.jump"),
    Key("aws", "ssh_cidr", str, "who may reach port 22; your own address when absent", "config.aws.ssh_cidr"),
    Key("aws", "user", str, "login name of the image", "config.aws.user", "ubuntu"),
    Key("local", "root", str, "folder in which local hosts live"),
    Key("local", "sshd", str, "the sshd program to use"),
)
BY_NAME: Mapping[str, Key] = {key.full: key for key in KEYS}
SECTIONS: tuple[str, ...] = tuple(dict.fromkeys(key.section for key in KEYS))


@dataclass(frozen=True, slots=True)
class Config:
    """All layers that are not a flag or a task file. Make one with `load_config`."""

    path: str
    environment: Mapping[str, Valued]
    file: Mapping[str, Valued]

    def explain(self, key: str) -> tuple[Valued, ...]:
        """Every value of `section.name`, the one that holds first. Raises ConfigError for an unknown key."""
        known = BY_NAME.get(key)
        if known is None:
            raise ConfigError.of([_unknown_key(key)])
        layers = [layer[key] for layer in (self.environment, self.file) if key in layer]
        if known.built_in is not None:
            layers.append(Valued(Origin(Source.BUILT_IN), known.built_in))
        return tuple(layers)

    def text(self, key: str) -> str:
        """A text value, "" when nobody set it."""
        return str(self._value(key, str) or "")

    def flag(self, key: str) -> bool:
        return bool(self._value(key, bool))

    def texts(self, key: str) -> tuple[str, ...]:
        value = self._value(key, list)
        return cast("tuple[str, ...]", value) if value else ()

    def _value(self, key: str, kind: type) -> object:
        if BY_NAME[key].kind is not kind:
            raise TypeError(f"{key} is a {BY_NAME[key].kind.__name__}")
        layers = self.explain(key)
        return layers[0].value if layers else None


def config_path(env: Mapping[str, str]) -> Path:
    """$ORCH_CONFIG, else $ORCH_HOME/config.toml, else $XDG_CONFIG_HOME/orch/config.toml, else in ~/.config/orch."""
    if env.get("ORCH_CONFIG"):
        return Path(env["ORCH_CONFIG"])
    if env.get("ORCH_HOME"):
        return Path(env["ORCH_HOME"]).expanduser() / "config.toml"
    base = env.get("XDG_CONFIG_HOME", "")
    home = Path(base) if base.startswith("/") else Path(env.get("HOME") or Path.home()) / ".config"
    return home / "orch" / "config.toml"


def load_config(env: Mapping[str, str]) -> Config:
    """Read the file, if there is one, and the ORCH_ variables. Raises ConfigError with the line of what is wrong.

    A file named by ORCH_CONFIG must exist; the default one need not.
    """
    path = config_path(env)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if env.get("ORCH_CONFIG"):
            raise ConfigError(str(path), None, "does not exist", "ORCH_CONFIG names it", "unset ORCH_CONFIG") from None
        text = ""
    except (OSError, UnicodeError) as error:
        raise ConfigError(str(path), None, "cannot be read", str(error)) from error
    return parse_config(text, str(path), env)


def parse_config(text: str, path: str, env: Mapping[str, str]) -> Config:
    """As `load_config`, of a text."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = _line_in(str(error))
        raise ConfigError(path, line, "is not valid TOML", str(error)) from error
    problems: list[Problem] = []
    file = dict(_from_file(data, _lines(text), path, problems))
    environment = dict(_from_environment(env, problems))
    if problems:
        raise ConfigError.of(problems)
    return Config(path, environment, file)


def _from_file(
    data: Mapping[str, object], lines: Mapping[str, int], path: str, problems: list[Problem]
) -> Iterator[tuple[str, Valued]]:
    for section, content in data.items():
        if section not in SECTIONS or not isinstance(content, dict):
            near = did_you_mean(section, SECTIONS)
            hint = f", did you mean `[{near}]`?" if near else ""
            allowed = "allowed: " + ", ".join(f"[{name}]" for name in SECTIONS)
            problems.append(Problem(path, lines.get(section), f"unknown section `{section}`{hint}", allowed))
            continue
        for name, value in cast("dict[str, object]", content).items():
            full = f"{section}.{name}"
            key = BY_NAME.get(full)
            if key is None:
                problem = _unknown_key(full)
                problems.append(Problem(path, lines.get(full), problem.what, problem.why, problem.next_step))
            elif (typed := _typed(key, value)) is None:
                what = f"`{full}` must be {_WORDS[key.kind]}; here it is `{value}`"
                problems.append(Problem(path, lines.get(full), what))
            else:
                yield full, Valued(Origin(Source.CONFIG, path, lines.get(full)), typed)


def _from_environment(env: Mapping[str, str], problems: list[Problem]) -> Iterator[tuple[str, Valued]]:
    for key in KEYS:
        text = env.get(key.variable)
        if text is None or text == "":
            continue
        value = _from_text(key, text)
        if value is None:
            problems.append(Problem(key.variable, None, f"must be {_WORDS[key.kind]}; here it is `{text}`"))
        else:
            yield key.full, Valued(Origin(Source.ENVIRONMENT, key.variable), value)


_WORDS = {
    str: "text",
    int: "a whole number, 0 or more",
    float: "a number above 0",
    bool: "true or false",
    list: "a list of texts",
}


def _typed(key: Key, value: object) -> Setting | None:
    """The value if it has the key's type, else None."""
    if key.kind is bool or isinstance(value, bool):
        return value if key.kind is bool and isinstance(value, bool) else None
    if key.kind is list:
        items = cast("list[object]", value) if isinstance(value, list) else [None]
        texts = tuple(item for item in items if isinstance(item, str))
        return texts if len(texts) == len(items) else None
    if key.kind is float and isinstance(value, int | float):
        return float(value) if 0 < value < float("inf") else None
    if key.kind is int and isinstance(value, int):
        return value if value >= 0 else None
    return value if key.kind is str and isinstance(value, str) and value else None


def _from_text(key: Key, text: str) -> Setting | None:
    """The value of a variable."""
    try:
        if key.kind is bool:
            return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(text.lower())
        if key.kind is list:
            return tuple(part.strip() for part in text.split(",") if part.strip())
        return _typed(key, key.kind(text))
    except ValueError:
        return None


def setting_of(full: str, words: str) -> Setting:
    """The value of this key, as a person types it. Raises ConfigError for a key or a value that cannot be."""
    key = BY_NAME.get(full)
    if key is None:
        raise ConfigError.of([_unknown_key(full)])
    value = _from_text(key, words)
    if value is None:
        raise ConfigError(full, None, f"must be {_WORDS[key.kind]}; here it is `{words}`")
    return value


def _unknown_key(full: str) -> Problem:
    section, _, _ = full.partition(".")
    near = did_you_mean(full, list(BY_NAME))
    allowed = [key.name for key in KEYS if key.section == section] or list(BY_NAME)
    return Problem(
        full,
        None,
        f"unknown key `{full}`" + (f", did you mean `{near}`?" if near else ""),
        f"allowed: {', '.join(allowed)}",
        f"orch config explain {near}" if near else "",
    )


def _lines(text: str) -> dict[str, int]:
    """Line of every `[section]` and of every `key =` in it. Good for the plain form people write."""
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
    """The line that tomllib names in its message: "... (at line 3, column 5)"."""
    _, found, rest = message.partition("at line ")
    digits = rest.partition(",")[0]
    return int(digits) if found and digits.isdigit() else None
