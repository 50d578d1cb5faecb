"""As whom the clouds and buckets of a project are called: its settings in the store, else the task or configuration.

A driver declares which of its options choose that (OptionSpec.identity). They are in the details of each candidate, so
each intent records as whom its machines were made. A changed setting is for machines that are made later.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from orchestrator.cloud_access import CloudAccess, read_cloud_access
from orchestrator.cloud_identities.role import name_caller
from orchestrator.drivers import get_driver, list_clouds
from orchestrator.engine.state.recorded import open_reader
from orchestrator.options import Details
from orchestrator.service_address import find_server
from orchestrator.store.setting_records import ProjectSetting, select_settings
from orchestrator.task.config import KEYS, load_config

if TYPE_CHECKING:
    from orchestrator.storage.bucket import Bucket
    from orchestrator.task.model import Task


_O = TypeVar("_O", bound=Any)


class KnowsSettings(Protocol):
    """A store, open for reading or writing."""

    @property
    def project(self) -> str: ...

    def project_settings(self) -> tuple[ProjectSetting, ...]: ...


def find_settings(store: KnowsSettings, project: str = "") -> dict[str, str]:
    """Return the settings of a project, "" for the store's own, by their keys."""
    return select_settings(store.project_settings(), project or store.project)


def act_for_project(task: Task, settings: Mapping[str, str]) -> Task:
    """Return the task as it is planned in a project: with the project's identities in place of those it has."""
    changed = {name: dict(details) for name, details in _group(settings).items()}
    if not changed:
        return task
    sections = {
        name: task.settings(name).model_copy(update={key: values.get(key, "") for key in _names(name)})
        for name, values in changed.items()
    }
    return task.model_copy(update={"config": task.config.model_copy(update=sections)})


def find_identity(provider: str) -> Details:
    """Return as whom a provider is called in the environment's project; () for this computer itself."""
    return _of_project().get(provider) or _of_configuration().get(provider, ())


def _of_project() -> dict[str, Details]:
    if find_server(os.environ):  # the store of this computer is not that of the project
        return {}
    with open_reader() as reader:
        return _group(find_settings(reader))


def override_identity(options: _O, provider: str) -> _O:
    """Return the options of a driver with the identity that the environment's project sets, if it sets one."""
    identity = dict(_of_project().get(provider, ()))
    return replace(options, **{name: identity.get(name, "") for name in _names(provider)}) if identity else options


def find_access(
    store: KnowsSettings, access: CloudAccess, caller: str, *, project: str = "", task: str = ""
) -> CloudAccess:
    """Return how the buckets of a project are reached.

    Args:
        store: With the settings of projects.
        access: How they are reached without them.
        caller: For whom (cloud_identities/role.name_caller).
        project: "" for the store's own.
        task: The recorded task, as JSON, whose bucket it is; "" for that of the configuration.
    """
    identities = _group(find_settings(store, project))
    own = _of_task(task) if task else _of_configuration()
    return _reach(access, own | identities, caller)


def _reach(access: CloudAccess, identities: Mapping[str, Details], caller: str) -> CloudAccess:
    found = {get_driver(name).bucket_scheme: details for name, details in identities.items() if details}
    return replace(
        access,
        s3=replace(access.s3, identity=found.get("s3", ())),
        cloud_storage=replace(access.cloud_storage, identity=found.get("gs", ())),
        caller=caller,
    )


def open_project_bucket(uri: str, project: str = "", *, task: str = "") -> Bucket:
    """Return a bucket as the members of a project, "" for that of the environment, reach it. Sends nothing.

    Args:
        uri: The bucket.
        project: The project.
        task: The recorded task of a job, which may name an identity; "" for the configuration's.
    """
    from orchestrator.storage.bucket import Bucket

    if uri.startswith("file:"):
        return Bucket.open(uri)
    if find_server(os.environ):  # the store of this computer is not that of the project
        return Bucket.open(uri, _reach(read_cloud_access(os.environ), _of_configuration(), ""))
    with open_reader(project) as reader:
        caller = name_caller(reader.installation() or "", reader.member)
        return Bucket.open(uri, find_access(reader, read_cloud_access(os.environ), caller, task=task))


def list_identities(settings: Iterable[ProjectSetting], provider: str) -> tuple[Details, ...]:
    """Return as whom a provider may be called by the settings of all projects and by the configuration."""
    settings = tuple(settings)
    projects = dict.fromkeys(one.project for one in settings)
    grouped = [_group(select_settings(settings, project)) for project in projects]
    found = [_of_configuration().get(provider, ()), *(one.get(provider, ()) for one in grouped)]
    return tuple(dict.fromkeys(filter(None, found)))


def identity_of(provider: str, details: Details) -> Details:
    """Return the part of a candidate's details that says as whom its machines were made."""
    return tuple(pair for pair in details if pair[0] in _names(provider))


def _group(settings: Mapping[str, str]) -> dict[str, Details]:
    """Return the identities of each driver that the settings name one for."""
    found: dict[str, Details] = {}
    for driver in list_clouds():
        keys = {name: settings.get(f"{driver.name}.{name}", "") for name in _names(driver.name)}
        if any(keys.values()):
            found[driver.name] = tuple(pair for pair in keys.items() if pair[1])
    return found


def _of_task(text: str) -> dict[str, Details]:
    config = cast(Mapping[str, Mapping[str, str]], json.loads(text).get("config", {}))
    return _group({f"{name}.{key}": str(value) for name, section in config.items() for key, value in section.items()})


def _of_configuration() -> dict[str, Details]:
    config = load_config(os.environ)
    return _group({key.full_name: config.text(key.full_name) for key in KEYS if key.identity})


def _names(provider: str) -> tuple[str, ...]:
    return tuple(key.name for key in KEYS if key.identity and key.section == provider)
