"""Messages by e-mail, over SMTP with TLS."""

from __future__ import annotations

import smtplib
import ssl
from email.message import EmailMessage
from email.utils import formatdate

from orchestrator.messages import to_one_line
from orchestrator.notifications.delivery_error import DEADLINE, TIMEOUT, DeliveryError, call_within
from orchestrator.notifications.messages import Message
from orchestrator.notifications.settings import EmailChannel


def send_mail(channel: EmailChannel, message: Message, installation: str, now: float) -> str:
    """Send a message, and return the answer in words. Raises DeliveryError."""
    server = f"{channel.host}:{channel.port}"
    mail = make_mail(channel, message, installation, now)
    return call_within(DEADLINE, lambda: _send(channel, mail, server), server)


def make_mail(channel: EmailChannel, message: Message, installation: str, now: float) -> EmailMessage:
    """Return the e-mail. Its Message-ID is that of the message, by which mail programs drop a second copy."""
    mail = EmailMessage()
    mail["Subject"] = f"[orch] {to_one_line(message.title)}"
    mail["From"] = channel.sender
    mail["To"] = ", ".join(channel.to)
    mail["Date"] = formatdate(now)
    mail["Message-ID"] = f"<{message.id}@{installation}.orch>"
    mail["Auto-Submitted"] = "auto-generated"  # RFC 3834: no vacation notes in answer
    mail.set_content("\n".join((message.title, "", *message.lines)) + "\n")
    return mail


def _send(channel: EmailChannel, mail: EmailMessage, server: str) -> str:
    context = ssl.create_default_context()
    try:
        if channel.security == "tls":
            client: smtplib.SMTP = smtplib.SMTP_SSL(channel.host, channel.port, timeout=TIMEOUT, context=context)
        else:
            client = smtplib.SMTP(channel.host, channel.port, timeout=TIMEOUT)
        with client:
            if channel.security == "starttls":
                client.starttls(context=context)
            if channel.user:
                client.login(channel.user, channel.password)
            refused = client.send_message(mail)
    except smtplib.SMTPResponseException as error:
        transient = 400 <= error.smtp_code < 500
        why = to_one_line(_decode(error.smtp_error))
        raise DeliveryError(f"{server} answered {error.smtp_code}", why, is_transient=transient) from None
    except smtplib.SMTPRecipientsRefused as error:
        raise DeliveryError(f"{server} refused every recipient", _describe_refused(error.recipients)) from None
    except (OSError, smtplib.SMTPException) as error:
        why = to_one_line(str(error)) or type(error).__name__
        raise DeliveryError(f"{server} could not take the e-mail", why, is_transient=True) from None
    return f"{server} took it" + (f", but not for {_describe_refused(refused)}" if refused else "")


def _describe_refused(refused: dict[str, tuple[int, bytes]]) -> str:
    return to_one_line("; ".join(f"{to}: {code} {_decode(text)}" for to, (code, text) in refused.items()))


def _decode(text: bytes | str) -> str:
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text
