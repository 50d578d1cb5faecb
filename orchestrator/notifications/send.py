"""Sends one message over one channel."""

from __future__ import annotations

from orchestrator.notifications.delivery_error import DeliveryError
from orchestrator.notifications.mail import send_mail
from orchestrator.notifications.messages import Message
from orchestrator.notifications.settings import Channel, EmailChannel, SlackChannel, hide_secrets
from orchestrator.notifications.slack import send_slack
from orchestrator.notifications.webhook import send_webhook


def send_message(channel: Channel, message: Message, installation: str, now: float) -> str:
    """Send a message once, and return the answer in words.

    Raises:
        DeliveryError: It was not accepted, or no answer came. No secret of the channel is in its text.
    """
    try:
        if isinstance(channel, EmailChannel):
            answer = send_mail(channel, message, installation, now)
        elif isinstance(channel, SlackChannel):
            answer = send_slack(channel, message)
        else:
            answer = send_webhook(channel, message, installation, now)
    except DeliveryError as error:
        what, why = hide_secrets(channel, error.what), hide_secrets(channel, error.why)
        raise DeliveryError(what, why, is_transient=error.is_transient, retry_after=error.retry_after) from None
    return hide_secrets(channel, answer)
