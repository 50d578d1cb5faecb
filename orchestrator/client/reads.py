"""The documents of a service, a request each. Lists of more than a page take one request for each page."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from orchestrator.client.base import Document, DocumentReads
from orchestrator.client.patience import Patience
from orchestrator.client.team import make_address
from orchestrator.client.transport import ServiceError
from orchestrator.errors import CloudError, NotFoundError

if TYPE_CHECKING:
    from orchestrator.documents.queries import ClustersQuery, EventsQuery, QueueQuery, RunsQuery, Scope, SpendingQuery
    from orchestrator.engine.operations.checkpoints import RunLocation

PAGE = 1000  # items of a page that is asked for
_MOST_PAGES = 1000  # of a list
_AGAIN_SECONDS = 1.0  # between two requests for the same document


class ReadCalls(DocumentReads):
    """Calls that only read, which a client sends."""

    url: str
    _project: str

    @abstractmethod
    def _get(self, path: str) -> Document: ...

    @abstractmethod
    def _get_page(self, path: str) -> tuple[Document, str | None]:
        """Return a document, and the path of the next page of a list."""

    def read_status(self, query: ClustersQuery) -> Document:
        if query.cluster:
            return self._get(make_address(f"/v1/clusters/{quote(query.cluster, safe='')}", project=self._project))
        pages = self._list_pages(make_address("/v1/clusters", limit=PAGE, **self._choose(query.scope)), "clusters")
        document = next(pages)
        for page in pages:
            document["clusters"] += page["clusters"]
        return document

    def read_queue(self, query: QueueQuery) -> Document:
        ended = "yes" if query.ended else ""
        return self._get(make_address("/v1/queue", cluster=query.cluster, ended=ended, **self._choose(query.scope)))

    def read_runs(self, query: RunsQuery) -> Document:
        address = make_address(
            "/v1/runs", limit=min(query.limit, PAGE), run=query.run_id, cluster=query.cluster,
            before=query.before, **self._choose(query.scope),
        )  # fmt: skip
        pages = self._list_pages(address, "runs")
        document = next(pages)
        while len(document["runs"]) < query.limit and (page := next(pages, None)) is not None:
            document["runs"] += page["runs"]
        del document["runs"][query.limit :]
        return document

    def compare_runs(self, run_ids: Sequence[str]) -> Document:
        """Return runs side by side: results, costs and settings."""
        return self._get(f"/v1/compare?{urlencode([('run', run_id) for run_id in run_ids])}")

    def measure_run(self, run_id: str) -> Document:
        return self._get(f"/v1/runs/{quote(run_id, safe='')}/measured")

    def read_events(self, query: EventsQuery) -> Document:
        left, before, document = query.limit, query.before, Document()
        for _ in range(_MOST_PAGES):
            page = self._get(
                make_address(
                    "/v1/events/newest",
                    after=query.after,
                    before=before,
                    limit=min(left, PAGE),
                    cluster=query.cluster,
                    **self._choose(query.scope),
                )
            )
            document = page if not document else document | {"events": page["events"] + document["events"]}
            if page["from"] is None:
                return document
            if before is not None and int(page["from"]) >= before:
                break
            document["from"] = before = int(page["from"])
            left -= PAGE
            if left <= 0:
                return document
        raise self._endless_error()

    def read_spending(self, query: SpendingQuery) -> Document:
        since = "all" if query.seconds is None else f"{query.seconds}s"
        return self._get(make_address("/v1/spend", by=",".join(query.by), since=since, **self._choose(query.scope)))

    def list_budgets(self) -> Document:
        """Return the budgets, and what is used of them."""
        return self._get("/v1/budgets")

    def list_tokens(self) -> Document:
        """Return what lets this member into the service; to owners what lets anyone in."""
        return self._get("/v1/tokens")

    def read_capacity(self) -> Document:
        return self._get("/v1/capacity")

    def read_accuracy(self) -> Document:
        return self._get("/v1/accuracy")

    def locate_run(self, name: str, bucket: str | None) -> RunLocation:
        from orchestrator.documents.queries import RunsQuery, Scope
        from orchestrator.engine.operations.checkpoints import find_run_in_bucket, locate_recorded_run
        from orchestrator.storage.address import is_bucket_uri

        if is_bucket_uri(name):
            return find_run_in_bucket(name, bucket)
        scope, runs, near = Scope(project=None), list[Document](), ""
        for query in (RunsQuery(scope=scope, cluster=name, limit=1), RunsQuery(scope=scope, run_id=name)):
            try:
                runs = runs or self.read_runs(query)["runs"]
            except ServiceError as error:
                if error.code != NotFoundError.code:
                    raise
                near = error.why
        if not runs:
            return find_run_in_bucket(name, bucket, near)
        return locate_recorded_run(str(runs[0]["run_id"]), bucket or str(runs[0]["bucket"] or ""))

    def ask_again(self, question: Callable[[], Document], report: Callable[[str], object], next_step: str) -> Document:
        time.sleep(_AGAIN_SECONDS)
        return Patience(report=report, subject="", next_step=next_step).ask(question)

    def list_cluster_names(self) -> list[tuple[str, str]]:
        address = make_address("/v1/clusters", limit=PAGE, scope="project", project=self._project)
        pages = self._list_pages(address, "clusters")
        return [(str(one["name"]), str(one["summary"])) for page in pages for one in page["clusters"]]

    def _list_pages(self, address: str, name: str) -> Iterator[Document]:
        """Yield the pages of a list. Raises CloudError for one that does not end."""
        for _ in range(_MOST_PAGES):
            page, following = self._get_page(address)
            yield page
            if following is None:
                return
            if not page[name]:
                break
            address = following
        raise self._endless_error()

    def _endless_error(self) -> CloudError:
        return CloudError(f"{self.url} sent a list that cannot be read", "it does not end", "ask who runs it")

    def _choose(self, scope: Scope) -> dict[str, str]:
        """Return what a query says of whose records are shown, and of the project in which names are found."""
        which = {None: "project", "": "all"}.get(scope.project, "")
        return {"scope": which, "project": scope.project or self._project, "owner": scope.owner}
