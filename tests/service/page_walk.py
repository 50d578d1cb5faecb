"""How a browser comes to pages that no address alone opens: plans, refused forms, invitations, sign-ins."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from playwright.sync_api import Page
from service_here import Shown

from orchestrator.service.oidc import Identity
from orchestrator.service.route import Role
from orchestrator.store.session_records import InvitationRecord
from orchestrator.store.token_records import TokenRecord, digest_token

TASK = "name: laptop\nresources: {infra: 'local:1'}\nrun: echo hello\n"


def open_path(page: Page, shown: Shown, path: str) -> None:
    """Open an address."""
    page.goto(f"http://127.0.0.1:{shown.port}{path}")


def sign_in(page: Page, shown: Shown) -> None:
    """Open a session by a link, as a person does."""
    open_path(page, shown, f"/login#{shown.gate.make_link()}")
    page.get_by_role("button", name="Open orch").click()


def refuse_launch(page: Page, shown: Shown) -> None:
    """Show the form of a launch with what is wrong in its task."""
    open_path(page, shown, "/launch")
    page.get_by_label("Task file").fill(TASK.replace("run:", "runn:"))
    page.get_by_role("button", name="Show the plan").click()


def plan_launch(page: Page, shown: Shown) -> None:
    """Show the plan of a launch."""
    open_path(page, shown, "/launch")
    page.get_by_label("Task file").fill(TASK)
    page.get_by_role("button", name="Show the plan").click()


def refuse_budget(page: Page, shown: Shown) -> None:
    """Show the form of budgets with what is wrong in it."""
    open_path(page, shown, "/spend")
    page.get_by_text("Set a budget").click()
    page.get_by_label("Dollars a month").fill("a lot")
    page.get_by_label("Dollars a run").fill("40")
    page.get_by_role("button", name="Set").click()


def open_budget_form(page: Page, shown: Shown) -> None:
    """Show the form of budgets."""
    open_path(page, shown, "/spend")
    page.get_by_text("Set a budget").click()


def invite(shown: Shown, member: str) -> str:
    """Return the secret of a new invitation."""
    secret, now = secrets.token_urlsafe(32), time.time()
    invitation = InvitationRecord(
        digest=digest_token(secret), name=f"{member}-{secret[:6]}", member=member, role="member", token_days=90,
        created=now, expires=now + 600, state="open",
    )  # fmt: skip
    with shown.gate.open_store("an invitation") as store:
        store.add_invitation(invitation)
    return secret


def accept_invitation(page: Page, shown: Shown) -> None:
    """Show what an invitation becomes: its token. The browser is that member afterwards."""
    open_path(page, shown, f"/join#{invite(shown, 'bob')}")
    page.get_by_role("button", name="Accept the invitation").click()


def make_computer_token(page: Page, shown: Shown) -> None:
    """Show the token of a computer."""
    open_path(page, shown, "/token")
    page.get_by_label("Name of the computer").fill("ada-laptop")
    page.get_by_role("button", name="Make a token").click()


def choose_taken_name(page: Page, shown: Shown) -> None:
    """Show the form in which a person of an identity provider chooses a name: the first one was another member's."""
    identity = Identity(issuer="https://login.example.org", subject="2", role=Role.MEMBER, suggestion="grace")
    now = time.time()
    token = TokenRecord(
        digest=digest_token(f"orch_{now}"), name=f"grace-{now:.6f}", member="grace", role="member", created=now,
        expires=now + 600,
    )  # fmt: skip
    with shown.gate.open_store("a token") as store:
        store.add_token(token)
    code = shown.gate.keep_identity(identity)
    open_path(page, shown, "/login")
    fields = {"code": code, "name": "grace", "target": "/"}
    page.evaluate(
        """fields => {
            const form = document.createElement("form");
            form.method = "post";
            form.action = "/sign-in/name";
            for (const [name, value] of Object.entries(fields)) {
                const field = form.appendChild(document.createElement("input"));
                [field.name, field.value] = [name, value];
            }
            document.body.append(form);
            form.submit();
        }""",
        fields,
    )
    page.wait_for_load_state()
    page.get_by_role("heading", name="Your name here").wait_for()


# Those without a session come last, and that of an invitation changes who looks.
WAYS: dict[str, Callable[[Page, Shown], None]] = {
    "launch-refused": refuse_launch,
    "launch-plan": plan_launch,
    "spend-form": open_budget_form,
    "spend-refused": refuse_budget,
    "computer-token": make_computer_token,
    "choose-name": choose_taken_name,
    "joined": accept_invitation,
}
