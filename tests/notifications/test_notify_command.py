"""`orch notify` and `orch notify test`, in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result
from receivers import MailReceiver, WebReceiver
from run_history import History

import orchestrator
from orchestrator.cli.app import app
from orchestrator.store.leases import Lease


def orch(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def checked(result: Result, name: str) -> dict[str, Any]:
    file = Path(orchestrator.__file__).parent / "cli" / "data" / f"{name}.schema.json"
    schema = json.loads(file.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    document: dict[str, Any] = json.loads(result.stdout)
    jsonschema.validate(document, schema)
    return document


@pytest.fixture
def channels(own_home: Path, web: WebReceiver, mail: MailReceiver) -> None:
    (own_home / "url").write_text(web.url + "-canary")
    (own_home / "config.toml").write_text(
        f'[notify]\nslack = "file:{own_home}/url"\nemail_to = ["a@b.org"]\nemail_from = "o@b.org"\n'
        f'smtp = "127.0.0.1:{mail.port}"\nsmtp_security = "none"\n'
    )


def test_without_a_channel_it_says_how_to_make_one() -> None:
    assert "docs/notifications.md" in orch("notify").stderr
    assert checked(orch("notify", "-o", "json"), "notify")["channels"] == []
    assert orch("notify", "test").exception.what == "no channel is set up"  # type: ignore[union-attr]  # None would fail the test


@pytest.mark.usefixtures("channels")
def test_channels_are_listed_with_what_they_delivered_last(history: History, web: WebReceiver) -> None:
    lease = history.store.acquire("notify:slack", "x")
    assert isinstance(lease, Lease)
    history.store.open_channel("slack", 0)
    history.store.note_delivery(lease, "slack", 4, message=True)
    history.store.note_delivery_problem(lease, "slack", "it answered 500")
    document = checked(orch("notify", "-o", "json"), "notify")
    slack, email = document["channels"]
    assert (slack["seq"], slack["delivered_at"], slack["problem"]) == (4, "2027-01-15T08:00:00.000Z", "it answered 500")
    assert (email["to"], email["seq"], email["delivered_at"]) == ("a@b.org", None, None)
    said = orch("notify")
    assert said.exit_code == 0 and "slack" in said.stdout and "it answered 500" in said.stdout
    assert "canary" not in said.output + json.dumps(document)


@pytest.mark.usefixtures("channels")
def test_a_test_message_goes_over_every_channel_or_one(web: WebReceiver, mail: MailReceiver) -> None:
    said = orch("notify", "test")
    assert (said.exit_code, len(web.posts), len(mail.mails)) == (0, 1, 1)
    assert said.stdout.splitlines() == [
        f"slack: delivered: {web.url.removesuffix('/hook')} answered 200",
        f"email: delivered: 127.0.0.1:{mail.port} took it",
    ]
    assert orch("notify", "test", "email").exit_code == 0 and (len(web.posts), len(mail.mails)) == (1, 2)
    assert "'webhook' is not set up" in str(orch("notify", "test", "webhook").exception)


@pytest.mark.usefixtures("channels")
def test_a_test_message_that_fails_says_why_and_has_exit_status_1(web: WebReceiver, mail: MailReceiver) -> None:
    web.answers = [(404, {}), (404, {})]
    said = orch("notify", "test")
    assert said.exit_code == 1 and "email: delivered" in said.stdout
    assert "slack: not delivered" in said.stderr and "answered 404" in said.stderr and "own words" in said.stderr
    slack, email = checked(orch("notify", "test", "-o", "json"), "notify-test")["channels"]
    assert (slack["delivered"], email["delivered"]) == (False, True)
    assert slack["why"] == "the receiver's own words" and "canary" not in said.output


@pytest.mark.usefixtures("channels")
def test_a_missing_secret_is_a_problem_of_its_channel_alone(own_home: Path, mail: MailReceiver) -> None:
    (own_home / "url").unlink()
    slack, email = checked(orch("notify", "-o", "json"), "notify")["channels"]
    assert slack["to"] is None and "notify.slack is not in" in slack["problem"] and email["problem"] is None
    assert orch("notify", "test").exit_code == 1 and len(mail.mails) == 1
