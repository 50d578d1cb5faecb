"""The environment of an acceptance run: the user's accounts and settings of the cloud, with its own records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from orchestrator.drivers import Driver
from orchestrator.task.config import KEYS, Config, Source, SourcedValue
from orchestrator.task.likely_secrets import is_likely_secret

_OWN = frozenset({"ORCH_HOME", "ORCH_CONFIG", "ORCH_STORE", "ORCH_SERVER", "ORCH_PROJECT", "ORCH_DEBUG"})


def make_environment(cloud: str, home: Path, environ: Mapping[str, str], config: Config) -> dict[str, str]:
    """Return the environment of the commands.

    Args:
        cloud: Whose settings are taken over; those that concern tasks, teams and the store are not.
        home: State folder of the run.
        environ: The user's.
        config: The user's.
    """
    dropped = _OWN | {key.variable for key in KEYS if key.section != cloud}
    settings = {
        key.variable: _to_text(values[0].value)
        for key in KEYS
        if key.section == cloud and (values := _set_by_user(config.explain(key.full_name)))
    }
    kept = {name: value for name, value in environ.items() if name not in dropped}
    return {**kept, **settings, "ORCH_HOME": str(home)}


def _set_by_user(values: tuple[SourcedValue, ...]) -> tuple[SourcedValue, ...]:
    return tuple(value for value in values if value.origin.source is not Source.BUILT_IN)


def _to_text(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, cast(Sequence[object], value)))
    return str(value).lower() if isinstance(value, bool) else str(value)


def list_account_names(driver: Driver, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of accounts and projects that the environment of a run names."""
    chosen = {key.variable for key in KEYS if (key.section, key.name) == (driver.name, driver.place_option)}
    return tuple(
        value
        for name, value in environ.items()
        if name in chosen or (name.startswith(driver.account_prefixes) and name.endswith(("PROJECT", "PROFILE")))
    )


def list_secret_values(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of variables that are likely secrets."""
    return tuple(value for name, value in environ.items() if is_likely_secret(name, value))
