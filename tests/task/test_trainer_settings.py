"""Settings of the trainer are refused here as the trainer itself would, by a table that is the trainer's own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orchestrator.task import trainer_settings
from trainer.errors import ConfigError
from trainer.options import parse_config

_KEYS = trainer_settings.load_settings().keys
_NAMES = [
    *(name for name in _KEYS if name != "checkpoint.uri"),
    *trainer_settings.load_settings().aliases,
    "model",
    "modl",
    "lr",
    "optim",
    "model.dimm",
    # A pair that only together is wrong: drawn more often.
    *("seq_len", "mesh.context"),
]
_VALUES = [
    *(
        "",
        "0",
        "1",
        "-1",
        "2",
        "3",
        "7",
        "64",
        "0.5",
        "1e-3",
        "1e400",
        "nan",
        "auto",
        "true",
        "No",
        "tiny",
        "300",
        "300m",
    ),
    *("bf16", "torch", "jax", "cpu", "file:///x", "adamw", "never", "1_000", " 5", "0x10"),
]


def test_the_shipped_table_is_what_the_trainer_prints() -> None:
    done = subprocess.run([sys.executable, "-m", "trainer", "keys"], capture_output=True, text=True, check=True)
    assert json.loads(trainer_settings.FILE.read_text()) == json.loads(done.stdout), (
        "python -m trainer keys > orchestrator/task/data/trainer.json"
    )


@settings(max_examples=400, deadline=None)
@example([("model.normalize_experts", "1")])  # the default, in other letters
@given(
    st.lists(st.tuples(st.sampled_from(_NAMES), st.sampled_from(_VALUES)), max_size=4, unique_by=lambda pair: pair[0])
)
def test_what_is_refused_here_is_what_the_trainer_refuses(pairs: list[tuple[str, str]]) -> None:
    try:
        parse_config([f"{name}={value}" for name, value in pairs])
        refused = False
    except ConfigError:
        refused = True
    assert bool(list(trainer_settings.find_setting_problems(tuple(pairs), dict(pairs)))) == refused


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("model", "300", "did you mean model=300m?"),
        ("model", "tny", "did you mean model=tiny?"),
        ("modl", "tiny", "did you mean model?"),
        ("lr", "1e-3", "did you mean optim.lr?"),
        ("optimizer.lr", "1e-3", "did you mean optim.lr?"),
        ("step", "3", "did you mean steps?"),
        ("dtype", "bf61", "did you mean dtype=bf16?"),
        ("dtype", "float32", "did you mean dtype=fp32?"),
        ("device", "gpu", "did you mean device=cuda?"),
    ],
)
def test_a_near_name_is_offered(name: str, value: str, hint: str) -> None:
    (issue,) = trainer_settings.find_setting_problems(((name, value),), {name: value})
    assert hint in issue.what, "of several problems only `what` is shown"


@pytest.mark.parametrize(
    ("length", "context", "tensor", "axis", "what", "near"),
    [
        (128, 3, 1, "mesh.context", "seq_len=128 does not divide into 6 parts, two for each", 132),
        (96, 3, 2, "", "", 96),
        (127, 1, 1, "", "", 127),
        (127, 1, 2, "mesh.tensor", "mesh.tensor=2 does not divide the 127 tokens of a row on a device", 128),
        (100, 2, 4, "mesh.tensor", "mesh.tensor=4 does not divide the 50 tokens of a row on a device", 104),
    ],
)
def test_rows_that_do_not_divide_over_an_axis_are_refused(
    length: int, context: int, tensor: int, axis: str, what: str, near: int
) -> None:
    given = {"seq_len": str(length), "mesh.context": str(context), "mesh.tensor": str(tensor)}
    words = [f"{name}={value}" for name, value in given.items()]
    found = list(trainer_settings.find_setting_problems(tuple(given.items()), {"train": {"args": {**given}}}))
    assert bool(found) == bool(axis)
    if not axis:
        parse_config(words)
        return
    assert found[0].path == ("train", "args", axis)
    assert what in found[0].what and f"write seq_len={near}" in found[0].next_step
    with pytest.raises(ConfigError, match=f"{what}.*use seq_len={near}"):
        parse_config(words)


@pytest.mark.parametrize("digits", [19, 20, 400])
def test_numbers_of_more_than_64_bits_are_refused(digits: int) -> None:
    """No float holds a whole number of 400 digits."""
    found = list(trainer_settings.find_setting_problems((("steps", "9" * digits),), {}))
    assert ["more than 64 bits" in issue.what for issue in found] == [True]


def test_where_checkpoints_go_is_the_buckets_to_say() -> None:
    for value in ("gs://bbb/c", ""):
        (issue,) = trainer_settings.find_setting_problems((("checkpoint.uri", value),), {})
        assert "not a setting here" in issue.what and "--bucket" in issue.next_step


def test_data_that_nothing_brings_to_rented_hosts_is_named() -> None:
    for name, text in (("data", "/data/books:*.txt"), ("data.source", "~/books"), ("data", "file:///data")):
        (note,) = trainer_settings.note_local_data(((name, text),), ["~/other"])
        assert text in note and "rented hosts" in note
    for text in ("gs://bbb/books", "hf://owner/name", "python-stdlib", "books", "~/data", "~/data/a", "~/data:*.txt"):
        assert not list(trainer_settings.note_local_data((("data", text),), ["~/data"]))
    mixed = (("data", "gs://bbb/books,/data/a"), ("data.weights", "0.7,0.3"))
    (note,) = trainer_settings.note_local_data(mixed, [])
    assert note.startswith("data=/data/a is looked for")
    assert not list(trainer_settings.note_local_data((("data", "gs://bbb/books,/data/a"),), []))


@pytest.mark.parametrize("name", ["lora.targets", "lora.alpha"])
def test_settings_of_adapters_need_their_rank(name: str) -> None:
    value = {"lora.targets": "attention", "lora.alpha": "32"}[name]
    with pytest.raises(ConfigError, match=rf"^{name} without lora\.rank: all weights would be trained"):
        parse_config([f"{name}={value}"])
    (issue,) = trainer_settings.find_setting_problems(((name, value),), {})
    assert issue.what == f"{name} without lora.rank" and "lora.rank=16" in issue.next_step
    for rank in ("8", "0"):
        pairs = ((name, value), ("lora.rank", rank))
        parse_config([f"{setting}={text}" for setting, text in pairs])
        assert not list(trainer_settings.find_setting_problems(pairs, {}))
