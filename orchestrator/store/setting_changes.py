"""Settings of a project, which hold for all of its members: as whom its clouds and buckets are called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select

from orchestrator.errors import NotFoundError
from orchestrator.store.change import EventDetails, Guard, insert_row, update_row
from orchestrator.store.ledger import Ledger
from orchestrator.store.schema import project_settings
from orchestrator.store.setting_records import ProjectSetting, select_settings


class SettingChanges(Ledger):
    """The changes of settings. A removed one keeps its row, without a value."""

    def project_settings(self) -> tuple[ProjectSetting, ...]:
        """Return the settings of all projects, by project and key."""
        table = project_settings
        query = select(table).where(table.c.value != "").order_by(table.c.project, table.c.key)
        return self._read_all(query, lambda row: ProjectSetting(**row))

    def set_project_setting(self, setting: ProjectSetting) -> None:
        """Record a setting, or replace its value."""
        self._change_setting(setting, f"project {setting.project}: {setting.key} is {setting.value}")

    def remove_project_setting(self, project: str, key: str) -> None:
        """Remove a setting.

        Raises:
            NotFoundError: There is none.
        """
        if key not in select_settings(self.project_settings(), project):
            raise NotFoundError(
                f"{key} is not set for project '{project}'", "", f"orch config list --project {project}"
            )
        self._change_setting(ProjectSetting(project=project, key=key, value=""), f"project {project}: {key} removed")

    def _change_setting(self, setting: ProjectSetting, what: str) -> None:
        key = {"project": setting.project, "key": setting.key}
        table, details = project_settings, EventDetails(cluster="", kind="setting", what=what)
        for at in self._tries(f"the settings of project '{setting.project}'"):
            query = select(table.c.value).where(table.c.project == setting.project, table.c.key == setting.key)
            known: tuple[Mapping[str, Any], ...] = self._read_all(query, dict)
            if known and known[0]["value"] == setting.value:
                return
            if known:
                change = update_row(table, key, {"value": setting.value}, details)
            else:
                change = insert_row(table, {**key, "value": setting.value}, details)
            guard = Guard(table=table, key=key, values={"value": known[0]["value"]} if known else None)
            if self.change(change, at=at, guards=(guard,)) is not None:
                return
