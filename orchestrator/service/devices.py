"""A computer without a token asks for one, and a person lets it in on a page (RFC 8628, 2019).

The computer shows a short code and asks again and again. The person opens the page, where they are signed in, and sees
who asks and what they grant. The code is short, so guesses are counted; the code with which the computer asks is not.
"""

from __future__ import annotations

import secrets
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.acting import acting_as
from orchestrator.errors import AccessError, NotFoundError, OrchError
from orchestrator.service.route import Answer, Call, Person, Role
from orchestrator.store.session_records import DeviceGrant
from orchestrator.store.token_parents import refuse_long_chain
from orchestrator.store.token_records import TokenRecord, digest_token, make_token

GRANT_SECONDS = 600.0
INTERVAL = 5  # seconds between the questions of a computer
_LETTERS = (
    "BCDFGHJKLMNPQRSTVWXZ"  # RFC 8628, section 6.1: no word, and nothing that looks alike; 8 of them have 34 bits
)
_EARLY = 0.5  # seconds: clocks and networks are not exact


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DeviceRequest(_Body):
    """A computer asks to be let in."""

    computer: str = Field(min_length=1, max_length=60)


class DeviceTokenRequest(_Body):
    """A computer asks whether it was let in."""

    grant_type: Literal["urn:ietf:params:oauth:grant-type:device_code"] = "urn:ietf:params:oauth:grant-type:device_code"
    device_code: str = Field(max_length=200)


class DecisionForm(_Body):
    """A person lets a computer in, or not."""

    user_code: str = Field(max_length=40)
    decision: Literal["allow", "refuse"]


def request_device(call: Call) -> Answer:
    """Answer with the codes of a computer that asks to be let in."""
    body: DeviceRequest = call.body
    device_code, now = secrets.token_urlsafe(32), call.site.now()
    letters = "".join(secrets.choice(_LETTERS) for _ in range(8))
    grant = DeviceGrant(
        digest=digest_token(device_code), user_code=digest_token(letters), computer=_clean(body.computer), created=now,
        until=now + GRANT_SECONDS, address=call.caller,
    )  # fmt: skip
    with call.gate.open_store("a computer asks to be let in") as store:
        store.open_grant(grant)
    shown, page = f"{letters[:4]}-{letters[4:]}", f"{call.address}/device"
    document = {
        "version": 1, "kind": "device-code", "device_code": device_code, "user_code": shown, "verification_uri": page,
        "verification_uri_complete": f"{page}?user_code={shown}", "expires_in": int(GRANT_SECONDS),
        "interval": INTERVAL,
    }  # fmt: skip
    return Answer(document=document)


def redeem_device(call: Call) -> Answer:
    """Answer with the token of a computer that was let in, once; else with why not, as RFC 8628 names it."""
    body: DeviceTokenRequest = call.body
    digest = digest_token(body.device_code)
    with call.gate.open_reader() as reader:  # everyone may ask, so a wrong code costs little
        grant, now = reader.find_grant(digest=digest), call.site.now()
    if grant is None or grant.state == "used" or now > grant.until:
        return _refuse("expired_token", "the code is used, or too old")
    if grant.state == "denied":
        return _refuse("access_denied", "a person has refused it")
    token = make_token()
    with acting_as(grant.member), call.gate.open_store("a computer was let in") as store:
        store.note_poll(digest)
        if now - grant.polled < INTERVAL - _EARLY:
            return _refuse("slow_down", f"it may ask every {INTERVAL} seconds")
        if grant.state == "open":
            return _refuse("authorization_pending", "no person has decided yet")
        granter = call.gate.find_opener(grant.session)
        if granter is None:
            return _refuse("access_denied", "who has let it in may not enter any more")
        if not store.use_grant(grant):
            return _refuse("expired_token", "the code is used")
        made = TokenRecord(
            digest=digest_token(token), name=grant.computer, member=grant.member,
            role=grant.role, created=now, expires=grant.token_until, project=granter.project, parent=granter.subject,
        )  # fmt: skip
        made = store.add_computer_token(made)
    seconds = int(made.expires - now)
    document = {"version": 1, "kind": "device-token", "access_token": token, "token_type": "Bearer"}
    return Answer(document=document | {"expires_in": seconds, "name": made.name}, secret=True)


def show_device(call: Call) -> Answer:
    """Show who asks to be let in and what they would get; without a code, the form for it."""
    code = str(call.query["user_code"])
    if not code:
        return _show_form()
    try:
        return _show_grant(call, _find_waiting(call, code), code)
    except OrchError as error:
        return _show_form(error)


def decide_device(call: Call) -> Answer:
    """Let a computer in, or refuse it."""
    form: DecisionForm = call.body
    person = call.person
    assert person is not None  # noqa: S101  # the route needs a role
    try:
        grant = _find_waiting(call, form.user_code)
    except OrchError as error:
        return _show_form(error)
    values: dict[str, Any] = {"state": "denied"}
    if form.decision == "allow":
        try:
            _refuse_long_chain(call)
        except AccessError as error:
            return _show_form(error)
        values = {"state": "approved", "member": person.name, "role": _role_of(person)}
        values |= {"token_until": call.gate.limit_token(call.session), "session": digest_token(call.session)}
    with call.gate.open_store("a computer is let in") as store:
        if not store.decide_grant(grant, values):
            return _show_form(_not_waiting())
    return Answer(template="device_done.html", values={"grant": grant, "allowed": form.decision == "allow"})


def _refuse_long_chain(call: Call) -> None:
    """Raise AccessError where too many tokens made each other before the one that the computer would get."""
    opener = call.gate.find_opener(digest_token(call.session))
    with call.gate.open_reader() as reader:
        refuse_long_chain(reader, opener.subject if opener is not None else "")


def _find_waiting(call: Call, code: str) -> DeviceGrant:
    """Return the computer that waits with a code. Wrong codes are counted for each member.

    Raises:
        NotFoundError: None waits with it.
        AccessError: The member has guessed too often.
    """
    person = call.person
    assert person is not None  # noqa: S101  # the route needs a role
    guesses = call.gate.guesses
    if not guesses.may_guess(person.name):
        raise AccessError("too many wrong codes", "", "try again in 10 minutes")
    letters = "".join(one for one in code.upper() if one in _LETTERS)
    with call.gate.open_reader() as reader:
        grant = reader.find_grant(user_code=digest_token(letters))
    if grant is None or grant.state != "open" or call.site.now() > grant.until:
        guesses.note_wrong(person.name)
        raise _not_waiting()
    return grant


def _not_waiting() -> NotFoundError:
    return NotFoundError("no computer waits with this code", "a code counts for 10 minutes", "orch login URL   again")


def _show_form(error: OrchError | None = None) -> Answer:
    return Answer(template="device.html", values={"error": error, "grant": None}, status=404 if error else 200)


def _show_grant(call: Call, grant: DeviceGrant, code: str) -> Answer:
    person = call.person
    assert person is not None  # noqa: S101  # the route needs a role
    values = {
        "error": None, "grant": grant, "user_code": code.upper(), "role": _role_of(person), "now": call.site.now(),
        "until": call.gate.limit_token(call.session),
    }  # fmt: skip
    return Answer(template="device.html", values=values)


def _role_of(person: Person) -> str:
    """Return the role of the token: that of who lets the computer in, as far as tokens have one."""
    return min(person.role, Role.OWNER).name.lower()


def _refuse(error: str, why: str) -> Answer:
    return Answer(document={"error": error, "error_description": why}, status=400)


def _clean(name: str) -> str:
    """Return how a computer calls itself, without what could pass for other text of the page."""
    made = "".join(one if one.isascii() and (one.isalnum() or one in "._-") else "-" for one in name)
    return made.lstrip("-.") or "computer"
