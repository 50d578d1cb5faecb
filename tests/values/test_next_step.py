"""A command and its words are apart from each other, and one text carries both."""

from __future__ import annotations

import pytest

from orchestrator.next_step import NO_STEP, NextStep


@pytest.mark.parametrize(
    ("text", "command", "words"),
    [
        ("orch resume mine   resumes from the newest", "orch resume mine", "resumes from the newest"),
        ("orch status", "orch status", ""),
        ("free space on /\norch resume mine   resumes", "orch resume mine", "resumes\nfree space on /"),
        ("orch down mine   or leave it\nto take it back: orch resume mine", "orch down mine",
         "or leave it\nto take it back: orch resume mine"),
        ("the same launch", "", "the same launch"),
        ("there: orch exec c -- true", "", "there: orch exec c -- true"),
        ("orchestrate it", "", "orchestrate it"),
        ("", "", ""),
    ],
)  # fmt: skip
def test_the_first_command_of_a_text_is_apart_from_its_words(text: str, command: str, words: str) -> None:
    assert NextStep.parse(text) == NextStep(command, words)


@pytest.mark.parametrize(
    "step", [NextStep("orch status", "it"), NextStep("orch status"), NextStep(words="it"), NO_STEP]
)
def test_text_and_json_give_the_same_step_back(step: NextStep) -> None:
    assert NextStep.parse(str(step)) == step == NextStep.from_json(step.as_json())
    assert bool(step) is bool(str(step))
