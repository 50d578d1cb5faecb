"""A client of the service: the routes of its API as methods, which return the API's documents.

Needs the standard library alone. Errors are those of the command line, with the service's exit status and next step.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import UNAUTHORIZED
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import IO
from urllib.parse import quote, urlencode

from orchestrator.client import ci as client_ci
from orchestrator.client.events import FollowedEvents
from orchestrator.client.logins import read_logins
from orchestrator.client.orders import Verb
from orchestrator.client.output import OutputCalls
from orchestrator.client.reads import PAGE, ReadCalls
from orchestrator.client.team import TeamCalls, make_address
from orchestrator.client.transport import Document, ServiceError, Transport
from orchestrator.errors import AccessError, CloudError, OrchError
from orchestrator.project import find_named_project

_KEEPING_SECONDS = 600.0  # in which a service unpacks what was sent
_PAGE = 100
_BUSY_SECONDS = 30.0  # a service reads keys of an issuer for about 20 s at most
_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"  # RFC 8693, section 2.1
_ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105  # the name of a kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What an order would do.

    Attributes:
        request: What was asked for.
        document: The plan as the API returns it; `text` and `notes` are for people.
    """

    request: Document
    document: Document

    @property
    def text(self) -> str:
        """The plan for people, with its notes first, as the command line prints it."""
        return "".join(f"note: {note}\n" for note in self.document["notes"]) + str(self.document["text"])


class Client(ReadCalls, OutputCalls, TeamCalls):
    """A connection to a service, used as a context manager. For one thread."""

    def __init__(
        self, url: str, token: str, *, ca: str = "", project: str = "", socket_path: Path | None = None
    ) -> None:
        """Prepare; nothing is sent.

        Args:
            url: The address of the service.
            token: A token of it.
            ca: File with the certificate that its own must follow from; "" for those of the system.
            socket_path: The Unix socket on which it listens, in place of a port.
            project: In which clusters are found by their names; "" for that of the token, or of the service.

        Raises:
            UserError: The address is not that of a service, or would send the token in clear over a network.
        """
        self._transport = Transport(url, token, ca=ca, socket_path=socket_path)
        self.url = self._transport.url
        self._project = project

    @classmethod
    def connect(cls, url: str = "") -> Client:
        """Return a client with the token that `orch login` keeps; for ORCH_SERVER alone, with that of ORCH_TOKEN first.

        A job of GitHub Actions without either gets a token by its own one.

        Args:
            url: The address of the service; "" for ORCH_SERVER, or the one that was logged in to last.

        Raises:
            AccessError: No token is kept for it.
        """
        project = find_named_project(os.environ)
        logins, server = read_logins(), os.environ.get("ORCH_SERVER", "").strip().rstrip("/")
        url = (url or server or next(reversed(logins), "")).rstrip("/")
        if url == server and url and (token := os.environ.get(client_ci.TOKEN, "").strip()):
            return cls(url, token, ca=logins.get(url, {}).get("ca", ""), project=project)
        if url not in logins:
            if url == server and url and client_ci.can_request_id_token(os.environ):
                client = cls(url, "", project=project)
                client._renew()
                return client
            named = url or "a service"
            raise AccessError(f"no token is kept for {named}", "", f"orch login {url or 'URL'}")
        return cls(url, logins[url]["token"], ca=logins[url].get("ca", ""), project=project)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._transport.close()

    def exchange_token(self, id_token: str) -> Document:
        """Return a short token for a job of CI, and for whom it acts. Needs no token of the service.

        Args:
            id_token: The token that the CI gave to the job, for the address of this service.

        Raises:
            ServiceError: The service does not believe it, or no rule is for the job.
        """
        form = {"grant_type": _EXCHANGE, "subject_token": id_token, "subject_token_type": _ID_TOKEN}
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        until = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                with self._transport.answer("POST", "/v1/tokens/exchange", urlencode(form).encode(), headers) as answer:
                    return answer.read_document()
            except ServiceError as error:
                if error.code != "issuer-busy" or time.monotonic() > until:
                    raise
            time.sleep(1)  # another job of a matrix makes the service read the keys of the CI

    def _renew(self) -> None:
        """Take another token for this job of CI."""
        self._transport.renew = None
        given = self.exchange_token(client_ci.request_id_token(os.environ, self.url))
        self._transport.headers["Authorization"] = f"Bearer {given['access_token']}"
        self._transport.renew = self._renew

    def show_member(self) -> Document:
        """Return for whom this client acts, and their role."""
        return self._get(make_address("/v1/me", project=self._project))

    def list_runs(self, *, project: str = "", owner: str = "") -> Iterator[Document]:
        """Yield all runs, newest first, a page at a time."""
        path: str | None = make_address("/v1/runs", limit=_PAGE, project=project, owner=owner)
        while path is not None:
            document, path = self._get_page(path)
            yield from document["runs"]

    def show_run(self, run_id: str) -> Document:
        """Return one run with its attempts, checkpoints and costs."""
        return self._get(f"/v1/runs/{quote(run_id, safe='')}")

    def read_curves(self, run_id: str, points: int = 600) -> Document:
        """Return loss, rate and cost of a run by step."""
        return self._get(make_address(f"/v1/runs/{quote(run_id, safe='')}/curves", points=points))

    def list_clusters(self) -> list[Document]:
        """Return the open clusters, by name."""
        pages = self._list_pages(make_address("/v1/clusters", limit=PAGE), "clusters")
        return [one for page in pages for one in page["clusters"]]

    def show_queue(self) -> Document:
        """Return the jobs and pipelines that have not ended."""
        return self._get("/v1/queue")

    def set_timeout(self, seconds: float) -> None:
        """Set how long a connection, and an answer, may take from the next connection on."""
        self._transport.set_timeout(seconds)

    def list_events(self, after: int = 0, *, cluster: str = "") -> Iterator[Document]:
        """Yield the events after a number, oldest first, up to the present one."""
        project = self._project if cluster else ""
        path: str | None = make_address("/v1/events", after=after, limit=_PAGE, cluster=cluster, project=project)
        while path is not None:
            document, path = self._get_page(path)
            yield from document["events"]

    def follow_events(self) -> FollowedEvents:
        """Return the events from now on, as a context manager. It has its own connection and thread."""
        return FollowedEvents(self._transport.make_connection, self._transport.headers)

    def make_plan(
        self,
        verb: Verb,
        *,
        cluster: str = "",
        task: str = "",
        job: int | None = None,
        run: str = "",
        down: bool = False,
        abandon: bool = False,
        command: str = "",
        hosts: Sequence[int] | None = None,
        env: Mapping[str, str] = MappingProxyType({}),
        workdir: str = "",
        devices: bool = False,
        machine_options: Mapping[str, bool] = MappingProxyType({}),
        trees: Mapping[str, Document] = MappingProxyType({}),
    ) -> Plan:
        """Return what a command would do. Nothing is done.

        Args:
            verb: The command.
            cluster: The cluster; of a launch, in place of the task's name.
            task: The text of the task file of a launch.
            job: The job to cancel; the newest running one without it.
            run: The run to resume, or the cluster whose last run it is.
            down: Whether a launch or resume deletes the machines when it ends.
            abandon: Whether a `down` gives up machines that do not answer; for owners.
            command: The line for the shell of an exec.
            hosts: Ranks of an exec; None for all.
            env: Variables of an exec, which are kept on record.
            workdir: The folder that an exec sends first, `orch-tree:DIGEST`.
            devices: Whether an exec sends the bundled trainer, to list devices.
            machine_options: Options that are refused for a cluster that has other machines, such as `use_spot`.
            trees: What is in the files that the task names (`orch-tree:DIGEST`), by name: see /openapi.json.
        """
        given: Document = {
            "verb": verb, "project": self._project, "cluster": cluster, "task": task, "job": job, "run": run,
            "down": down, "abandon": abandon, "machine_options": dict(machine_options), "trees": dict(trees),
            "command": command, "env": dict(env), "workdir": workdir, "devices": devices,
        }  # fmt: skip
        request = {name: value for name, value in given.items() if value}
        if hosts is not None:
            request["hosts"] = list(hosts)
        return Plan(request=request, document=self._post("/v1/plans", request))

    def send_files(self, name: str, archive: IO[bytes]) -> None:
        """Send files of a launch.

        Args:
            name: Their name in the task, `orch-tree:DIGEST`.
            archive: The files as an archive (engine/state/tree_archives.py), open for reading.
        """
        digest = name.partition(":")[2]
        size = archive.seek(0, os.SEEK_END)
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        self.close()
        self._transport.set_timeout(_KEEPING_SECONDS)
        try:
            with self._transport.answer("PUT", f"/v1/blobs/{digest}", archive, headers) as answer:
                answer.read_document()
        finally:
            self.close()
            self._transport.set_timeout()

    def order(self, plan: Plan, *, seconds: float = 60.0) -> Document:
        """Order what a plan shows, and return the order. The request is sent again while its answer is lost.

        Args:
            plan: The plan.
            seconds: For how long it is sent again.

        Raises:
            ServiceError: The plan would be another one now (code `plan-changed`), files of the task are to be sent
                first (`files-missing`, with `trees`), or the command is refused.
        """
        body, key = plan.request | {"plan": plan.document["plan"]}, uuid.uuid4().hex
        end = time.monotonic() + seconds
        while True:
            try:
                return self._post("/v1/orders", body, key)
            except CloudError:
                if time.monotonic() > end:
                    raise
                time.sleep(1.0)

    def request_access(
        self, cluster: str, public_key: str, *, uid: str = "", address: str = "", seconds: int | None = None
    ) -> Document:
        """Ask that the hosts of a cluster admit a key, and return the order by which they get it, and their addresses.

        Args:
            cluster: The name of the cluster.
            public_key: The public half, such as `ssh-ed25519 AAAA...`.
            uid: The cluster's uid: another one of this name is refused.
            address: From which it logs in, as CIDR of one address, where a firewall has to admit it.
            seconds: For how long; the service's usual time without it.
        """
        body: Document = {"public_key": public_key, "uid": uid, "address": address} | (
            {} if seconds is None else {"seconds": seconds}
        )
        return self._post(make_address(f"/v1/clusters/{quote(cluster, safe='')}/access", project=self._project), body)

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
        return f"{self.url}/login#{self._post('/v1/links', None)['link']}"

    def _get(self, path: str) -> Document:
        return self._get_page(path)[0]

    def _get_page(self, path: str) -> tuple[Document, str | None]:
        with self._transport.answer("GET", path, headers={"Accept-Encoding": "gzip"}) as answer:
            following, _, relation = answer.get_header("Link").partition(";")
            document = answer.read_document()
        return document, following.strip("<> ") if "next" in relation else None

    def _post(self, path: str, body: Document | None, key: str = "") -> Document:
        return self._send_document("POST", path, body, key)

    def _send_document(self, method: str, path: str, body: Document | None, key: str = "") -> Document:
        headers = {"Idempotency-Key": key} if key else {}
        headers |= {"Content-Type": "application/json"} if body is not None else {}
        with self._transport.answer(
            method, path, None if body is None else json.dumps(body).encode(), headers
        ) as answer:
            return answer.read_document()


@contextmanager
def open_service(url: str, *, seconds: float | None = None) -> Generator[Client]:
    """Give a client of a service whose refusals say what a person can do.

    Args:
        url: The address of the service.
        seconds: How long an answer may take; None for the usual time.

    Raises:
        AccessError: No token is kept for it, or it does not accept the token.
        CloudError: It does not answer.
    """
    with Client.connect(url) as client, explain_refusals(client):
        if seconds is not None:
            client.set_timeout(seconds)
        yield client


@contextmanager
def explain_unreadable(client: Client) -> Generator[None]:
    """Turn what fails as a document of a service is another one than it should be into CloudError."""
    try:
        yield
    except (TypeError, ValueError, LookupError, AttributeError, OverflowError) as error:
        why = f"{type(error).__name__}: {str(error)[:200]}"
        raise CloudError(f"{client.url} sent a document that cannot be read", why, "ask who runs it") from error


@contextmanager
def explain_refusals(client: Client) -> Generator[None]:
    """Say what a person can do about a token that the service does not accept."""
    try:
        yield
    except ServiceError as error:
        if error.http_status != UNAUTHORIZED:
            raise
        raise AccessError(
            f"{client.url} does not accept your token",
            "it has expired or was taken back",
            f"orch login {client.url}   with a new one (orch token create, on the service's computer)",
        ) from error
