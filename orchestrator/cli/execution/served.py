"""Read commands through a team's service (ORCH_SERVER): from a copy of its records, which each command updates."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from orchestrator.client import Client
from orchestrator.client_transport import ServiceError
from orchestrator.errors import AccessError, CloudError, ConflictError
from orchestrator.paths import load_paths
from orchestrator.store.replica import DamagedReplicaError, Position, Replica, ReplicaReader, older_service_error

if TYPE_CHECKING:
    from orchestrator.client_transport import Document
    from orchestrator.store.read import Reader

ANSWER_SECONDS = 60.0
_TRIES = 20  # of an update that others make at the same time; each failure is another's success
_UNAUTHORIZED, _NOT_FOUND = 401, 404


class ServedRecords:
    """The records of a service, used as a context manager. Its connection stays open from one update to the next.

    Attributes:
        replica: The copy of them.
    """

    def __init__(self, url: str, project: str, *, seconds: float = ANSWER_SECONDS) -> None:
        """Prepare; nothing is sent.

        Args:
            url: The address of the service.
            project: The project of the command; "" for that of the token, or of the service.
            seconds: How long an answer may take.

        Raises:
            AccessError: No token is kept for it.
        """
        self._client = Client.connect(url)
        self._client.set_timeout(seconds)
        self._project = project
        self._answered = False
        name = urlsplit(self._client.url).netloc.replace(":", "_").strip("[]")
        self.replica = Replica(load_paths().state / "service" / name)

    def __enter__(self) -> ServedRecords:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    @contextmanager
    def open_reader(self) -> Generator[Reader]:
        """Fetch what is new, and open the copy for reading.

        Raises:
            CloudError: The service does not answer; then nothing is shown, since it could be old.
            AccessError: It does not accept the token.
        """
        try:
            self._update()
        except DamagedReplicaError:
            self.replica.remove()
            self._update()
        if not self._project:
            with explain_refusals(self._client):
                self._project = str(self._client.show_member()["project"])
        try:
            with self.replica.held(), ReplicaReader(self.replica, self._project) as reader:
                yield reader
        except DamagedReplicaError:
            self.replica.remove()
            raise

    def _update(self) -> None:
        with self.replica.held():
            for _ in range(_TRIES):
                position = self.replica.read_position()
                if self._take_over(position):
                    return
        raise ConflictError(
            "the copy of the records changes too often", f"{_TRIES} updates came after another", "repeat the command"
        )

    def _take_over(self, position: Position) -> bool:
        """Bring the copy up to date; return False when another command was first."""
        try:
            documents, tag = self._fetch(position)
            return not documents or self.replica.take_over(position, documents, tag)
        except (TypeError, ValueError, LookupError, AttributeError, OverflowError) as error:
            why = f"{type(error).__name__}: {str(error)[:200]}"
            raise CloudError(f"{self._client.url} sent records that cannot be read", why, "ask who runs it") from error

    def _fetch(self, position: Position) -> tuple[list[Document], str]:
        """Return the documents that a copy needs to be up to date, none when it is, and the tag of the last answer."""
        document, tag = self._ask(position.seq, position.tag)
        if document is None:
            return [], tag
        if position.seq and not position.continues_in(document):
            document, tag = self._ask(0)
        documents: list[Document] = []
        while document is not None:
            documents.append(document)
            if document["complete"]:
                break
            until = int(document["until"]["seq"])
            if until <= int(document["after"]["seq"]):
                raise CloudError(
                    f"{self._client.url} sends the same records again", "", f"curl {self._client.url}/healthz"
                )
            document, tag = self._ask(until)
        return documents, tag

    def _ask(self, after: int, tag: str = "") -> tuple[Document | None, str]:
        try:
            with explain_refusals(self._client):
                found = self._ask_again(after, tag)
        except ServiceError as error:
            if error.http_status == _NOT_FOUND:
                raise older_service_error(f"{self._client.url} answers: {error.what}") from error
            raise
        self._answered = True
        return found

    def _ask_again(self, after: int, tag: str) -> tuple[Document | None, str]:
        """Ask; once more when a connection that had answered before was closed meanwhile."""
        try:
            return self._client.read_records(after, tag)
        except CloudError:
            if not self._answered:
                raise
            return self._client.read_records(after, tag)


@contextmanager
def open_client(url: str) -> Generator[Client]:
    """Give a client of a service whose refusals say what a person can do."""
    with Client.connect(url) as client, explain_refusals(client):
        yield client


@contextmanager
def explain_refusals(client: Client) -> Generator[None]:
    """Say what a person can do about a token that the service does not accept."""
    try:
        yield
    except ServiceError as error:
        if error.http_status != _UNAUTHORIZED:
            raise
        raise AccessError(
            f"{client.url} does not accept your token",
            "it has expired or was taken back",
            f"orch login {client.url}   with a new one (orch token create, on the service's computer)",
        ) from error
