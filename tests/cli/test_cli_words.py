"""Numbers, sets of hosts and places, as people write and read them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cli.commands.hosts.cp import LocalPath, RemotePath, parse_location
from orchestrator.cli.execution.real_command import retype
from orchestrator.cli.parameters.shared import choose_hosts, split_pairs
from orchestrator.errors import UserError
from orchestrator.formatting import (
    align_columns,
    format_age,
    format_duration,
    format_price,
    format_size,
    parse_duration,
    parse_ranges,
)
from orchestrator.plan.ranks import format_ranks


@given(st.sets(st.integers(0, 5000), min_size=1, max_size=60))
def test_host_ranges_read_back_as_they_were_written(ranks: set[int]) -> None:
    assert parse_ranges(format_ranks(ranks)) == tuple(sorted(ranks))


@given(st.text(max_size=12))
def test_any_text_is_a_list_of_hosts_or_refused(text: str) -> None:
    try:
        ranks = parse_ranges(text)
    except ValueError:
        return
    assert ranks == tuple(sorted(set(ranks))) and all(rank >= 0 for rank in ranks)


@pytest.mark.parametrize("text", ["", "a", "1,", "3-1", "-1", "1-", "1.5", "٣"])
def test_what_is_no_list_of_hosts_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"hosts|backwards"):
        parse_ranges(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("10 min", 600), ("1.5h", 5400), ("2h", 7200), ("3d", 259200)]
)
def test_durations_in_every_usual_spelling(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@given(st.integers(0, 1 << 45))
def test_a_size_shown_is_within_five_percent_of_the_size(count: int) -> None:
    number, unit = format_size(count).split()
    shown = float(number) * 1024 ** ("B", "KiB", "MiB", "GiB", "TiB").index(unit)
    assert abs(shown - count) <= count * 0.05 + 0.5


@pytest.mark.parametrize("text", ["", "10", "-1m", "64KiB", "m", "1e3s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0.0 s"),
        (0.24, "0.2 s"),
        (59.6, "60 s"),
        (300, "5 min"),
        (7800, "2 h 10 min"),
        (3600, "1 h"),
        (273600, "3 d 4 h"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert format_duration(seconds) == words


def test_a_clock_that_went_backwards_is_not_a_negative_age() -> None:
    assert format_age(100.0, 90.0) == "0.0 s ago"
    assert format_age(0.0) == ""


def test_a_price_that_is_not_known_is_not_zero() -> None:
    assert (format_price(None), format_price(0.0), format_price(1234.5)) == ("price not known", "free", "$1,234.50/h")


@given(st.lists(st.tuples(st.text("abc ", max_size=5), st.text("xyz ", max_size=5)), max_size=6), st.integers(3, 20))
def test_columns_line_up_and_never_pass_the_width(rows: list[tuple[str, str]], width: int) -> None:
    lines = align_columns(rows, width)
    assert len(lines) == len(rows)
    assert all(len(line) <= width for line in lines)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("mine:", RemotePath("mine", None, "")),
        ("mine:a/b", RemotePath("mine", None, "a/b")),
        ("mine/2:a", RemotePath("mine", (2,), "a")),
        ("mine/0,3-5:/x y", RemotePath("mine", (0, 3, 4, 5), "/x y")),
        ("mine:a:b", RemotePath("mine", None, "a:b")),
        ("./mine:a", LocalPath(Path("mine:a"))),
        ("/tmp/x", LocalPath(Path("/tmp/x"))),
        ("logs/", LocalPath(Path("logs"), as_folder=True)),
        ("plain", LocalPath(Path("plain"))),
    ],
)
def test_places_of_cp(text: str, place: LocalPath | RemotePath) -> None:
    assert parse_location(text) == place


def test_a_place_with_impossible_hosts_is_refused() -> None:
    with pytest.raises(ValueError, match="backwards"):
        parse_location("mine/5-3:a")


def test_variables_with_and_without_value() -> None:
    assert split_pairs(("A=1", "B", "C=", "D=x=y")) == (("A", "1"), ("B", None), ("C", ""), ("D", "x=y"))
    for wrong in ("=hunter2", "A B=hunter2", "hunter-2", "2=hunter2"):
        with pytest.raises(UserError, match="is not the name of a variable") as caught:
            split_pairs((wrong,))
        assert "hunter" not in "\n".join(caught.value.lines()), "it may be a secret whose name was forgotten"


def test_head_is_host_0_and_excludes_others() -> None:
    assert choose_hosts(None, True) == (0,)
    assert choose_hosts((1, 2), False) == (1, 2)
    assert choose_hosts(None, False) is None
    with pytest.raises(UserError):
        choose_hosts((1,), True)


@pytest.mark.parametrize(
    ("words", "typed"),
    [
        (("launch", "t.yaml", "--dry-run"), "orch launch t.yaml"),
        (("launch", "t.yaml", "--dry-run", "-o", "json", "-c", "mine"), "orch launch t.yaml -c mine"),
        (("plan", "t.yaml", "--output=sh"), "orch launch t.yaml"),
        (
            ("plan", "t.yaml", "--compile", "-v", "--rehearse-world", "--verbose", "--output", "sh"),
            "orch launch t.yaml",
        ),
        (("exec", "c", "--dry-run", "--", "ls", "-o", "--dry-run"), "orch exec c -- ls -o --dry-run"),
        (("launch", "my task.yaml", "-osh"), "orch launch 'my task.yaml'"),
    ],
)
def test_the_command_to_type_after_a_preview(words: tuple[str, ...], typed: str) -> None:
    assert retype(words) == typed


@pytest.mark.parametrize("words", [("--secret", "KEY=hunter2"), ("--secret=KEY=hunter2",)])
def test_the_command_to_type_never_holds_a_secret(words: tuple[str, ...]) -> None:
    typed = retype(("launch", "t.yaml", *words, "--dry-run"))
    assert "hunter2" not in typed and "KEY" in typed


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("v5e-16", "--infra", "gcp/us-west4/us-west4-a"), 0, "v5litepod-16: 4 hosts x 4 chips"),
        (("v5e-16", "--accelerators", "v5e-8"), 2, "two accelerators"),
        (("local:2", "--infra", "local:3"), 2, "two places to train"),
        (("v5e-17",), 2, "use v5litepod-16 or v5litepod-32"),
        (("v5e16",), 2, "or an accelerator such as v5e-16"),
    ],
)
def test_train_takes_a_place_or_an_accelerator(
    orch: Callable[..., Any], words: tuple[str, ...], status: int, said: str
) -> None:
    done = orch("train", *words, "model=tiny", "--dry-run")
    assert done.status == status, done.err
    assert said in done.out + done.err
