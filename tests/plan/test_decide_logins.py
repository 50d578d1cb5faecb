"""Hosts that refuse every key where IAM decides: the error names the missing role."""

from __future__ import annotations

from dataclasses import replace

from state_table import FACTS, NOW, RUN, host, ready, silent

from orchestrator.plan.actions import EndSlice
from orchestrator.plan.decide import decide
from orchestrator.plan.observed import Contact, HostView
from orchestrator.plan.steps import GiveUp

ROLE = "roles/compute.osAdminLogin"


def refusing(rank: int, role: str) -> HostView:
    return replace(silent(rank), contact=Contact.DENIED, role=role)


def test_a_slice_that_os_login_never_let_us_enter_ends_with_the_missing_role() -> None:
    hosts = (refusing(0, ROLE), refusing(1, ROLE))
    step = decide(RUN, ready(*hosts, contact_since=NOW - 301), FACTS)
    assert isinstance(step, EndSlice) and ROLE in step.why
    other = decide(RUN, ready(refusing(0, ""), refusing(1, ""), contact_since=NOW - 301), FACTS)
    assert isinstance(other, EndSlice) and "no SSH access" in other.why


def test_a_command_that_os_login_refuses_names_the_missing_role() -> None:
    step = decide(RUN, ready(host(0), refusing(1, ROLE), contact_since=NOW - 301, started=True), FACTS)
    assert isinstance(step, GiveUp) and ROLE in step.why and ROLE in step.next_step.words
    other = decide(RUN, ready(host(0), refusing(1, ""), contact_since=NOW - 301, started=True), FACTS)
    assert isinstance(other, GiveUp) and "role" not in other.why + str(other.next_step)
