"""Settings of projects in the store: who changes them, what of it is audited, and that nothing else of a project sees
them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import NotFoundError
from orchestrator.store.location import Location
from orchestrator.store.read import open_reader_at
from orchestrator.store.setting_records import ProjectSetting, select_settings
from orchestrator.store.store import Store

ROLE = ProjectSetting(project="vision", key="aws.role_arn", value="arn:aws:iam::111111111111:role/vision")
OTHER = ProjectSetting(project="default", key="gcp.impersonate", value="a@p.iam.gserviceaccount.com")


def test_a_setting_is_of_its_project_alone_and_each_change_is_an_event(location: Location) -> None:
    with Store(location, lambda: 5.0) as store:
        store.set_project_setting(OTHER)
        store.set_project_setting(ROLE)
        store.set_project_setting(ROLE)
        store.remove_project_setting("vision", "aws.role_arn")
        with pytest.raises(NotFoundError, match="not set for project 'vision'"):
            store.remove_project_setting("vision", "aws.role_arn")
        store.set_project_setting(ROLE)
        assert store.project_settings() == (OTHER, ROLE)
    with open_reader_at(location) as reader:
        assert select_settings(reader.project_settings(), "vision") == {ROLE.key: ROLE.value}
        found = [(one.kind, one.what, one.subject) for one in reader.events(None) if one.kind == "setting"]
    assert [what for _, what, _ in found] == [
        f"project default: gcp.impersonate is {OTHER.value}",
        f"project vision: aws.role_arn is {ROLE.value}",
        "project vision: aws.role_arn removed",
        f"project vision: aws.role_arn is {ROLE.value}",
    ]
    assert {subject for _, _, subject in found} == {
        "project_setting vision/aws.role_arn", "project_setting default/gcp.impersonate",
    }  # fmt: skip


def test_a_store_that_does_not_exist_has_none(tmp_path: Path) -> None:
    with open_reader_at(tmp_path / "none.db") as reader:
        assert reader.project_settings() == ()
