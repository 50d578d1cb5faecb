"""One client of EC2 for all homes that use a server one after the other: what it has read of the model, it keeps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.aws_cloud import aws_session
from support.aws_world import AwsHome, PointedAws, pointed
from support.simulated import Points

from orchestrator.providers.records import Records


class Line(Points):
    """user: whose points are passed now."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.user = Points()
        self._clients: list[Any] = []
        self.session = aws_session(url, hook=self._watch)

    def here(self, name: str) -> None:
        self.user.here(name)

    def hang_up(self) -> None:
        """A child that was forked must not speak on its parent's connections."""
        for client in self._clients:
            client.close()

    def _watch(self, client: Any) -> None:
        self._clients.append(client)
        pointed(self)(client)


@dataclass
class LinedHome(AwsHome):
    line: Line | None = None

    def elsewhere(self, state: Path) -> PointedAws:
        """The provider of another orch, whose state is in another folder."""
        return self._opened(state / "aws", Points())

    def _opened(self, records: Records | Path, points: Points | None = None) -> PointedAws:
        assert self.line is not None
        self.line.user = points or self.points
        session = self.line.session
        return self.kind(lambda _: session, records, self.clock.now, self.clock.sleep)
