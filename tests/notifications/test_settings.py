"""The channels of a configuration; secrets are named there and never written, and never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import AccessError, OrchError, UserError
from orchestrator.notifications.notices import Kind
from orchestrator.notifications.settings import (
    EmailChannel,
    SlackChannel,
    WebhookChannel,
    hide_secrets,
    list_channels,
    read_channel,
    read_kinds,
    read_thresholds,
)
from orchestrator.task.config import Config, parse_config

KEY = "whsec_" + "a2V5" * 8  # "key" 8 times, in base64
MAIL = 'email_to = ["a@b.org"]\nemail_from = "o@b.org"\nsmtp = "mail.b.org:587"\n'


def config(text: str) -> Config:
    return parse_config("[notify]\n" + text, "config.toml", {})


def test_without_settings_there_is_no_channel_and_every_kind() -> None:
    assert list_channels(config("")) == () and read_kinds(config("")) == frozenset(Kind)
    limits = read_thresholds(config(""))
    assert (limits.waiting, limits.near) == (1800.0, 0.8)


def test_secrets_come_from_the_environment_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("https://hooks.slack.com/services/T0/B0/x\n")
    made = config(
        f'webhook = "https://a.org/token-canary"\nwebhook_secret = "env:KEY"\nslack = "file:{tmp_path}/url"\n{MAIL}'
        'smtp_user = "u"\nsmtp_password = "env:PW"\n'
    )
    env = {"KEY": KEY, "PW": "pw-canary"}
    assert list_channels(made) == ("webhook", "slack", "email")
    webhook, slack, mail = (read_channel(made, name, env) for name in list_channels(made))
    assert isinstance(webhook, WebhookChannel) and webhook.key == b"key" * 8 and webhook.target == "https://a.org"
    assert isinstance(slack, SlackChannel) and slack.target == "https://hooks.slack.com"
    assert isinstance(mail, EmailChannel) and mail.password == "pw-canary" and mail.security == "starttls"
    assert (
        "canary" not in repr((mail, webhook))
        and "B0" not in repr(slack)
        and "key" not in repr(webhook).lower().split("(")[1]
    )


@pytest.mark.parametrize(
    ("text", "channel", "message"),
    [
        ('slack = "https://hooks.slack.com/services/canary"', "slack", "must name its secret"),
        ('slack = "canary"', "slack", "must name its secret"),
        ('webhook = "https://hooks.slack.com/services/canary"', "webhook", "has a secret in it"),
        ('webhook = "https://u:canary@a.org/"', "webhook", "has a secret in it"),
        ('webhook = "http://a.org/"', "webhook", "must be an https address"),
        ('webhook = "https://a.org/ b"', "webhook", "has no address"),
        ('webhook = "https:///x"', "webhook", "has no address"),
        ('webhook = "https://[::1/x"', "webhook", "has no address"),
        ('webhook = "https://a.org"\nwebhook_secret = "env:SHORT"', "webhook", "another form"),
        ('webhook = "https://a.org"\nwebhook_secret = "env:PLAIN"', "webhook", "another form"),
        ('email_to = ["a@b.org"]', "email", "notify.email_from is not set"),
        (MAIL.replace(":587", ""), "email", "must be HOST:PORT"),
        (MAIL.replace("o@b.org", "O <o@b.org>"), "email", "is not an e-mail address"),
        (MAIL + 'smtp_security = "none"', "email", "on this computer alone"),
        (MAIL + 'smtp_security = "canary"', "email", "must be starttls, tls or none"),
        (MAIL + 'smtp_user = "u"', "email", "notify.smtp_password is not set"),
        (MAIL + 'smtp_password = "env:PW"', "email", "notify.smtp_user is not set"),
    ],
)
def test_wrong_settings_are_refused_with_what_to_do(text: str, channel: str, message: str) -> None:
    env = {"SHORT": "whsec_a2V5", "PLAIN": "canary" * 10, "PW": "canary"}
    with pytest.raises(UserError) as error:
        read_channel(config(text), channel, env)
    assert message in error.value.what
    assert "smtp_security" in text or "canary" not in "".join(error.value.lines())


@pytest.mark.parametrize("reference", ["env:MISSING", "env:BLANK", "file:/nonexistent/canary-free", "file:{empty}"])
def test_a_secret_that_is_not_there_is_named(reference: str, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    reference = reference.format(empty=tmp_path / "empty")
    with pytest.raises(AccessError) as error:
        read_channel(config(f'slack = "{reference}"'), "slack", {"BLANK": " "})
    assert reference in error.value.what and error.value.next_step


def test_an_unknown_kind_is_refused() -> None:
    assert read_kinds(config('kinds = ["failed", "limit"]')) == {Kind.FAILED, Kind.LIMIT}
    with pytest.raises(OrchError, match="moonphase"):
        read_kinds(config('kinds = ["moonphase"]'))


def test_texts_lose_what_a_channel_keeps_secret() -> None:
    slack = SlackChannel(url="https://hooks.slack.com/services/T0/B0/x")
    assert hide_secrets(slack, f"POST /services/T0/B0/x of {slack.url}") == "POST *** of ***"
    mail = EmailChannel(to=("a@b.org",), sender="o@b.org", host="h", port=1, security="tls", user="u", password="pw")
    assert hide_secrets(mail, "bad pw") == "bad ***"
