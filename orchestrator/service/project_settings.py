"""Settings of projects through the service: as whom their clouds are called."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.engine.state.project_settings import describe_settings, make_setting, refuse_other_key
from orchestrator.errors import AccessError, NotFoundError
from orchestrator.project import check_project
from orchestrator.service.route import Answer, Call


class SettingRequest(BaseModel):
    """One setting of a project."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: str = Field(max_length=60, description="As `orch config list --project NAME` names it.")
    value: str = Field(min_length=1, max_length=2000)


def list_settings(call: Call) -> Answer:
    """Answer with the settings of a project."""
    project = check_project(call.path["project"], "/v1/projects/vision/settings")
    if call.only_project not in ("", project):
        why = f"you are in the project {call.only_project}"
        raise NotFoundError(f"there is no project '{project}'", why, f"orch config list --project {call.only_project}")
    return _show(call, project)


def set_setting(call: Call) -> Answer:
    """Set one setting, and answer with all of the project. The same one again changes nothing."""
    request: SettingRequest = call.body
    setting = make_setting(call.path["project"], request.key, request.value)
    _refuse_limited(call)
    with call.site.open_store("orch config set --project") as store:
        store.set_project_setting(setting)
    return _show(call, setting.project)


def remove_setting(call: Call) -> Answer:
    """Remove one setting, and answer with the others."""
    project, key = check_project(call.path["project"], "/v1/projects/vision/settings"), str(call.query["key"])
    refuse_other_key(key)
    _refuse_limited(call)
    with call.site.open_store("orch config unset --project") as store:
        store.remove_project_setting(project, key)
    return _show(call, project)


def _refuse_limited(call: Call) -> None:
    """Refuse owners of one project: its machines would be made as whoever the server may act as, such as another one.

    Raises:
        AccessError: Who asks is one.
    """
    if call.only_project:
        why = "the server may act as other projects, too, so this decides about more than yours"
        raise AccessError("owners of every project alone set as whom clouds are called", why, "ask one of them")


def _show(call: Call, project: str) -> Answer:
    with call.site.open_reader(project) as reader:
        return Answer(document=describe_settings(reader, project))
