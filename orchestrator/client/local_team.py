"""Changes about the team in the store of this computer's commands. Each call imports what it needs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from orchestrator.client.base import Document
from orchestrator.client.local import open_own_reader, read_record_time
from orchestrator.client.team import TeamChanges
from orchestrator.errors import UserError

if TYPE_CHECKING:
    from orchestrator.store.store import Store

_DAY = 86_400.0


class LocalTeam(TeamChanges):
    """Changes the store, which each call opens."""

    address = ""

    def is_me(self, member: str) -> bool:
        return False  # a token that the store's own user makes ends with no other

    def set_budget(self, project: str, member: str, limits: Mapping[str, object]) -> Document:
        from orchestrator.documents.budgets import budgets_as_json, summarize_budgets

        with _open_store("orch budget set") as store:
            changed = store.change_budget_limits(project, member, limits)
        now = read_record_time()
        with open_own_reader() as reader:
            states = tuple(one for one in summarize_budgets(reader, now) if one.budget.scope == changed.scope)
        found: Document = budgets_as_json(states, now)["budgets"][0]
        return found

    def remove_budget(self, project: str, member: str) -> None:
        with _open_store("orch budget remove") as store:
            store.remove_budget(project, member)

    def create_token(
        self, digest: str, name: str, *, member: str = "", role: str = "member", project: str = "", days: int = 90
    ) -> Document:
        from orchestrator.documents.entries import entries_as_json, entry_of_token
        from orchestrator.store.token_records import TokenRecord

        if not member:
            raise UserError("a member is needed", "a token acts for one", f"orch token create {name} --member MEMBER")
        now = time.time()
        token = TokenRecord(
            digest=digest, name=name, member=member, role=role, created=now, expires=now + days * _DAY, project=project
        )
        with _open_store("orch token create") as store:
            made = store.add_token(token)
        found: Document = entries_as_json([entry_of_token(made)], now)["tokens"][0]
        return found

    def create_invitation(
        self, digest: str, name: str, member: str, *, role: str = "member", project: str = "", days: int = 90,
        seconds: int = 7 * 86_400,
    ) -> Document:  # fmt: skip
        from orchestrator.documents.entries import entries_as_json, entry_of_invitation
        from orchestrator.store.session_records import InvitationRecord

        now = time.time()
        invitation = InvitationRecord(
            digest=digest, name=name, member=member, role=role, token_days=days, created=now, expires=now + seconds,
            project=project,
        )  # fmt: skip
        with _open_store("orch token invite") as store:
            made = store.add_invitation(invitation)
        found: Document = entries_as_json([entry_of_invitation(made)], now)["tokens"][0]
        return found

    def revoke_tokens(self, *, name: str = "", member: str = "") -> Document:
        from orchestrator.documents.entries import entries_as_json
        from orchestrator.engine.operations.entries import revoke_entries
        from orchestrator.store.sign_in_changes import EntryScope

        now, every = read_record_time(), EntryScope(member="", project="")
        taken = revoke_entries(
            open_own_reader,
            lambda: _open_store("orch token revoke"),
            name=name,
            member=member,
            now=now,
            seen=every,
            scope=every,
        )
        return entries_as_json(taken, now)

    def list_settings(self, project: str) -> Document:
        from orchestrator.engine.state.project_settings import read_project_settings

        return read_project_settings(project)

    def set_setting(self, project: str, key: str, value: str) -> Document:
        from orchestrator.engine.state.project_settings import set_project_setting

        set_project_setting(project, key, value)
        return self.list_settings(project)

    def remove_setting(self, project: str, key: str) -> Document:
        from orchestrator.engine.state.project_settings import remove_project_setting

        remove_project_setting(project, key)
        return self.list_settings(project)


def _open_store(doing: str) -> AbstractContextManager[Store]:
    from orchestrator.engine.services import real_services
    from orchestrator.engine.state.opening import open_store
    from orchestrator.paths import load_paths

    where = load_paths()
    return open_store(where, real_services(where), doing)
