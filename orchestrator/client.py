"""A client of the service: the routes of its API as methods, which return the API's documents.

Needs the standard library alone. Errors are those of the command line, with the service's exit status and next step.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import time
import uuid
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, cast
from urllib.parse import quote, urlencode, urlsplit

from orchestrator.errors import AccessError, CloudError, OrchError, UserError
from orchestrator.paths import load_paths
from orchestrator.private_files import make_private_folder, write_whole

Document = dict[str, Any]
Verb = Literal["launch", "resume", "cancel", "stop", "start", "down"]
_SECONDS = 60.0  # for an answer; streams send something every 15 s
_PAGE = 100
_LOGINS = "logins.json"


class ServiceError(OrchError):
    """The service refused a request. Code, exit status and next step are those that it gave."""

    def __init__(self, problem: Mapping[str, Any]) -> None:
        what, why, step = (str(problem.get(name) or "") for name in ("title", "detail", "next_step"))
        super().__init__(what, why, step)
        self.code = str(problem.get("code") or self.code)
        self.exit_status = int(problem.get("exit_status") or self.exit_status)
        self.http_status = int(problem.get("status") or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What an order would do.

    Attributes:
        request: What was asked for.
        document: The plan as the API returns it; `text` is for people.
    """

    request: Document
    document: Document

    @property
    def text(self) -> str:
        """The plan for people."""
        return str(self.document["text"])


class Client:
    """A connection to a service, used as a context manager. For one thread."""

    def __init__(self, url: str, token: str, *, ca: str = "") -> None:
        """Prepare; nothing is sent.

        Args:
            url: The address of the service.
            token: A token of it.
            ca: File with the certificate that its own must follow from; "" for those of the system.

        Raises:
            UserError: The address is not that of a service, or would send the token in clear over a network.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
            raise UserError(f"`{url[:100]}` is not the address of a service", "", "https://orch.example.org")
        self.url = f"{parts.scheme}://{parts.netloc}"
        self._token = token
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=ca or None)
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=_SECONDS, context=context
            )
        elif parts.hostname in ("127.0.0.1", "localhost", "::1"):
            self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=_SECONDS)
        else:
            raise UserError(
                f"{self.url} has no TLS", "the token would be readable on the way", f"https://{parts.netloc}"
            )

    @classmethod
    def connect(cls, url: str = "") -> Client:
        """Return a client with the token that `orch login` keeps.

        Args:
            url: The address of the service; "" for ORCH_SERVER, or the one that was logged in to last.

        Raises:
            AccessError: No token is kept for it.
        """
        logins = _read_logins()
        url = (url or os.environ.get("ORCH_SERVER", "") or next(reversed(logins), "")).rstrip("/")
        if url not in logins:
            named = url or "a service"
            raise AccessError(f"no token is kept for {named}", "", f"orch login {url or 'URL'}")
        return cls(url, logins[url]["token"], ca=logins[url].get("ca", ""))

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def show_member(self) -> Document:
        """Return for whom this client acts, and their role."""
        return self._get("/v1/me")

    def list_runs(self, *, project: str = "", owner: str = "") -> Iterator[Document]:
        """Yield all runs, newest first, a page at a time."""
        path: str | None = _address("/v1/runs", limit=_PAGE, project=project, owner=owner)
        while path is not None:
            document, path = self._get_page(path)
            yield from document["runs"]

    def show_run(self, run_id: str) -> Document:
        """Return one run with its attempts, checkpoints and costs."""
        return self._get(f"/v1/runs/{quote(run_id, safe='')}")

    def read_curves(self, run_id: str, points: int = 600) -> Document:
        """Return loss, rate and cost of a run by step."""
        return self._get(_address(f"/v1/runs/{quote(run_id, safe='')}/curves", points=points))

    def list_clusters(self) -> list[Document]:
        """Return the open clusters."""
        return list(self._get("/v1/clusters")["clusters"])

    def show_queue(self) -> Document:
        """Return the jobs and pipelines that have not ended."""
        return self._get("/v1/queue")

    def list_events(self, after: int = 0, *, cluster: str = "") -> Iterator[Document]:
        """Yield the events after a number, oldest first, up to the present one."""
        path: str | None = _address("/v1/events", after=after, limit=_PAGE, cluster=cluster)
        while path is not None:
            document, path = self._get_page(path)
            yield from document["events"]

    def make_plan(
        self, verb: Verb, *, cluster: str = "", task: str = "", job: int | None = None, down: bool = False
    ) -> Plan:
        """Return what a command would do. Nothing is done.

        Args:
            verb: The command.
            cluster: The cluster; of a launch, in place of the task's name.
            task: The text of the task file of a launch.
            job: The job to cancel; the newest running one without it.
            down: Whether a launch or resume deletes the machines when it ends.
        """
        given: Document = {"verb": verb, "cluster": cluster, "task": task, "job": job, "down": down}
        request = {name: value for name, value in given.items() if value}
        return Plan(request=request, document=self._post("/v1/plans", request))

    def order(self, plan: Plan) -> Document:
        """Order what a plan shows, and return the order. The request is sent again when its answer is lost.

        Raises:
            ServiceError: The plan would be another one now (code `plan-changed`), or the command is refused.
        """
        body, key = plan.request | {"plan": plan.document["plan"]}, uuid.uuid4().hex
        try:
            return self._post("/v1/orders", body, key)
        except CloudError:
            return self._post("/v1/orders", body, key)

    def show_order(self, order_id: str) -> Document:
        """Return one order."""
        return self._get(f"/v1/orders/{quote(order_id, safe='')}")

    def wait_for_order(self, order: Document, seconds: float = 3600.0) -> Document:
        """Return an order when it has ended.

        Raises:
            OrchError: It did not end in this time; it continues.
        """
        end = time.monotonic() + seconds
        while (found := self.show_order(order["id"]))["state"] != "ended":
            if time.monotonic() > end:
                what = f"order {order['id']} has not ended in {seconds:.0f} s"
                raise OrchError(what, "it continues", f"{self.url}/orders/{order['id']}")
            time.sleep(1.0)
        return found

    def make_link(self) -> str:
        """Return an address that opens the page once, within 15 minutes."""
        return f"{self.url}/login?link={self._post('/v1/links', None)['link']}"

    def _get(self, path: str) -> Document:
        return self._get_page(path)[0]

    def _get_page(self, path: str) -> tuple[Document, str | None]:
        """Return a document, and the path of the next page of a list."""
        with self._answer("GET", path) as answer:
            following, _, relation = (answer.getheader("Link") or "").partition(";")
            document: Document = json.load(answer)
        return document, following.strip("<> ") if "next" in relation else None

    def _post(self, path: str, body: Document | None, key: str = "") -> Document:
        with self._answer("POST", path, body, key) as answer:
            document: Document = json.load(answer)
        return document

    @contextmanager
    def _answer(
        self, method: str, path: str, body: Document | None = None, key: str = ""
    ) -> Generator[http.client.HTTPResponse]:
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}
        headers |= {"Idempotency-Key": key} if key else {}
        headers |= {"Content-Type": "application/json"} if body is not None else {}
        try:
            self._connection.request(method, path, None if body is None else json.dumps(body).encode(), headers)
            answer = self._connection.getresponse()
            if answer.status >= 300:
                raise ServiceError(_read_problem(answer))
            yield answer
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._connection.close()
            raise CloudError(f"{self.url} does not answer", str(error), f"curl {self.url}/healthz") from error


def _address(path: str, **query: object) -> str:
    return f"{path}?{urlencode({name: value for name, value in query.items() if value not in ('', None)})}"


def _read_problem(answer: http.client.HTTPResponse) -> Document:
    """Return why a request was refused; also an answer of something else than the service, such as a proxy."""
    content = answer.read(100_000)
    try:
        problem: Any = json.loads(content)
    except ValueError:
        problem = None
    usual = {"title": f"{answer.status} {answer.reason}", "detail": content.decode("utf-8", "replace")[:200].strip()}
    given = cast("Document", problem) if isinstance(problem, dict) else {}
    return usual | given | {"status": answer.status}


def keep_login(url: str, token: str, ca: str = "") -> None:
    """Keep a token for a service, readable by this user alone. It becomes the one that is used without an address."""
    logins = {known: login for known, login in _read_logins().items() if known != url}
    folder = load_paths().state / "service"
    make_private_folder(folder)
    write_whole(folder / _LOGINS, json.dumps(logins | {url: {"token": token, "ca": ca}}))


def _read_logins() -> dict[str, dict[str, str]]:
    """Return the kept tokens by the address of their service, the last login last."""
    try:
        kept: dict[str, dict[str, str]] = json.loads(Path(load_paths().state / "service" / _LOGINS).read_text("utf-8"))
    except FileNotFoundError:
        return {}
    return kept
