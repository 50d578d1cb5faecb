"""What a route is: method, path, role, parameters, and the document that it answers with.

One closed table of these (routes.py) makes the router, the OpenAPI document, and the tests that loop over it. A route
without a role cannot exist.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import BaseModel, ValidationError

from orchestrator.documents import output_parts
from orchestrator.documents.queries import Scope
from orchestrator.errors import UserError
from orchestrator.service.site import Site
from orchestrator.service_version import OLDEST_CLIENT
from orchestrator.store.known_names import refuse_unknown_project

if TYPE_CHECKING:
    from orchestrator.documents.output_parts import OutputPart
    from orchestrator.service.gate import Gate
    from orchestrator.service.output_marks import OutputMark
    from orchestrator.store.read import Reader

_MANY = 2**53  # up to which floats hold every whole number
_NUL = "\0"  # which no text of PostgreSQL has
_Json: TypeAlias = "str | float | list[_Json] | dict[str, _Json] | None"


class Role(IntEnum):
    """Who may call a route; each role includes those below it."""

    ANYONE = 0  # also without a session
    VIEWER = 1
    MEMBER = 2
    OWNER = 3
    ADMIN = 4


class Medium(StrEnum):
    """What a route answers with, and how its errors are shown."""

    JSON = "application/json"
    PAGE = "text/html"
    TEXT = "text/plain"
    EVENTS = "text/event-stream"
    OUTPUT = output_parts.MEDIUM


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Who asks.

    Attributes:
        name: The member.
        role: What they may do.
        project: The only one that they see and change; "" for every project.
        session: Whether a browser's session proves it, and not a token.
        token: The digest of the token that proves it; "" for a session, and for the token of this computer's programs.
    """

    name: str
    role: Role
    project: str = ""
    session: bool = False
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of the query.

    Attributes:
        kind: Its type; numbers have bounds, texts at most `longest` characters.
        choices: The values that it takes; () for any.
        most_values: How often it may be given. With more than one its value is a tuple of all, () without one.
    """

    name: str
    meaning: str
    kind: type[int] | type[float] | type[str] = str
    default: int | float | str | None = None
    least: float = 0
    most: float = _MANY
    longest: int = 200
    choices: tuple[str, ...] = ()
    most_values: int = 1

    def parse_all(self, texts: Sequence[str]) -> Any:
        """Return the value of a parameter from all that the query has of it. Raises UserError as `parse` does."""
        if len(texts) > self.most_values:
            times = "once" if self.most_values == 1 else f"at most {self.most_values} times"
            raise UserError(f"`{self.name}` is given {len(texts)} times", f"it is taken {times}", "see /openapi.json")
        if self.most_values > 1:
            return tuple(self.parse(text) for text in texts)
        return self.parse(texts[0]) if texts else self.default

    def parse(self, text: str) -> int | float | str:
        """Return the value of a parameter. Raises UserError for one that it does not take."""
        try:
            value = self.kind(text)
        except ValueError:
            raise self._refuse(text) from None
        if isinstance(value, str):
            if len(value) > self.longest or _NUL in value or (self.choices and value not in self.choices):
                raise self._refuse(text)
        elif not self.least <= value <= self.most:
            raise self._refuse(text)
        return value

    def _refuse(self, text: str) -> UserError:
        if self.choices:
            takes = f"one of {', '.join(self.choices)}"
        elif self.kind is str:
            takes = f"at most {self.longest} characters"
        else:
            takes = f"a number of at least {self.least:g}" + (
                f" and at most {self.most:,}" if self.most < _MANY else ""
            )
        return UserError(f"`{self.name}={text[:40]}` is not taken", f"`{self.name}` is {takes}", "see /openapi.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a route, with everything parsed.

    Attributes:
        body: What was sent, for routes with a request model; the file of what was sent, for those that take content.
        key: By which a repeated request is the same one (Idempotency-Key); "" where none is needed.
        form_token: What a form of this session has to send back.
        session: The secret of the browser's session; "" without one.
        address: By which the service was called, such as https://orch.example.org.
        caller: The network from which it comes; "" where a proxy hides it.
        audiences: The addresses that are this service's alone: tokens of others have to be made for one of them.
    """

    site: Site
    gate: Gate
    person: Person | None
    session: str = ""
    address: str = ""
    caller: str = ""
    audiences: frozenset[str] = frozenset()
    body: Any = None
    key: str = ""
    form_token: str = ""
    path: Mapping[str, str] = field(default_factory=dict[str, str])
    query: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def only_project(self) -> str:
        """The only project that who asks may see and change; "" for every project."""
        return self.person.project if self.person is not None else ""

    @property
    def project(self) -> str:
        """The project in which clusters are found by their names: that of the request, else of who asks."""
        return str(self.query.get("project") or self.only_project or self.site.project)

    def open_reader(self) -> Reader:
        """Open the records that who asks may see. Use it as a context manager. Raises StoreError as the site does."""
        reader = self.site.open_reader(self.project, self.only_project)
        reader.asking_member = self.person.name if self.person is not None else ""
        return reader

    def read_scope(self, reader: Reader) -> Scope:
        """Return whose records a list shows. Raises UserError for a project of which nothing is on record."""
        project: str | None = str(self.query["project"])
        match self.query.get("scope"):
            case "project":
                project = None
            case "all":
                project = ""
            case _:
                refuse_unknown_project(reader, str(project), self.only_project or self.site.project)
        return Scope(project=project, owner=str(self.query["owner"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of a handler: a document for JSON, or its text; a template with its values for a page; or a text.

    Attributes:
        parts: Of output, behind the document.
        unchanged: What has to change before a request that is held is answered; None for an answer that is not held.
        following: The query of the next page of a list; None for the last.
        location: Address of what was made: a page leads there, other answers name it.
        status: The HTTP status.
        session: The secret of a new session for the browser; "" takes the present one from it; None changes nothing.
        secret: Whether it shows a secret, which nothing on the way may keep.
    """

    document: Any = None
    template: str = ""
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    text: str = ""
    parts: Sequence[OutputPart] = ()
    unchanged: OutputMark | None = None
    following: Mapping[str, str] | None = None
    location: str = ""
    status: int = 200
    session: str | None = None
    secret: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One row of the table.

    Attributes:
        name: Stable name, unique in the table.
        schema: Name of the JSON Schema of the answer; "" for a page or a text.
        handler: Answers a call, in a thread; None for streams, which application.py serves.
        request: The model of what is sent: JSON with a token, or the fields of a form with a session.
        keyed: Whether a request has a key, by which the same request again changes nothing more.
        immediate: Whether it is answered without a thread, and without who asks: also when every thread is at work.
        computes: Whether the handler computes for seconds: few of these work at a time, so that others are answered.
        sums: Whether the handler may wait for a long sum: in threads apart, so that others are answered meanwhile.
        oauth: Whether programs send a form, as OAuth does. Others are asked then, so few of these work at a time.
        most_content: Bytes that it takes as they are, into a file that the call has as its body; 0 for none.
        oldest_client: The oldest orch that may call it, where its header says a version; others get 426.
        audit: The kind of the event that a change writes; "" for routes whose order, sign-in or files write their own.
    """

    name: str
    path: str
    role: Role
    medium: Medium
    meaning: str
    handler: Callable[[Call], Answer] | None
    method: str = "GET"
    schema: str = ""
    parameters: Sequence[Parameter] = ()
    request: type[BaseModel] | None = None
    keyed: bool = False
    immediate: bool = False
    computes: bool = False
    sums: bool = False
    oauth: bool = False
    most_content: int = 0
    audit: str = ""
    oldest_client: str = OLDEST_CLIENT

    def parse_body(self, content: bytes | Mapping[str, str]) -> Any:
        """Return what was sent, as JSON or as the fields of a form.

        Raises:
            UserError: It is not what the route takes.
        """
        if self.request is None:
            return None
        try:
            if isinstance(content, bytes):
                found = self.request.model_validate_json(content)
            else:
                found = self.request.model_validate(content)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            name = ".".join(str(part) for part in first["loc"]) or "the body"
            raise UserError(f"`{name[:60]}` is not taken: {first['msg'][:200]}", "", "see /openapi.json") from error
        if _has_nul(found.model_dump(mode="json")):
            raise UserError("what was sent has a NUL character", "no text has one", "see /openapi.json")
        return found

    def parse_query(self, query: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """Return the values of all parameters.

        Args:
            query: All values of each name.

        Raises:
            UserError: A parameter is unknown, comes too often, or its value is not taken.
        """
        known = {one.name: one for one in self.parameters}
        for name in query:
            if name not in known:
                takes = f"it takes {', '.join(known)}" if known else "it takes none"
                raise UserError(f"{self.path} has no parameter `{name[:40]}`", takes, "see /openapi.json")
        return {name: one.parse_all(query.get(name, ())) for name, one in known.items()}


def _has_nul(value: _Json) -> bool:
    """Return whether a text in the values of a model has a NUL character."""
    if isinstance(value, dict):
        return any(_has_nul(one) for one in (*value.keys(), *value.values()))
    if isinstance(value, list):
        return any(map(_has_nul, value))
    return isinstance(value, str) and _NUL in value
