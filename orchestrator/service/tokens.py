"""Tokens and invitations through the service: members make and take back their own, owners those of others, too.

Their secret is made by who asks and never sent: a request has its digest. So the same request again is the same token,
and no answer has to be kept secret.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.documents.entries import entries_as_json, entry_of_invitation, entry_of_token, list_entries
from orchestrator.engine.operations import entries as operations
from orchestrator.errors import AccessError, UserError
from orchestrator.service.route import Answer, Call, Person, Role
from orchestrator.store.session_records import InvitationRecord
from orchestrator.store.sign_in_changes import EntryScope
from orchestrator.store.token_parents import list_parents, refuse_long_chain
from orchestrator.store.token_records import TokenRecord, check_entry_names

_DAY = 86_400.0
_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of a secret of 256 random bits.")]
_Days = Annotated[int, Field(ge=1, le=366)]


class TokenRequest(BaseModel):
    """A token: its digest, and for whom it acts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    digest: _Digest
    name: str = Field(max_length=60)
    member: str = Field(default="", max_length=60, description="For whom it acts; yourself without it.")
    role: Literal["viewer", "member", "owner"] = "member"
    project: str = Field(default="", max_length=40, description="The only one that it sees and changes; yours without.")
    days: _Days = Field(default=90, description="Until it expires; your own token ends one of yours before that.")


class InvitationRequest(TokenRequest):
    """An invitation: the digest of what its link ends with."""

    member: str = Field(max_length=60, description="Who is invited.")
    seconds: int = Field(default=7 * 86_400, ge=60, le=30 * 86_400, description="How long the link counts.")


def show_entries(call: Call) -> Answer:
    """Answer with what lets the member in; to owners with what lets anyone in."""
    person, now = _find_person(call), call.site.now()
    scope = _find_scope(person)
    with call.gate.open_reader() as reader:
        found = [one for one in list_entries(reader, now) if scope.has(one.member, one.project)]
    return Answer(document=entries_as_json(found, now))


def create_token(call: Call) -> Answer:
    """Record a token, and answer with it. The same one again changes nothing."""
    request: TokenRequest = call.body
    person, now = _find_person(call), call.site.now()
    project = _check_request(call, person, request)
    # One's own ends with what made it, so that a token which is taken back leaves none behind.
    maker = person.token if request.member in ("", person.name) else ""
    made = TokenRecord(
        digest=request.digest, name=request.name, member=request.member or person.name, role=request.role, created=now,
        expires=min(now + request.days * _DAY, _find_end(call, maker)), project=project,
        parent=f"token {maker}" if maker else "",
    )  # fmt: skip
    with call.gate.open_store("orch token create") as store:
        made = store.add_token(made)
    return Answer(document=entries_as_json([entry_of_token(made)], now))


def create_invitation(call: Call) -> Answer:
    """Record an invitation, and answer with it. The same one again changes nothing."""
    request: InvitationRequest = call.body
    person, now = _find_person(call), call.site.now()
    project = _check_request(call, person, request)
    if person.token and request.member == person.name:  # what it becomes has no parent
        what = "no token makes an invitation for its own member"
        raise AccessError(what, "it would outlive the token", f"orch token create {request.name}")
    made = InvitationRecord(
        digest=request.digest, name=request.name, member=request.member, role=request.role, token_days=request.days,
        created=now, expires=now + request.seconds, project=project,
    )  # fmt: skip
    with call.gate.open_store("orch token invite") as store:
        made = store.add_invitation(made)
    return Answer(document=entries_as_json([entry_of_invitation(made)], now))


def revoke_entries(call: Call) -> Answer:
    """Take back what has a name, or everything of a member; answer with it."""
    name, member = str(call.query["name"]), str(call.query["member"])
    if bool(name) == bool(member):
        raise UserError("a name is needed, or a member", "", "?name=NAME   or: ?member=MEMBER")
    person, now = _find_person(call), call.site.now()
    scope = _find_scope(person)
    if person.role < Role.OWNER:
        scope = replace(scope, role=person.role.name.lower(), parents=_list_parents(call, person))

    taken = operations.revoke_entries(
        call.gate.open_reader,
        partial(call.gate.open_store, "orch token revoke"),
        name=name,
        member=member,
        now=now,
        seen=_find_scope(person),
        scope=scope,
    )
    return Answer(document=entries_as_json(taken, now))


def _find_person(call: Call) -> Person:
    assert call.person is not None  # noqa: S101  # the routes need a role
    return call.person


def _find_scope(person: Person) -> EntryScope:
    """Return which entries exist for who asks."""
    return EntryScope(member="" if person.role >= Role.OWNER else person.name, project=person.project)


def _check_request(call: Call, person: Person, request: TokenRequest) -> str:
    """Return the project of what is made.

    Raises:
        UserError: A name cannot be one.
        AccessError: It would give more than who asks has.
    """
    member = request.member or person.name
    check_entry_names(request.name, member, request.project, "project: vision")
    if Role[request.role.upper()] > person.role:
        raise AccessError(f"a token with the role {request.role} is above yours", f"you are {person.role.name.lower()}",
                          f"role: {person.role.name.lower()}")  # fmt: skip
    if person.project and request.project not in ("", person.project):
        why = f"you are in the project {person.project}"
        raise AccessError("this token is not for your project", why, f"project: {person.project}")
    if member != person.name:
        if person.role < Role.OWNER:
            raise AccessError("owners alone make tokens for others", f"you are {person.name}", f"member: {person.name}")
        if any(one.startswith("trust_rule ") for one in _list_parents(call, person)):
            raise AccessError("a job of CI makes no token for others", "it would outlive the rule", "ask an owner")
        if person.project and not _is_of_project(call, member, person.project):
            why = f"{member} is also known outside of the project {person.project}"
            raise AccessError(f"you make no token for {member}", why, "ask an owner of every project")
    return request.project or person.project


def _find_end(call: Call, maker: str) -> float:
    """Return when the token expires that makes another one; "" for none, which never does.

    Raises:
        AccessError: It makes no other.
    """
    if not maker:
        return math.inf
    with call.gate.open_reader() as reader:
        refuse_long_chain(reader, f"token {maker}")
        found = reader.find_token(maker)
    return math.inf if found is None else found.expires


def _is_of_project(call: Call, member: str, project: str) -> bool:
    """Whether all that is known of a member is of one project; true of a new name."""
    with call.gate.open_reader() as reader:
        return member != call.gate.member and reader.projects_of_member(member) <= {project}


def _list_parents(call: Call, person: Person) -> tuple[str, ...]:
    with call.gate.open_reader() as reader:
        return list_parents(reader, reader.find_token(person.token) if person.token else None)
