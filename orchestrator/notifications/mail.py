"""Messages by e-mail, over SMTP with TLS."""

from __future__ import annotations

import contextlib
import smtplib
import socket
import ssl
from email.message import EmailMessage
from email.utils import formatdate

from orchestrator.conversation import Conversation
from orchestrator.messages import to_one_line
from orchestrator.notifications.delivery_error import DEADLINE, DeliveryError
from orchestrator.notifications.messages import Message
from orchestrator.notifications.settings import EmailChannel

_MOST_BYTES, _MOST_LINES = 262_144, 2_000  # of all answers; RFC 5321, section 4.5.3.1.5: 512 bytes a line
_QUIT_SECONDS = 5.0


def send_mail(channel: EmailChannel, message: Message, installation: str, now: float) -> str:
    """Send a message, and return the answer in words. Raises DeliveryError."""
    server = f"{channel.host}:{channel.port}"
    mail = make_mail(channel, message, installation, now)
    return _send(channel, mail, server)


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
    with Conversation(seconds=DEADLINE, most_bytes=_MOST_BYTES, most_lines=_MOST_LINES) as conversation:
        try:
            client = _connect(channel, conversation)
            refused = client.send_message(mail)
        except smtplib.SMTPResponseException as error:
            transient = 400 <= error.smtp_code < 500
            why = to_one_line(_decode(error.smtp_error))
            raise DeliveryError(f"{server} answered {error.smtp_code}", why, is_transient=transient) from None
        except smtplib.SMTPRecipientsRefused as error:
            raise DeliveryError(f"{server} refused every recipient", _describe_refused(error.recipients)) from None
        except (OSError, smtplib.SMTPException) as error:
            raise _explain_failure(conversation, server, error) from None
        # It is accepted, whatever the server answers to QUIT (RFC 5321, sections 4.1.1.4 and 4.1.1.10).
        with contextlib.suppress(OSError, smtplib.SMTPException):
            if client.sock is not None:
                client.sock.settimeout(_QUIT_SECONDS)
                client.quit()
    return f"{server} took it" + (f", but not for {_describe_refused(refused)}" if refused else "")


def _connect(channel: EmailChannel, conversation: Conversation) -> smtplib.SMTP:
    """Return a client that is logged in. What it holds is closed with the conversation."""

    class Plain(smtplib.SMTP):
        def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
            return conversation.open_socket((host, port))

        def getreply(self) -> tuple[int, bytes]:
            if self.file is None and self.sock is not None:  # a new connection, or TLS has begun on it
                self.file = conversation.count(self.sock.makefile("rb", buffering=0))
            reply = super().getreply()
            conversation.check()  # a reply that was cut off looks like a shorter one, such as 25
            return reply

    class Secure(smtplib.SMTP_SSL, Plain):
        """TLS over a socket of `Plain`."""

    context = ssl.create_default_context()
    if channel.security == "tls":
        client: smtplib.SMTP = Secure(channel.host, channel.port, context=context)
    else:
        client = Plain(channel.host, channel.port)
    if channel.security == "starttls":
        client.starttls(context=context)
    if channel.user:
        client.login(channel.user, channel.password)
    return client


def _explain_failure(conversation: Conversation, server: str, error: Exception) -> DeliveryError:
    try:
        conversation.check()
    except TimeoutError:
        return DeliveryError(f"{server} did not answer within {DEADLINE:.0f} s", is_transient=True)
    except OSError as too_long:
        error = too_long
    why = to_one_line(str(error)) or type(error).__name__
    return DeliveryError(f"{server} could not take the e-mail", why, is_transient=True)


def _describe_refused(refused: dict[str, tuple[int, bytes]]) -> str:
    return to_one_line("; ".join(f"{to}: {code} {_decode(text)}" for to, (code, text) in refused.items()))


def _decode(text: bytes | str) -> str:
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text
