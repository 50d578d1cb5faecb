"""Short forms of values, written out: `autostop: 10h`, `disk_size: 500GB`, `user@host:22`, `${VAR}` in paths."""

from __future__ import annotations

import re
from collections.abc import Mapping

from orchestrator.spec.errors import FormError, did_you_mean
from orchestrator.spec.task import DEFAULT_WAIT_FOR, AutoStop, UserHost
from orchestrator.spec.yaml_reader import Value

AUTOSTOP_DEFAULT_MINUTES = 5  # of `autostop: true`; SkyPilot documentation, release 0.14.1
_UNITS = {"": 1, "m": 1, "h": 60, "d": 24 * 60, "w": 7 * 24 * 60}
_SCHEMES = ("s3://", "gs://", "file://")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")


def autostop(value: Value) -> AutoStop | None:
    """None: never stop."""
    if isinstance(value, bool):
        return AutoStop(AUTOSTOP_DEFAULT_MINUTES) if value else None
    if isinstance(value, int):
        return AutoStop(value)
    if isinstance(value, str):
        minutes = minutes_of(value)
        if minutes == 0:
            raise FormError("`resources.autostop` cannot be 0", "", "write false for never, or some minutes")
        return AutoStop(minutes)
    if isinstance(value, dict):
        idle = value.get("idle_minutes")
        wait_for = value.get("wait_for")
        return AutoStop(
            idle if isinstance(idle, int) else AUTOSTOP_DEFAULT_MINUTES,
            value.get("down") is True,
            wait_for if isinstance(wait_for, str) else DEFAULT_WAIT_FOR,
        )
    return None


def minutes_of(text: str) -> int:
    """`90`, `30m`, `10h`, `2d`, `1w` in minutes; the form was checked before."""
    digits = text.rstrip("mhdw")
    return int(digits) * _UNITS[text[len(digits) :]]


def gigabytes(value: Value) -> int | None:
    """`256`, `256GB` or `2TB` in GB, 1 TB being 1024 GB as in the dialect."""
    if isinstance(value, str):
        number = int(value.rstrip("GTB "))
        if number == 0:
            raise FormError("`disk_size` cannot be 0", "", "write some GB, or remove it")
        return number * (1024 if value.endswith("TB") else 1)
    return value if isinstance(value, int) else None


def bucket(address: str) -> str:
    """A bucket address without a closing slash. Raises FormError."""
    scheme, found, rest = address.partition("://")
    if not found or f"{scheme}://" not in _SCHEMES:
        raise FormError(
            f"`{address}` is not a bucket address",
            f"orch knows {', '.join(_SCHEMES)}",
            f"write gs://{address} or s3://{address}" if not found and address else "write s3://NAME or gs://NAME",
        )
    if scheme == "file" and not rest.startswith("/"):
        raise FormError(f"`{address}` is not a bucket address", "a file:// path is absolute", "write file:///path")
    if not rest.strip("/"):
        raise FormError(f"`{address}` names no bucket", "", "write a name after the slashes")
    return address.rstrip("/")


def mount_source(address: str) -> str:
    """A local path as it is, or a bucket address. Raises FormError for other kinds of address."""
    if "://" not in address:
        if not address:
            raise FormError("a mount needs a source", "", "write a local path or a bucket address")
        return address
    scheme = address.partition("://")[0]
    if f"{scheme}://" not in _SCHEMES:
        step = "download it in `setup`" if scheme in ("http", "https") else "copy it to an s3:// or gs:// bucket first"
        raise FormError(f"`{address}` cannot be mounted", f"orch knows local paths, {', '.join(_SCHEMES)}", step)
    return bucket(address)


def address(text: str) -> UserHost:
    """`[user@]host[:port]`, an IPv6 address in brackets. Raises FormError."""
    match = re.fullmatch(
        r"(?:([^@\s:]+)@)?(?:\[([0-9A-Fa-f:.%a-z]+)\]|([^@:\[\]\s/-][^@:\[\]\s/]*))(?::([0-9]{1,5}))?", text
    )
    port = int(match.group(4)) if match and match.group(4) else None
    if match is None or (port is not None and not 0 < port < 65536):
        raise FormError(
            f"`{text}` is not the address of a host", "", "write user@host, user@host:port or user@[::1]:port"
        )
    return UserHost(match.group(2) or match.group(3), match.group(1) or "", port or 0)


def fill_in(text: str, envs: Mapping[str, str], secret_names: tuple[str, ...]) -> str:
    """`$NAME` and `${NAME}` replaced by the task's own envs. Raises FormError for a name that is not one."""

    def value(match: re.Match[str]) -> str:
        name = match.group(1) or match.group(2)
        if name in envs:
            return envs[name]
        if name in secret_names:
            raise FormError(f"`{name}` is a secret", "secrets do not go into paths", f"move {name} to envs")
        near = did_you_mean(name, list(envs))
        raise FormError(
            f"`{match.group(0)}` is not one of the envs" + (f", did you mean `${{{near}}}`?" if near else ""),
            f"envs: {', '.join(envs)}" if envs else "the task has no envs",
            f"add {name} to envs, or write ~ for the home folder" if name == "HOME" else f"add {name} to envs",
        )

    return _VARIABLE.sub(value, text)


def env_text(name: str, value: Value, written: str | None) -> str:
    """A value of `envs` as text: what Python's str() makes of it, as the dialect does (true becomes "True").

    written: how an unquoted value that is not text was written. Raises FormError where str() would silently change it:
    3.10 would become 3.1, and yes would become True.
    """
    if isinstance(value, bool) and written is not None and written.lower() not in ("true", "false"):
        raise FormError(f"`{name}` is not text", "YAML takes this word for true or false", "write it in quotes")
    plain_decimal = written is not None and re.fullmatch(r"[-+]?[0-9]+\.[0-9]+", written)
    if isinstance(value, float) and plain_decimal and str(value) != (written or "").lstrip("+"):
        raise FormError(f"`{name}` is not text", "as a number it would lose digits", "write it in quotes")
    return value if isinstance(value, str) else str(value)


def train_args(value: Value) -> tuple[tuple[str, str], ...]:
    """Settings of the trainer: nested maps become dotted keys; true, false and nothing in the trainer's spelling."""
    found: list[tuple[str, str]] = []
    for key, item in value.items() if isinstance(value, dict) else ():
        if isinstance(item, dict):
            found += [(f"{key}.{inner}", _setting(leaf)) for inner, leaf in item.items()]
        else:
            found.append((key, _setting(item)))
    names = [key for key, _ in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise FormError(f"`train.args` sets `{twice}` twice", "once dotted and once nested", "remove one of them")
    return tuple(found)


def _setting(value: Value) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
