"""Calls of the TPU API: each with its deadline, each error told apart once.

Version 2 over REST by google-cloud-tpu; what only version 2alpha1 can say is sent by alpha.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from orchestrator.distribution import install_command
from orchestrator.errors import CloudError, UserError
from orchestrator.providers.core.faults import Kind, Refused
from orchestrator.providers.google import alpha, iap, requests
from orchestrator.providers.google.alpha import AlphaApi, Operation
from orchestrator.providers.google.choices import Api
from orchestrator.providers.google.retries import reading, understood
from orchestrator.providers.google.session import Session
from orchestrator.slices import Request

if TYPE_CHECKING:
    from google.cloud import tpu_v2


READ_SECONDS = 15.0
CHANGE_SECONDS = 60.0
HOST_KEY = "hostkeys/ssh-ed25519"
_Result = TypeVar("_Result")


def open_api(session: Session) -> TpuApi:
    """Sends nothing. Raises UserError without the library."""
    try:
        from google.cloud import tpu_v2
    except ImportError as error:
        raise UserError("Google's client library is not installed", str(error), install_command("google")) from error
    options = {"api_endpoint": session.endpoint} if session.loopback else None
    client = tpu_v2.TpuClient(credentials=session.credentials, transport="rest", client_options=options)
    calls: Any = vars(client.transport)["_session"]  # the library shows its answers' headers nowhere else

    def hear(answer: Any, **_: Any) -> None:
        session.hear(answer.headers.get("date", ""))

    calls.hooks["response"].append(hear)
    return TpuApi(client, session)


class TpuApi:
    """project: what the user's configuration names, "" for none. Every method may raise Refused."""

    def __init__(self, client: object, session: Session) -> None:
        self._client: Any = client  # a tpu_v2.TpuClient; its own types are incomplete
        self._alpha = AlphaApi(session)
        self.project = session.project
        self.loopback = session.loopback

    def create(self, request: Request) -> str:
        """Send a planned create, once. The name of its long-running operation."""
        if request.service.endswith(f".{alpha.VERSION}"):
            return _changing(lambda: self._alpha.create(request, CHANGE_SECONDS))
        if "/nodes?" in request.target:
            message = requests.create_node(request)
            made = _changing(lambda: self._client.create_node(message, retry=None, timeout=CHANGE_SECONDS))
        else:
            queued = requests.create_queued_resource(request)
            made = _changing(lambda: self._client.create_queued_resource(queued, retry=None, timeout=CHANGE_SECONDS))
        return str(made.operation.name)

    def node(self, path: str) -> tpu_v2.Node | None:
        """None only when the API says that there is none."""
        return _found(lambda: self._client.get_node(name=path, retry=None, timeout=READ_SECONDS))

    def queued(self, path: str) -> tpu_v2.QueuedResource | None:
        return _found(lambda: self._client.get_queued_resource(name=path, retry=None, timeout=READ_SECONDS))

    def operation(self, path: str, api: Api) -> Operation | None:
        """None when there is none any more. api: the version that began it; no other can read its messages."""
        if api == alpha.VERSION:
            return _found(lambda: self._alpha.operation(path, READ_SECONDS))
        found: Any = _found(lambda: self._client.get_operation({"name": path}, retry=None, timeout=READ_SECONDS))
        if found is None:
            return None
        return Operation(bool(found.done), int(found.error.code), str(found.error.message))

    def delete_node(self, path: str) -> None:
        """What is gone already is no error."""
        _gone(lambda: self._client.delete_node(name=path, retry=None, timeout=CHANGE_SECONDS))

    def delete_queued(self, path: str) -> None:
        from google.cloud import tpu_v2

        message = tpu_v2.DeleteQueuedResourceRequest(name=path, force=True)
        _gone(lambda: self._client.delete_queued_resource(message, retry=None, timeout=CHANGE_SECONDS))

    def stop(self, path: str) -> None:
        from google.cloud import tpu_v2

        message = tpu_v2.StopNodeRequest(name=path)
        _changing(lambda: self._client.stop_node(message, retry=None, timeout=CHANGE_SECONDS))

    def start(self, path: str) -> None:
        from google.cloud import tpu_v2

        message = tpu_v2.StartNodeRequest(name=path)
        _changing(lambda: self._client.start_node(message, retry=None, timeout=CHANGE_SECONDS))

    def update(self, path: str, labels: Mapping[str, str], metadata: Mapping[str, str]) -> str:
        """Give a node these labels and metadata instead of those it has. The name of the operation."""
        from google.cloud import tpu_v2

        node = tpu_v2.Node(name=path, labels=dict(labels), metadata=dict(metadata))
        message = tpu_v2.UpdateNodeRequest(node=node, update_mask={"paths": ["labels", "metadata"]})
        made = _changing(lambda: self._client.update_node(message, retry=None, timeout=CHANGE_SECONDS))
        return str(made.operation.name)

    def host_keys(self, path: str) -> tuple[str, ...]:
        """Each worker's ed25519 key as it says it (base64), in worker order; "" for one that says nothing."""
        return tuple(
            next((item.value for item in worker.query_value.items if f"{item.namespace}/{item.key}" == HOST_KEY), "")
            for worker in self._guest_attributes(path)
        )

    def instance_names(self, path: str) -> tuple[str, ...]:
        """What each worker is called on Compute Engine, in worker order; "" for one that says nothing."""
        return iap.instance_names(self._guest_attributes(path))

    def _guest_attributes(self, path: str) -> Any:
        """Of all workers."""
        from google.cloud import tpu_v2

        message = tpu_v2.GetGuestAttributesRequest(name=path, worker_ids=[""])
        return _read(
            lambda: self._client.get_guest_attributes(message, retry=None, timeout=READ_SECONDS)
        ).guest_attributes

    def zones(self, project: str) -> list[str]:
        """Zones in which this project may have TPUs. All pages."""
        found: list[str] = []
        page = ""
        while True:
            ask = {"name": f"projects/{project}", "page_token": page, "page_size": 500}
            answer = _read(partial(self._client.list_locations, ask, retry=None, timeout=READ_SECONDS))
            found += [place.location_id for place in answer.locations]
            page = answer.next_page_token
            if not page:
                return found

    def nodes(self, parent: str) -> list[tpu_v2.Node]:
        """All pages. Raises CloudError when a place did not answer."""
        return [node for page in self._pages("list_nodes", parent) for node in page.nodes]

    def queued_resources(self, parent: str) -> list[tpu_v2.QueuedResource]:
        return [one for page in self._pages("list_queued_resources", parent) for one in page.queued_resources]

    def _pages(self, method: str, parent: str) -> Iterator[Any]:
        call = getattr(self._client, method)
        token = ""
        while True:
            ask: dict[str, object] = {"parent": parent, "page_token": token, "page_size": 500}
            page: Any = _read(partial(_one_page, call, ask))
            if page.unreachable:
                where = ", ".join(page.unreachable)
                raise CloudError(
                    "Google could not list all TPUs", f"no answer from {where}", "run the same command again"
                )
            yield page
            token = page.next_page_token
            if not token:
                return


def _one_page(call: Any, ask: dict[str, object]) -> Any:
    return next(iter(call(ask, retry=None, timeout=READ_SECONDS).pages))


def _changing(call: Callable[[], _Result]) -> _Result:
    """Sent once: whether it acted is found out by looking, never by sending it again."""
    try:
        return call()
    except Exception as error:
        raise _refused(error) from error


def _read(call: Callable[[], _Result]) -> _Result:
    try:
        return reading(call)
    except Exception as error:
        raise _refused(error) from error


def _found(call: Callable[[], _Result]) -> _Result | None:
    try:
        return _read(call)
    except Refused as refused:
        if refused.answer.kind is Kind.NOT_FOUND:
            return None
        raise


def _gone(call: Callable[[], object]) -> None:
    try:
        _changing(call)
    except Refused as refused:
        if refused.answer.kind is not Kind.NOT_FOUND:
            raise


def _refused(error: Exception) -> Exception:
    answer = understood(error)
    return error if answer is None else Refused(answer)
