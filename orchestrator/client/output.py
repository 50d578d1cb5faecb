"""The output of jobs through a service, a part after the other: a client holds one, whatever a program has printed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from orchestrator.client.base import Document, DocumentReads
from orchestrator.client.team import make_address
from orchestrator.documents.output_parts import MEDIUM, OutputPart, decode_output

if TYPE_CHECKING:
    from orchestrator.client.transport import Transport
    from orchestrator.documents.queries import OutputQuery
    from orchestrator.engine.narrator import Narrator
    from orchestrator.engine.operations.log_sources import Sink
    from orchestrator.engine.preparation.prepared import CommandResult


class OutputCalls(DocumentReads):
    """Calls about the output of jobs, and the records that belong to it."""

    _project: str
    _transport: Transport

    @abstractmethod
    def _get(self, path: str) -> Document: ...

    def read_records(self, cluster: str = "") -> Document:
        """Return the rows of clusters that a command on their hosts needs.

        Args:
            cluster: Those of this name; without it all that exist.
        """
        return self._get(make_address("/v1/records", cluster=cluster, project=self._project))

    def read_output(
        self,
        cluster: str,
        job: int | None = None,
        *,
        uid: str = "",
        setup: bool = False,
        hosts: Sequence[int] = (),
        tail: int | None = None,
        since: int | None = None,
        wait: int = 0,
        positions: Mapping[str, int] = MappingProxyType({}),
    ) -> tuple[Document, Iterator[OutputPart]]:
        """Return the document of a job, and a part of its output.

        Args:
            cluster: The name of its cluster.
            job: Its number; the current one without it.
            uid: The cluster's uid, where its name alone is not enough.
            setup: Whether it is the output of the setup.
            hosts: Of which hosts; none for all.
            tail: Begin with so many last lines of each host.
            since: Begin with what is at most so many seconds old.
            wait: Where there is nothing new, wait so many seconds for it.
            positions: The byte at which to begin, by file; the ends of the parts that were returned before.
        """
        given = {
            "project": self._project or None,
            "job": job,
            "uid": uid or None,
            "setup": "yes" if setup else None,
            "tail": tail,
            "since": since,
            "wait": wait or None,
        }
        query: list[tuple[str, object]] = [(name, value) for name, value in given.items() if value is not None]
        query += [("host", host) for host in hosts]
        query += [("begin", f"{file}:{byte}") for file, byte in positions.items()]
        path = f"/v1/clusters/{quote(cluster, safe='')}/logs?{urlencode(query)}"
        with self._transport.answer("GET", path, headers={"Accept": MEDIUM, "Accept-Encoding": "gzip"}) as answer:
            return decode_output(answer.read_content())

    def give_output(self, query: OutputQuery, sink: Sink, narrator: Narrator) -> CommandResult:
        from orchestrator.client.followed_output import FollowedOutput

        return FollowedOutput(client=self, query=query, sink=sink, setup_sink=sink, note=narrator.note).run()
