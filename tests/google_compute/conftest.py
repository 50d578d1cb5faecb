"""The cases, the real gcloud and the recording server of tests/google serve here too."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "google"))


@pytest.fixture(scope="module", autouse=True)  # one of the package would stay for other packages of the same worker
def one_description() -> Iterator[None]:
    """Google's client reads its description of a service once a file, not for each test: it takes 0.2 s of a core."""
    from orchestrator.providers.google.session import PREFIXES, Session

    built: dict[tuple[str, str], Any] = {}
    build = Session.service

    def service(self: Session, name: str, version: str, **options: Any) -> Any:
        if (name, version) not in built:
            built[name, version] = build(self, name, version, **options)
        built[name, version]._baseUrl = f"{self.endpoint}{PREFIXES[name]}"
        return built[name, version]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "service", service)
        yield
