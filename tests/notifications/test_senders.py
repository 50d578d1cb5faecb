"""The senders against real servers on this computer: good ones, failing ones, slow ones."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from receivers import MailReceiver, WebReceiver, mail_receiver, make_certificate

from orchestrator.notifications import http_post, mail
from orchestrator.notifications.delivery_error import DeliveryError
from orchestrator.notifications.messages import make_test_message
from orchestrator.notifications.send import send_message
from orchestrator.notifications.settings import Channel, EmailChannel, SlackChannel, WebhookChannel
from orchestrator.notifications.webhook import sign

NOW = 1_800_000_000.0
KEY = b"k" * 32
MESSAGE = make_test_message("webhook", "abc", NOW)


def send(channel: Channel) -> str:
    return send_message(channel, MESSAGE, "abc", NOW)


def refused(channel: Channel) -> DeliveryError:
    with pytest.raises(DeliveryError) as error:
        send(channel)
    return error.value


def mails_to(receiver: MailReceiver, security: str = "none", **more: str) -> EmailChannel:
    return EmailChannel(
        to=("ann@example.org",), sender="orch@example.org", host="127.0.0.1", port=receiver.port, security=security,
        **more,
    )  # fmt: skip


def test_a_webhook_gets_signed_json(web: WebReceiver) -> None:
    assert send(WebhookChannel(url=web.url, key=KEY)) == f"{web.url.removesuffix('/hook')} answered 200"
    (post,) = web.posts
    assert post.path == "/hook" and post.headers["content-type"] == "application/json"
    assert post.headers["webhook-id"] == MESSAGE.id and post.headers["webhook-timestamp"] == str(int(NOW))
    assert post.headers["webhook-signature"] == sign(KEY, MESSAGE.id, str(int(NOW)), post.body)


def test_without_a_key_there_is_no_signature(web: WebReceiver) -> None:
    send(WebhookChannel(url=web.url))
    assert "webhook-signature" not in web.posts[0].headers


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_no_redirect_is_followed(web: WebReceiver, status: int) -> None:
    web.answers = [(status, {"Location": web.url + "/elsewhere"})]
    error = refused(WebhookChannel(url=web.url, key=KEY))
    assert len(web.posts) == 1 and not error.is_transient
    assert f"answered {status}" in error.what and "redirects are not followed" in error.why


@pytest.mark.parametrize(
    ("status", "transient"), [(400, False), (404, False), (410, False), (429, True), (500, True), (503, True)]
)
def test_refusals_of_a_web_server_are_quoted_and_classified(web: WebReceiver, status: int, transient: bool) -> None:
    web.answers = [(status, {"Retry-After": "7"})]
    error = refused(SlackChannel(url=web.url))
    assert (error.is_transient, error.retry_after, error.why) == (transient, 7.0, "the receiver's own words")


def test_a_server_that_is_down_is_a_transient_failure_without_the_path_of_its_address() -> None:
    error = refused(SlackChannel(url="http://127.0.0.1:9/services/T0/B0/secret"))
    assert error.is_transient and "secret" not in str(error) + error.next_step


def test_an_address_in_the_receivers_answer_is_hidden(web: WebReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_post, "to_one_line", lambda _: f"no service at {web.url}")
    web.answers = [(404, {})]
    assert refused(SlackChannel(url=web.url)).why == "no service at ***"


@pytest.fixture
def short_deadline(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in (http_post, mail):
        monkeypatch.setattr(module, "DEADLINE", 0.5)
    yield


@pytest.mark.usefixtures("short_deadline")
def test_a_receiver_that_drips_bytes_does_not_hold_up_beyond_the_deadline(web: WebReceiver) -> None:
    web.drip = True
    began = time.monotonic()
    error = refused(WebhookChannel(url=web.url))
    assert time.monotonic() - began < 2 and error.is_transient and "did not answer within" in error.what


@pytest.mark.usefixtures("short_deadline")
def test_a_slow_mail_server_does_not_hold_up_beyond_the_deadline(mail: MailReceiver) -> None:
    mail.delay = 1.5
    began = time.monotonic()
    assert refused(mails_to(mail)).is_transient
    assert time.monotonic() - began < 1.4


def test_an_email_arrives(mail: MailReceiver) -> None:
    assert send(mails_to(mail)) == f"127.0.0.1:{mail.port} took it"
    assert b"Subject: [orch] orch: a test of notifications" in mail.mails[0]
    assert MESSAGE.id.encode() in mail.mails[0]


@pytest.mark.parametrize(("answer", "transient"), [("451 greylisted", True), ("554 no", False)])
def test_refusals_of_a_mail_server_are_quoted_and_classified(mail: MailReceiver, answer: str, transient: bool) -> None:
    mail.refuse = answer
    error = refused(mails_to(mail))
    assert (error.is_transient, error.why) == (transient, answer[4:])


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_a_login_goes_over_tls_to_a_server_whose_certificate_is_trusted(
    security: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = make_certificate(tmp_path)
    with mail_receiver(certificate=certificate, tls=security == "tls", password=b"pw-canary") as receiver:
        channel = mails_to(receiver, security, user="ann", password="pw-canary")
        untrusted = refused(channel)
        assert "certificate" in untrusted.why and receiver.logins == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
        assert "took it" in send(channel)
        assert receiver.logins == [(b"ann", b"pw-canary")]
        error = refused(replace(channel, password="wrong-canary"))
        assert "answered 535" in error.what and not error.is_transient and "canary" not in str(error)
        assert len(receiver.mails) == 1


def test_a_server_without_starttls_gets_neither_password_nor_message(mail: MailReceiver) -> None:
    error = refused(mails_to(mail, "starttls", user="ann", password="pw-canary"))
    assert "STARTTLS" in error.why and mail.mails == [] and mail.logins == []
