"""Changes about the team: budgets, what lets members in, and settings of projects."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

if TYPE_CHECKING:
    from orchestrator.client.transport import Document


class TeamChanges(ABC):
    """Changes about the team. All raise OrchError where who asks may not make them.

    Attributes:
        address: The service; "" for the store of this computer's commands.
    """

    address: str

    @abstractmethod
    def is_me(self, member: str) -> bool:
        """Return whether a token of a member ends with the one that makes it: that of the member who asks."""

    @abstractmethod
    def set_budget(self, project: str, member: str, limits: Mapping[str, object]) -> Document:
        """Set limits of a budget, and return it; those that are not named stay. For owners.

        Args:
            project: Of the budget; "" for all.
            member: Of the budget; "" for all.
            limits: By their names in /openapi.json; None for no limit.
        """

    @abstractmethod
    def remove_budget(self, project: str, member: str) -> None:
        """Remove a budget. For owners."""

    @abstractmethod
    def create_token(
        self, digest: str, name: str, *, member: str = "", role: str = "member", project: str = "", days: int = 90
    ) -> Document:
        """Make a token, and return it without its secret, which is never sent. Repeated, it stays the same one.

        Args:
            digest: SHA-256 of the token, in hexadecimal; a token has 256 random bits.
            name: What it is for.
            member: For whom it acts; "" for yourself. Owners make those of others.
            role: At most yours: viewer, member or owner.
            project: The only one that it sees and changes; "" for yours.
            days: Until it expires. One of yours ends with the token that made it, too.
        """

    @abstractmethod
    def create_invitation(
        self, digest: str, name: str, member: str, *, role: str = "member", project: str = "", days: int = 90,
        seconds: int = 7 * 86_400,
    ) -> Document:  # fmt: skip
        """Make an invitation, and return it. Its link is URL/join#SECRET. For owners.

        Args:
            digest: SHA-256 of the secret, in hexadecimal; it has 256 random bits.
            name: What it is called.
            member: Who is invited.
            role: At most yours.
            project: The only one that they see and change; "" for yours.
            days: How long their token counts.
            seconds: How long the link counts.
        """

    @abstractmethod
    def revoke_tokens(self, *, name: str = "", member: str = "") -> Document:
        """Take back what has a name, or everything of a member, and return it. Owners take back those of all."""

    @abstractmethod
    def list_settings(self, project: str) -> Document:
        """Return as whom the clouds of a project are called."""

    @abstractmethod
    def set_setting(self, project: str, key: str, value: str) -> Document:
        """Set one setting of a project, and return all. For owners of every project."""

    @abstractmethod
    def remove_setting(self, project: str, key: str) -> Document:
        """Remove one setting of a project, and return the others. For owners of every project."""


class TeamCalls(TeamChanges):
    """Changes about the team, which a client sends."""

    url: str

    @abstractmethod
    def _get(self, path: str) -> Document: ...

    @abstractmethod
    def _send_document(self, method: str, path: str, body: Document | None, key: str = "") -> Document: ...

    @abstractmethod
    def show_member(self) -> Document:
        """Return for whom this client acts, and their role."""

    @property
    def address(self) -> str:  # type: ignore[override]  # of this connection
        return self.url

    def is_me(self, member: str) -> bool:
        return bool(self.show_member()["member"] == member)

    def set_budget(self, project: str, member: str, limits: Mapping[str, object]) -> Document:
        body = {"project": project, "member": member, **limits}
        changed: Document = self._send_document("PUT", "/v1/budgets", body)["budgets"][0]
        return changed

    def remove_budget(self, project: str, member: str) -> None:
        self._send_document("DELETE", make_address("/v1/budgets", project=project, member=member), None)

    def create_token(
        self, digest: str, name: str, *, member: str = "", role: str = "member", project: str = "", days: int = 90
    ) -> Document:
        about: Document = {"name": name, "member": member, "role": role, "project": project, "days": days}
        made: Document = self._send_document("POST", "/v1/tokens", {"digest": digest} | about)["tokens"][0]
        return made

    def create_invitation(
        self, digest: str, name: str, member: str, *, role: str = "member", project: str = "", days: int = 90,
        seconds: int = 7 * 86_400,
    ) -> Document:  # fmt: skip
        about: Document = {"name": name, "member": member, "role": role, "project": project, "days": days}
        body = {"digest": digest, "seconds": seconds} | about
        made: Document = self._send_document("POST", "/v1/invitations", body)["tokens"][0]
        return made

    def revoke_tokens(self, *, name: str = "", member: str = "") -> Document:
        return self._send_document("DELETE", make_address("/v1/tokens", name=name, member=member), None)

    def list_settings(self, project: str) -> Document:
        return self._get(f"/v1/projects/{quote(project, safe='')}/settings")

    def set_setting(self, project: str, key: str, value: str) -> Document:
        path = f"/v1/projects/{quote(project, safe='')}/settings"
        return self._send_document("PUT", path, {"key": key, "value": value})

    def remove_setting(self, project: str, key: str) -> Document:
        path = make_address(f"/v1/projects/{quote(project, safe='')}/settings", key=key)
        return self._send_document("DELETE", path, None)


def make_address(path: str, **query: object) -> str:
    """Return a path with a query of what is given."""
    return f"{path}?{urlencode({name: value for name, value in query.items() if value not in ('', None)})}"
