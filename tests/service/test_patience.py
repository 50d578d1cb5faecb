"""Commands that follow something at a service while it is away for a while."""

from __future__ import annotations

import pytest

from orchestrator.cli.drawing.terminal import write_stderr
from orchestrator.client import patience
from orchestrator.client.patience import Patience
from orchestrator.client.transport import ServiceError
from orchestrator.errors import CloudError, OrchError

AWAY = CloudError("https://orch.example.org does not answer", "refused", "")


def test_an_absence_is_said_once_and_ends_with_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    answers: list[object] = [AWAY, AWAY, AWAY, "here"]
    pauses: list[float] = []

    def ask() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    assert Patience(report=write_stderr, subject="the job", next_step="", pause=pauses.append).ask(ask) == "here"
    assert len(pauses) == 3
    said = "https://orch.example.org does not answer; the job continues; trying again\n"
    assert capsys.readouterr().err == said


def test_a_refusal_is_final() -> None:
    requests: list[int] = []

    def ask() -> None:
        requests.append(1)
        raise ServiceError({"title": "no such cluster", "status": 404})

    with pytest.raises(ServiceError):
        Patience(report=write_stderr, subject="", next_step="", pause=lambda _: None).ask(ask)
    assert requests == [1]


def test_a_service_that_stays_away_ends_the_command_with_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_AWAY_SECONDS", 0.0)

    def ask() -> None:
        raise AWAY

    with pytest.raises(OrchError) as caught:
        Patience(report=write_stderr, subject="the job", next_step="orch logs mine -f", pause=lambda _: None).ask(ask)
    assert caught.value.next_step == "orch logs mine -f"
