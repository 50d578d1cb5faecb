"""Owner tags as Google's labels: always legal, and the same value comes back."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.providers.google.labels import INSTALLATION, INTENT, from_google, to_google
from orchestrator.values import Text, Unknown

KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
VALUE = re.compile(r"[a-z0-9_-]{0,63}")


def legal(pairs: tuple[tuple[str, Text], ...]) -> dict[str, str]:
    found = {key: value.reveal() for key, value in to_google(pairs).items()}
    assert all(KEY.fullmatch(key) for key in found), found
    assert all(VALUE.fullmatch(value) for value in found.values()), found
    return found


@given(st.text(st.characters(codec="utf-8"), max_size=80))
@example("b32-looks-like-ours")
@example("UPPER and, = odd; " * 8)
@example("")
def test_a_value_of_ours_comes_back_whatever_it_is(value: str) -> None:
    found = legal(((INTENT, Text.of(value)), (INSTALLATION, Text.of("other"))))
    assert from_google(found, INTENT) == value
    assert from_google(found, INSTALLATION) == "other"


def test_ordinary_values_stay_as_they_are() -> None:
    assert legal(((INTENT, Text.of("5f0c91aa-1")),)) == {INTENT: "5f0c91aa-1"}


@given(st.text(min_size=1), st.text(min_size=1))
def test_labels_of_the_user_are_legal_and_two_of_them_stay_two(one: str, other: str) -> None:
    found = legal(((one, Text.of(other)), (other, Text.of(one))))
    assert len(found) == len({one, other})


def test_a_value_that_is_not_known_yet_stays_unknown() -> None:
    unknown = Text.of(Unknown("cluster id"), "-1")
    assert to_google(((INTENT, unknown),)) == {INTENT: unknown}


def test_labels_of_somebody_else_mean_nothing() -> None:
    assert from_google({}, INTENT) == ""
    assert from_google({INTENT: "b32-1!"}, INTENT) == ""
    assert from_google({INTENT: "b32-me"}, INTENT) != from_google({INTENT: "me"}, INTENT)


def test_a_value_that_no_labels_can_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="too long"):
        to_google(((INTENT, Text.of("Ä" * 400)),))
