"""Settings that hold for all members of a project: read, changed by who owns the store, and checked before that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from orchestrator.drivers import load_part
from orchestrator.engine.services import real_services
from orchestrator.engine.state.identities import find_settings
from orchestrator.engine.state.opening import open_store
from orchestrator.engine.state.recorded import open_reader
from orchestrator.errors import UserError
from orchestrator.options import DriverOptions, decode_options
from orchestrator.paths import load_paths
from orchestrator.project import check_project
from orchestrator.store.setting_records import ProjectSetting
from orchestrator.task.config import KEYS, KEYS_BY_NAME

if TYPE_CHECKING:
    from orchestrator.store.read import Reader


def list_project_keys() -> tuple[str, ...]:
    """Return the keys of the configuration that a project can have."""
    return tuple(key.full_name for key in KEYS if key.identity)


def read_project_settings(project: str) -> dict[str, Any]:
    """Return the document of the settings of a project."""
    with open_reader(check_project(project, "--project NAME")) as reader:
        return describe_settings(reader, project)


def describe_settings(reader: Reader, project: str) -> dict[str, Any]:
    """Return the document of the settings of a project: every key that it can have."""
    found, where = find_settings(reader, project), f"project {project}"
    keys = [
        {"key": name, "value": found.get(name), "where": where if name in found else None,
         "meaning": KEYS_BY_NAME[name].meaning}
        for name in list_project_keys()
    ]  # fmt: skip
    return {"version": 1, "kind": "config-list", "keys": keys}


def make_setting(project: str, key: str, value: str) -> ProjectSetting:
    """Return a setting that may be recorded.

    Raises:
        UserError: There is no such project, key or value.
    """
    refuse_other_key(key)
    provider, _, name = key.partition(".")
    options = cast(DriverOptions, load_part(provider, "options").OPTIONS)
    decode_options(options.kind, options.owner, ((name, value),))
    return ProjectSetting(project=check_project(project, "--project NAME"), key=key, value=value)


def set_project_setting(project: str, key: str, value: str) -> None:
    """Record a setting. Machines that exist stay as whom they were made.

    Raises:
        UserError: As `make_setting`.
        AccessError: Another login of the database owns the store.
    """
    setting = make_setting(project, key, value)
    where = load_paths()
    with open_store(where, real_services(where), "orch config set --project") as store:
        store.set_project_setting(setting)


def remove_project_setting(project: str, key: str) -> None:
    """Remove a setting.

    Raises:
        NotFoundError: There is none.
        UserError: A project cannot have this key.
        AccessError: Another login of the database owns the store.
    """
    refuse_other_key(key)
    where = load_paths()
    with open_store(where, real_services(where), "orch config unset --project") as store:
        store.remove_project_setting(check_project(project, "--project NAME"), key)


def refuse_other_key(key: str) -> None:
    """Raise UserError for a key that a project cannot have."""
    known = list_project_keys()
    if key not in known:
        usual = f"orch config set {key} VALUE   sets it for this computer"
        step = usual if key in KEYS_BY_NAME else "orch config list   shows all keys"
        raise UserError(f"a project cannot set `{key}`", f"it can set {', '.join(known)}", step)
