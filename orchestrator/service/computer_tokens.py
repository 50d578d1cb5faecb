"""A person makes a token for the command line of a computer on the page, where they are signed in."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.acting import acting_as
from orchestrator.errors import AccessError
from orchestrator.service.route import Answer, Call, Person, Role
from orchestrator.store.token_parents import refuse_long_chain
from orchestrator.store.token_records import TokenRecord, digest_token, make_token


class ComputerForm(BaseModel):
    """The form in which a person names the computer that gets a token."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    computer: str = Field(min_length=1, max_length=60)


def show_computer_form(call: Call) -> Answer:
    """Show what a token for a computer would be; to open the page changes nothing."""
    return Answer(template="computer_token.html", values=_describe(call) | {"token": "", "error": None})


def create_computer_token(call: Call) -> Answer:
    """Make a token for a computer, and show it once. It ends with what the person entered by."""
    form: ComputerForm = call.body
    person = _find_person(call)
    opener = call.gate.find_opener(digest_token(call.session))
    if opener is None:
        raise AccessError("your session has ended", "", "sign in again")
    try:
        with call.gate.open_reader() as reader:
            refuse_long_chain(reader, opener.subject)
    except AccessError as error:
        values = _describe(call) | {"token": "", "error": error}
        return Answer(template="computer_token.html", values=values, status=403)
    token = make_token()
    made = TokenRecord(
        digest=digest_token(token), name=_clean(form.computer), member=person.name, role=_role_of(person),
        created=call.site.now(), expires=call.gate.limit_token(call.session), project=opener.project,
        parent=opener.subject,
    )  # fmt: skip
    with acting_as(person.name), call.gate.open_store("a token is made on the page") as store:
        made = store.add_computer_token(made)
    values = _describe(call) | {"token": token, "name": made.name, "error": None}
    return Answer(template="computer_token.html", values=values, secret=True)


def _describe(call: Call) -> dict[str, object]:
    person = _find_person(call)
    return {"role": _role_of(person), "until": call.gate.limit_token(call.session), "address": call.address}


def _find_person(call: Call) -> Person:
    assert call.person is not None  # noqa: S101  # the route needs a role
    return call.person


def _role_of(person: Person) -> str:
    """Return the role of the token: that of who makes it, as far as tokens have one."""
    return min(person.role, Role.OWNER).name.lower()


def _clean(name: str) -> str:
    """Return the name of a computer, of what a token's name may have."""
    made = "".join(one if one.isascii() and (one.isalnum() or one in "._-") else "-" for one in name)
    return made.lstrip("-.") or "computer"
