"""Pages by which a person enters and leaves: one-time links, invitations, sign-out. To open a page changes nothing."""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.errors import AccessError, ConflictError
from orchestrator.service.route import Answer, Call
from orchestrator.store.token_records import RESERVED_MEMBERS

_LOCAL = re.compile(r"/(?!/)[A-Za-z0-9_./?=&%~+-]*")  # no other server: neither //x nor \x


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LinkForm(_Form):
    """The form of a one-time link."""

    code: str = Field(max_length=400)
    target: str = Field(default="", max_length=300)


class JoinForm(_Form):
    """The form of an invitation."""

    code: str = Field(max_length=400)


class SignOutForm(_Form):
    """The form of the button that ends a session: nothing but its token."""


class NameForm(_Form):
    """The form in which a person of the identity provider chooses their name here."""

    code: str = Field(max_length=400)
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,39}$")

    target: str = Field(default="", max_length=300)


def choose_target(text: str) -> str:
    """Return the page to which a sign-in leads: one of this server, or else the first one."""
    return text if _LOCAL.fullmatch(text) else "/"


def show_login(call: Call) -> Answer:
    """Show how to sign in."""
    values = {"target": choose_target(call.query["target"]), "provider": call.gate.provider}
    return Answer(template="login.html", values=values)


def open_link(call: Call) -> Answer:
    """Open a session by the secret of a link."""
    form: LinkForm = call.body
    session = call.gate.open_session(_find_secret(form.code), call.session)
    if session is None:
        step = "orch login   or on the computer of the service: orch serve --link"
        raise AccessError("this link was used before, or is too old", "a link opens one session", step)
    return Answer(location=choose_target(form.target), status=303, session=session)


def show_invitation(_call: Call) -> Answer:
    """Show the button that accepts an invitation."""
    return Answer(template="join.html")


def accept_invitation(call: Call) -> Answer:
    """Accept an invitation: show the token, once, and open a session."""
    form: JoinForm = call.body
    joined = call.gate.accept_invitation(_find_secret(form.code), call.session)
    return Answer(template="joined.html", values={"joined": joined, "address": call.address}, session=joined.session)


def choose_name(call: Call) -> Answer:
    """Give a person of the identity provider their name; show the form again when it cannot be theirs."""
    form: NameForm = call.body
    target = choose_target(form.target)
    try:
        _refuse_reserved(form.name)
        session = call.gate.bind_identity(form.code, form.name, call.person, call.session)
    except ConflictError as error:
        values = {"code": form.code, "name": form.name, "target": target, "error": error}
        return Answer(template="choose_name.html", values=values | {"provider": call.gate.provider}, status=409)
    return Answer(location=target, status=303, session=session)


def _refuse_reserved(name: str) -> None:
    """Raise ConflictError for a name that commands or computers use; a person by an invitation may be `root`."""
    if name in (*RESERVED_MEMBERS, "admin", "root"):
        raise ConflictError(f"the name '{name}' is reserved", "it cannot be that of a person", "choose another name")


def sign_out(call: Call) -> Answer:
    """End the session of this browser."""
    call.gate.close_session(call.session)
    return Answer(location="/login", status=303, session="")


def _find_secret(code: str) -> str:
    """Return the secret in what a person pasted: that alone, or the whole address with it."""
    return code.strip().rpartition("#")[2]
