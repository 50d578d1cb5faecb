"""How long a slice is held back for the keys of its hosts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from orchestrator.providers.core.faults import Answer, Kind, Refused
from orchestrator.providers.google.host_keys import KEY_PATIENCE, HostKeys
from orchestrator.slices import SliceState

PUBLIC = ("ssh-ed25519 AAAA0 host", "ssh-ed25519 AAAA1 host")


@dataclass
class Waiting:
    """Hosts that report what the test sets."""

    time: float = 1000.0
    reported: tuple[str, ...] = ()
    keys: HostKeys = field(init=False)

    def __post_init__(self) -> None:
        self.keys = HostKeys(now=lambda: self.time)

    def read(self) -> tuple[str, ...]:
        return self.reported


def refused(kind: Kind) -> Callable[[], tuple[str, ...]]:
    def read() -> tuple[str, ...]:
        raise Refused(Answer(kind=kind, words="no"))

    return read


def test_a_slice_waits_until_each_host_has_its_own_key() -> None:
    waiting = Waiting()
    for reported, right in (((), 0), (("AAAA1", "AAAA0"), 0), (("AAAA0", ""), 1)):
        waiting.reported = reported
        view = waiting.keys.check("c-1", PUBLIC, waiting.read)
        assert view is not None
        assert (view.state, view.reason) == (SliceState.CREATING, f"{right} of 2 hosts have their SSH key")
    waiting.reported = ("AAAA0", "AAAA1")
    assert waiting.keys.check("c-1", PUBLIC, waiting.read) is None


def test_the_wait_is_limited_and_begins_again_with_the_next_one() -> None:
    waiting = Waiting()
    assert waiting.keys.check("c-1", PUBLIC, waiting.read) is not None
    waiting.time += KEY_PATIENCE
    assert waiting.keys.check("c-1", PUBLIC, waiting.read) is None
    assert waiting.keys.check("c-1", PUBLIC, waiting.read) is not None
    assert waiting.keys.check("c-2", PUBLIC, waiting.read) is not None, "each slice has its own time"


@pytest.mark.parametrize("kind", [Kind.PERMISSION, Kind.INVALID, Kind.WRONG_STATE])
def test_what_can_never_be_read_holds_nothing_back(kind: Kind) -> None:
    keys = Waiting().keys
    assert keys.check("c-1", PUBLIC, refused(kind)) is None


def test_hosts_without_any_attribute_are_waited_for_and_no_answer_is_an_error() -> None:
    keys = Waiting().keys
    assert keys.check("c-1", PUBLIC, refused(Kind.NOT_FOUND)) is not None
    with pytest.raises(Refused):
        keys.check("c-1", PUBLIC, refused(Kind.UNAVAILABLE))
