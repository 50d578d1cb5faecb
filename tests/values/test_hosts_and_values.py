"""Shared values: hosts and how to reach them, text with unknowns and secrets, errors in five lines."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import CapacityError, OrchError
from orchestrator.exits import Exit
from orchestrator.hosts import Failure, HostAddress, HostOutcome, ssh_argv
from orchestrator.values import MASK, Secret, Text, Unknown, fill_unknowns, to_text


def host(**changes: object) -> HostAddress:
    fields: dict[str, object] = {
        "rank": 2, "alias": "c-1-2", "host": "127.0.0.9", "port": 2222, "user": "me",
        "identity_file": Path("/k/id"), "known_hosts": Path("/k/known"), "internal_ip": "10.0.0.9",
        "host_key": "ssh-ed25519 A",
    }  # fmt: skip
    return HostAddress(**{**fields, **changes})  # type: ignore[arg-type]  # the fields above, some replaced


def test_the_pasteable_ssh_command_is_strict_for_a_pinned_host_and_accepts_once_for_an_own_one() -> None:
    assert "StrictHostKeyChecking=yes" in ssh_argv(host())
    assert "StrictHostKeyChecking=accept-new" in ssh_argv(host(host_key=None))
    assert "HostKeyAlias=c-1-2" in ssh_argv(host())


def test_a_path_with_blanks_and_percent_signs_reaches_ssh_whole() -> None:
    argv = ssh_argv(host(identity_file=Path("/a b/100%/id")))
    assert 'IdentityFile="/a b/100%%/id"' in argv


def test_a_jump_host_becomes_a_proxy_command_with_its_own_trust() -> None:
    argv = ssh_argv(host(jump=host(rank=0, alias="head", host="203.0.113.1")), "hostname")
    (proxy,) = [word for word in argv if word.startswith("ProxyCommand=")]
    words = shlex.split(proxy.removeprefix("ProxyCommand="))
    assert words[-1] == "me@203.0.113.1"
    assert "HostKeyAlias=head" in words
    assert argv[-2:] == ["--", "hostname"]


@pytest.mark.parametrize(
    ("outcome", "status", "verdict"),
    [
        (HostOutcome(rank=0, host="h", exit_code=3), 3, "exit 3"),
        (HostOutcome(rank=0, host="h", signal="SEGV"), 139, "signal SEGV"),
        (HostOutcome(rank=0, host="h", signal="ODD"), 255, "signal ODD"),
        (HostOutcome(rank=0, host="h", failure=Failure.FROZEN), None, "frozen"),
    ],
)
def test_an_outcome_has_the_status_a_shell_would_show(outcome: HostOutcome, status: int | None, verdict: str) -> None:
    assert (outcome.status, outcome.verdict, outcome.ok) == (status, verdict, False)


def test_an_unknown_can_be_shown_and_never_sent() -> None:
    value = Text.of("http://", Unknown("address"), ":80")
    assert value.preview() == "http://(address):80"
    with pytest.raises(ValueError, match="still unknown: address"):
        value.reveal()
    assert value.fill({Unknown("address"): "h"}) == to_text("http://h:80")


def test_a_secret_is_masked_wherever_it_is_printed() -> None:
    value = Text.of("token=", Secret("TOKEN", "canary"))
    assert value.preview() == f"token={MASK}"
    assert "canary" not in f"{value!r} {value} {Secret('TOKEN', 'canary')!r}"
    assert value.reveal() == "token=canary"


@given(st.lists(st.one_of(st.text(), st.builds(Unknown, st.text(min_size=1)), st.builds(Secret, st.text(), st.text()))))
def test_a_filled_text_matches_the_plan_it_came_from(parts: list[str | Unknown | Secret]) -> None:
    planned = Text.of(*parts)
    known = {part: f"<{index}>" for index, part in enumerate(parts) if isinstance(part, Unknown)}
    assert planned.matches(planned.fill(known))
    assert Text.of(planned) == planned


@pytest.mark.parametrize(
    ("real", "same"),
    [("abab", True), ("axbyab", True), ("aabb", True), ("ab", False), ("abxa", False), ("bab", False), ("abb", True)],
)
def test_known_parts_are_matched_in_their_order_without_overlap(real: str, same: bool) -> None:
    assert Text.of("a", Unknown("x"), "b", Unknown("y"), "b").matches(to_text(real)) is same


def test_many_unknowns_are_matched_in_linear_time() -> None:
    planned = Text.of(*([Unknown("x"), "0"] * 200), "1")
    assert not planned.matches(to_text("0" * 100_000))


def test_a_text_that_differs_in_a_known_part_does_not_match() -> None:
    planned = Text.of("a", Unknown("x"), "b")
    assert planned.matches(to_text("a.*b"))
    assert not planned.matches(to_text("a.*c"))


@dataclass(frozen=True)
class Outer:
    inner: tuple[Text, ...]
    name: str


def test_fill_reaches_every_text_of_a_value() -> None:
    outer = Outer((to_text(Unknown("x")), to_text("y")), "n")
    assert fill_unknowns(outer, {Unknown("x"): "1"}) == Outer((to_text("1"), to_text("y")), "n")


def test_an_error_is_at_most_five_lines_with_its_code_and_the_next_step() -> None:
    error = OrchError("w" * 10, "one\ntwo\nthree\nfour", "do this\nor this\nor that")
    lines = error.lines()
    assert len(lines) == 5
    assert lines[0] == "error[failure]: wwwwwwwwww"
    assert any(line.startswith("  next: do this") for line in lines)
    assert CapacityError("x").exit_status == Exit.CAPACITY
