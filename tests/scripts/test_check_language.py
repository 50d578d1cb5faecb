"""scripts/check_language.py reads names, texts, and the messages of files that it otherwise skips."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture(scope="module")
def checker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_language", SCRIPTS / "check_language.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["check_language"] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    return module


MESSAGES = (
    ("raise UserError(f\"'{word}' is no image\")", "is no"),
    ('raise UserError(\n    f"flex-start for {hours:g} hours cannot be had"\n)', "cannot be had"),
    ('reason = f"{part.name} is not " + "asked for until then"', "asked for"),
    ('raise UserError(f"{key} is not written so")', "written so"),
    ('note = "somebody else has it"', "somebody"),
)


@pytest.mark.parametrize("path", ["orchestrator/providers/aws/x.py", "orchestrator/plan/x.py"])
@pytest.mark.parametrize(("source", "phrase"), MESSAGES)
def test_a_message_is_checked_also_in_a_skipped_folder(
    checker: ModuleType, path: str, source: str, phrase: str
) -> None:
    rules = checker.load_rules(SCRIPTS / "language.toml")
    found = list(checker.find_violations(path, source, rules))
    assert len(found) == 1 and f"text '{phrase}'" in found[0]


@pytest.mark.parametrize(
    "source",
    [
        '"""This is no sentence that a user reads; somebody asked for it."""',
        "# nobody is told that this is no message",
        "def wish(told: str) -> None: ...",
        'keys = ("gone", "told", "asked for")',
        'raise UserError(f"there is no image {word}", f"{name} is no longer set")',
    ],
)
def test_the_rest_of_a_skipped_folder_is_not(checker: ModuleType, source: str) -> None:
    rules = checker.load_rules(SCRIPTS / "language.toml")
    assert not list(checker.find_violations("orchestrator/providers/aws/x.py", source, rules))


def test_what_a_simulated_vendor_answers_is_its_own_wording(checker: ModuleType) -> None:
    rules = checker.load_rules(SCRIPTS / "language.toml")
    source = 'raise Refusal("the disk is no image, nobody asked for it")'
    assert not list(checker.find_violations("tests/fronts/orch_fronts/aws/ec2/x.py", source, rules))
    assert list(checker.find_violations("orchestrator/simulator/x.py", source, rules))
