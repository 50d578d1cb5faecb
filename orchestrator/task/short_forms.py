"""Short forms of values, written out: `10h`, `500GB`, `user@host:22`, `${VAR}` in paths."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from orchestrator.bucket_names import NAME_RULE, is_bucket_name
from orchestrator.catalog.choosing import Amount
from orchestrator.task.errors import InvalidValueError, did_you_mean
from orchestrator.task.yaml_reader import Value

_UNITS = {"": 1, "m": 1, "h": 60, "d": 24 * 60, "w": 7 * 24 * 60}
_AMOUNT = re.compile(r"([0-9]+) ?([A-Za-z]*)(\+?)")
_GIGABYTES = {"": 1, "MB": 1 / 1024, "GB": 1, "TB": 1024}
_SCHEMES = ("s3://", "gs://", "file://")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_ADDRESS = re.compile(r"(?:([^@\s:]+)@)?(?:\[([0-9A-Fa-f:.%a-z]+)\]|([^@:\[\]\s/-][^@:\[\]\s/]*))(?::([0-9]{1,5}))?")
_IPV6 = re.compile(r"[0-9A-Fa-f:.]+(?:%[a-z0-9]+)?")
_LONGEST_PLACE = 4096  # characters of a path or address, as PATH_MAX of Linux (path_resolution(7), read 2026-11-30)


def parse_minutes(text: str) -> int:
    """Return the minutes of `90`, `30m`, `10h`, `2d` or `1w`."""
    digits = text.rstrip("mhdw")
    return int(digits) * _UNITS[text[len(digits) :]]


def parse_seconds(text: str) -> int:
    """Return the seconds of `30s`, `5m` or `1h`."""
    return int(text[:-1]) if text.endswith("s") else parse_minutes(text) * 60


def without_repeats(codes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the codes, each once, in their order."""
    return tuple(dict.fromkeys(codes))


def parse_gigabytes(text: str) -> int:
    """Return the GB of `256GB` or `2TB`, 1 TB being 1024 GB as in the dialect."""
    return int(text.rstrip("GTB ")) * (1024 if text.endswith("TB") else 1)


def parse_amount(written: int | str) -> Amount | None:
    """Return what `4`, `4+`, `64GB` or `512MB+` requires, memory in GiB; None for ""."""
    found = _AMOUNT.fullmatch(str(written))
    if found is None:
        return None
    digits, unit, more = found.groups()
    return Amount(int(digits) * _GIGABYTES[unit.upper()], bool(more))


def check_bucket(address: str) -> str:
    """Return a bucket address without a closing slash.

    Raises:
        InvalidValueError: It is no such address.
    """
    scheme, found, rest = address.partition("://")
    name = rest.partition("/")[0]
    if found and scheme != "file" and ("@" in name or ":" in name or "?" in rest):
        raise InvalidValueError(
            "a bucket address holds no user, password or query, and this one is not shown",
            "orch takes the credentials that the cloud's own tools use",
            f"write {scheme}://NAME" if f"{scheme}://" in _SCHEMES else "write s3://NAME or gs://NAME",
        )
    if not found or f"{scheme}://" not in _SCHEMES:
        raise InvalidValueError(
            f"`{address}` is not a bucket address",
            f"orch knows {', '.join(_SCHEMES)}",
            "write s3://NAME or gs://NAME" if found else _complete_address(address),
        )
    if scheme == "file" and not rest.startswith("/"):
        raise InvalidValueError(
            f"`{address}` is not a bucket address", "a file:// path is absolute", "write file:///path"
        )
    if not rest.strip("/"):
        raise InvalidValueError(f"`{address}` names no bucket", "", "write a name after the slashes")
    if scheme != "file" and not is_bucket_name(name):
        step = "write the name of a bucket of yours"
        raise InvalidValueError(f"`{name}` cannot be a bucket's name", NAME_RULE, step)
    return address.rstrip("/")


def _complete_address(name: str) -> str:
    """Return the next step for an address without a scheme."""
    if name.startswith("/"):
        return f"write file://{name} for a folder of this computer, or s3://NAME or gs://NAME"
    return f"write gs://{name} or s3://{name}"


def check_mount_source(address: str) -> str:
    """Return a local path as it is, or a bucket address.

    Raises:
        InvalidValueError: It is another kind of address.
    """
    if "://" not in address:
        if not address:
            raise InvalidValueError("a mount needs a source", "", "write a local path or a bucket address")
        return address
    scheme, _, rest = address.partition("://")
    if f"{scheme}://" not in _SCHEMES:
        if "@" in rest or "?" in rest:
            address = f"{scheme}://…"
        step = "download it in `setup`" if scheme in ("http", "https") else "copy it to an s3:// or gs:// bucket first"
        raise InvalidValueError(
            f"`{address}` cannot be mounted", f"orch knows local paths, {', '.join(_SCHEMES)}", step
        )
    return check_bucket(address)


def check_git_address(address: str) -> str:
    """Return the address of a git repository.

    Raises:
        InvalidValueError: It holds a password, which plans and hosts would show.
    """
    scheme, found, rest = address.partition("://")
    user, at, _ = rest.rpartition("@")
    if found and at and (scheme in ("http", "https") or ":" in user):
        raise InvalidValueError(
            "the address of the repository holds a user or password, and is not shown",
            "plans and the store would keep it",
            "write it without one; git takes credentials from its credential helper, or use git@HOST:PATH",
        )
    return address


def parse_address(text: str) -> dict[str, Any]:
    """Split `[user@]host[:port]`, an IPv6 address with a port in brackets, into fields of UserHost.

    Raises:
        InvalidValueError: It is no such address.
    """
    if text.count(":") > 1 and _IPV6.fullmatch(text):
        return {"host": text}
    match = None if text.startswith("-") else _ADDRESS.fullmatch(text)
    port = int(match.group(4)) if match and match.group(4) else None
    if match is None or (port is not None and not 0 < port < 65536):
        raise InvalidValueError(
            f"`{text}` is not the address of a host", "", "write user@host, user@host:port or user@[::1]:port"
        )
    found = {"host": match.group(2) or match.group(3), "user": match.group(1), "port": port}
    return {name: value for name, value in found.items() if value is not None}


def list_variables(text: str) -> list[str]:
    """Return the names in `$NAME` and `${NAME}`."""
    return [braced or plain for braced, plain in _VARIABLE.findall(text)]


def fill_variables(text: str, envs: Mapping[str, str], secret_names: tuple[str, ...]) -> str:
    """Replace `$NAME` and `${NAME}` by the task's own envs, in a path or address.

    Raises:
        InvalidValueError: A name is not one of them, or the result is too long.
    """
    length = len(text)

    def value(match: re.Match[str]) -> str:
        nonlocal length
        name = match.group(1) or match.group(2)
        if name in envs:
            length += len(envs[name]) - len(match.group(0))
            if length > _LONGEST_PLACE:  # before it is made: 256 KiB of names may stand for gigabytes
                what = f"`{text[:40]}` has more than {_LONGEST_PLACE:,} characters with its variables filled in"
                raise InvalidValueError(what, "it is a path or an address", f"write a shorter value for {name}")
            return envs[name]
        if name in secret_names:
            raise InvalidValueError(f"`{name}` is a secret", "secrets do not go into paths", f"move {name} to envs")
        near = did_you_mean(name, list(envs))
        raise InvalidValueError(
            f"`{match.group(0)}` is not one of the envs" + (f", did you mean `${{{near}}}`?" if near else ""),
            f"envs: {', '.join(envs)}" if envs else "the task has no envs",
            f"add {name} to envs, or write ~ for the home folder" if name == "HOME" else f"add {name} to envs",
        )

    return _VARIABLE.sub(value, text)


def format_env(name: str, value: Value, written: str | None) -> str:
    """Return a value of `envs` as text: what Python's str() makes of it, as the dialect does (true becomes "True").

    Args:
        name: Path of the value, for the message.
        value: The value.
        written: How an unquoted value that is not text was written.

    Raises:
        InvalidValueError: str() would silently change it: 3.10 would become 3.1, and yes would become True.
    """
    if isinstance(value, bool) and written is not None and written.lower() not in ("true", "false"):
        raise InvalidValueError(f"`{name}` is not text", "YAML takes this word for true or false", "write it in quotes")
    plain_decimal = written is not None and re.fullmatch(r"[-+]?[0-9]+\.[0-9]+", written)
    if isinstance(value, float) and plain_decimal and str(value) != (written or "").lstrip("+"):
        raise InvalidValueError(f"`{name}` is not text", "as a number it would lose digits", "write it in quotes")
    return value if isinstance(value, str) else str(value)


def flatten_settings(args: Mapping[str, Value]) -> tuple[tuple[str, str], ...]:
    """Return settings of the trainer with dotted keys; true, false and null in the trainer's spelling.

    Raises:
        InvalidValueError: A setting is written twice.
    """
    found: list[tuple[str, str]] = []
    for key, item in args.items():
        if isinstance(item, dict):
            found += [(f"{key}.{inner}", _format_setting(leaf)) for inner, leaf in item.items()]
        else:
            found.append((key, _format_setting(item)))
    names = [key for key, _ in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidValueError(
            f"`train.args` sets `{twice}` twice", "once dotted and once nested", "remove one of them"
        )
    return tuple(found)


def _format_setting(value: Value) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
