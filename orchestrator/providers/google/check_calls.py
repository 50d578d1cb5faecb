"""Reads that only `orch check` sends: of one session, page by page where there are pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from orchestrator.providers.google.discovery import Discovery
from orchestrator.providers.google.session import Session


@dataclass(frozen=True, slots=True)
class Calls:
    """services: each service that was asked, with its description, which takes a tenth of a second to read."""

    session: Session
    services: dict[tuple[str, str], Discovery] = field(default_factory=dict[tuple[str, str], Discovery])

    @property
    def project(self) -> str:
        return self.session.project

    def ask(self, name: str, version: str, ask: Callable[[Any], Any]) -> dict[str, Any]:
        """What `ask` makes of that service's client, sent. Raises Refused."""
        return self.services.setdefault((name, version), Discovery(self.session, name, version)).read(ask)

    def pages(self, name: str, version: str, ask: Callable[[Any, str], Any]) -> Iterator[dict[str, Any]]:
        """All pages. ask: given the client and the page's token, None for the first. Raises Refused."""
        token: Any = None
        while True:
            page = self.ask(name, version, partial(_page, ask, token))
            yield page
            token = page.get("nextPageToken")
            if not token:
                return


def _page(ask: Callable[[Any, str], Any], token: str, service: Any) -> Any:
    return ask(service, token)
