"""Step and loss are read from common forms of output and from a person's own, in a bounded time."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.documents.output_forms import (
    FORMS,
    LONGEST_LINE,
    OWN,
    OutputForm,
    OutputProgress,
    output_as_json,
    read_output,
)
from orchestrator.task.errors import InvalidValueError
from orchestrator.task.output_pattern import LONGEST_PATTERN, parse_pattern

LINES = {
    "\x1b[32m 45%|####5     | 450/1000 [00:45<00:55, 10.00it/s, loss=2.31]\x1b[0m": ("tqdm", 450, "2.31"),
    "train:  45%|####5     |  450/1000 [1:00:45<?, ?it/s]": ("tqdm", 450, ""),
    "Phase 2:  45%|####5     | 450/1000 [00:45<00:55, 10.00it/s, loss=2.31]": ("tqdm", 450, "2.31"),
    "Epoch 3/9:  45%|####5     | 450/1000 [00:45<00:55, 10.00it/s]": ("tqdm", 450, ""),
    "Epoch 0:  45%|████▌     | 450/1000 [00:45<00:55, 1.20s/it, v_num=0, train_loss=2.310]": ("tqdm", 450, "2.310"),
    "{'loss': '2.31', 'grad_norm': '1.5', 'epoch': '0.45'}": ("HF Trainer", None, "2.31"),
    "iter_dt 19.91ms; iter 450: train loss 2.3104": ("nanoGPT", 450, "2.3104"),
    "| epoch   1 |   450/ 1000 batches | lr 20.00 | ms/batch  5.20 | loss  2.31 | ppl    10.07": (
        "pytorch/examples",
        450,
        "2.31",
    ),
    "Finished training it 450/1000 of epoch 2, -1.00 ms/it, loss 0.310697": ("DLRM", 450, "0.310697"),
    "Epoch 0/0  ━━━━━━━━━━━━━ 450/1000 0:00:00 • 0:00:00 0.00it/s v_num: 0.000": ("Rich", 450, ""),
    "step: 450  \x1b[32mloss:  2.3104  \x1b[38mgrad_norm:  1.5": ("torchtitan", 450, "2.3104"),
    "step 450: train loss 2.3104, val loss 2.4000": ("step and loss", 450, "2.3104"),
    "step 1,450/10,000  loss nan  lr 3e-4": ("step and loss", 1450, "nan"),
    "Step: 450 | Loss: 2.3e-1": ("step and loss", 450, "2.3e-1"),
    "global_step=450 loss=2.3": ("step and loss", 450, "2.3"),
}
OTHER = [
    "{'eval_loss': 2.4, 'eval_runtime': 1.0, 'epoch': 0.45}",
    "validate step: 450  loss:  2.3104  memory: 1.0GiB",
    "Downloading: 45%|####5     | 4.50M/10.0M [00:45<00:55, 100kB/s]",
    "Validation DataLoader 0:  50%|#####     | 5/10 [00:01<00:01, 4.00it/s]",
    "Sanity Checking DataLoader 0: 100%|##########| 2/2 [00:01<00:00, 4.00it/s]",
    "Loading weights: 100%|##########| 25/25 [00:00<00:00, 22314.88it/s]",
    "Progress:  45%|####5     | 450/1000 [00:45<00:55, 10.00it/s]",
    "Testing  ━━━━━━━━━━━━━━━━ 1/1 0:00:00 • 0:00:00 0.00it/s",
    "Map: 45%|####5     | 450/1000 [00:45<00:55, 10.00 examples/s]",
    "step 450: val loss 2.4",
    "the loss of a step",
    "",
]


@pytest.mark.parametrize("form", FORMS, ids=[form.name for form in FORMS])
def test_every_form_reads_its_example_and_names_its_source(form: OutputForm) -> None:
    found = read_output([form.example])
    assert found is not None and found.form == form.name
    assert (found.step, float(found.loss)) in {(450, 2.31), (450, 2.3104), (None, 2.31)}
    assert "(read 2026-" in form.source


@pytest.mark.parametrize(("line", "expected"), LINES.items())
def test_a_line_of_a_known_form(line: str, expected: tuple[str, int | None, str]) -> None:
    form, step, loss = expected
    assert read_output([line]) == OutputProgress(step=step, loss=loss, form=form)


@pytest.mark.parametrize("line", OTHER)
def test_other_lines_are_passed_over(line: str) -> None:
    assert read_output([line]) is None


def test_step_and_loss_of_different_lines_are_joined_newest_first() -> None:
    bar, loss = " 46%|# | 460/1000 [00:45<00:55, 10.00it/s]", "{'loss': 2.31, 'epoch': 0.45}"
    found = read_output(["saving", bar, loss, " 45%|# | 450/1000 [00:45<00:55, 10.00it/s]", "{'loss': 9.9}"])
    assert found == OutputProgress(step=460, loss="2.31", form="tqdm")
    assert str(found) == "step 460, loss 2.31"


@pytest.mark.parametrize("loss", ["nan", "-inf", ""])
def test_a_loss_that_is_no_number_is_null_in_documents(loss: str) -> None:
    progress = OutputProgress(step=1, loss=loss, form="x")
    assert output_as_json(progress) == {"step": 1, "loss": None, "form": "x", "text": str(progress)}


def test_an_own_pattern_is_the_only_form() -> None:
    own = parse_pattern("it={step} {} l2 {} obj={loss};")
    lines = ["it=9 a l2 b", "step 4 loss 5", "x it=1_200   warm  l2 3 obj=1.5e-3; it=7"]
    assert read_output(lines, own) == OutputProgress(step=1200, loss="1.5e-3", form=OWN)
    assert read_output(["{'epoch': 3, 'loss': 0.5}"], parse_pattern("'loss': {loss}}")) == OutputProgress(
        step=None, loss="0.5", form=OWN
    )


@pytest.mark.parametrize(
    "pattern", ["loss", "{step} {step}", "{loss} {epoch}", r"(?P<step>\d+)", "{}", "{step}" + "x" * LONGEST_PATTERN]
)
def test_a_pattern_that_cannot_be_used_is_refused_with_what_to_write(pattern: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        parse_pattern(pattern)
    assert "{step}" in caught.value.next_step


ATOMS = ["step", "loss", " ", "  " * 50, "=", "a", "|", "1", "1" * 20, "/", "[", "{", "'", ",", "iteration", "_",
         "it/s", ": ", "(a+)+", "-", "e", "."]  # fmt: skip


@given(st.lists(st.sampled_from(ATOMS), min_size=1, max_size=4), st.lists(st.sampled_from(ATOMS), max_size=6))
def test_no_line_takes_long(repeated: list[str], end: list[str]) -> None:
    line = "step loss it/s" + "".join(repeated) * (LONGEST_LINE // len("".join(repeated))) + "".join(end)
    begin = time.process_time()
    read_output([line])
    assert time.process_time() - begin < 0.25, line[:200]


@given(st.lists(st.sampled_from([*ATOMS, "{}"]), max_size=40), st.lists(st.sampled_from(ATOMS), min_size=1, max_size=3))
def test_no_own_pattern_takes_long(pieces: list[str], repeated: list[str]) -> None:
    pattern = parse_pattern(("".join(pieces)[:200] + "{step}{} {loss}!").replace("{}{}", "{}"))
    line = "".join(repeated) * (LONGEST_LINE // len("".join(repeated)) + 1)
    begin = time.process_time()
    read_output([line, "1 " * LONGEST_LINE, " " * LONGEST_LINE], pattern)
    assert time.process_time() - begin < 0.5, "".join(pieces)
