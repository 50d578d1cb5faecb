"""Messages as signed JSON, by the specification of Standard Webhooks.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md (2026-11-26): the headers
webhook-id, webhook-timestamp and webhook-signature, which is `v1,` and the base64 of HMAC-SHA256 over id, timestamp and
body with dots between. Its libraries verify it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json

from orchestrator.formatting import format_utc
from orchestrator.notifications.http_post import post_json
from orchestrator.notifications.messages import Message
from orchestrator.notifications.notices import Notice
from orchestrator.notifications.settings import WebhookChannel


def send_webhook(channel: WebhookChannel, message: Message, installation: str, now: float) -> str:
    """Send a message, and return the answer in words. Raises DeliveryError."""
    body = json.dumps(message_as_json(message, installation)).encode()
    stamp = str(int(now))
    headers = {"webhook-id": message.id, "webhook-timestamp": stamp}
    if channel.key:
        headers["webhook-signature"] = sign(channel.key, message.id, stamp, body)
    return post_json(channel.url, body, headers)


def sign(key: bytes, message_id: str, stamp: str, body: bytes) -> str:
    """Return the signature of a body."""
    signed = b".".join((message_id.encode(), stamp.encode(), body))
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def message_as_json(message: Message, installation: str) -> dict[str, object]:
    """Return a message as in data/notification.schema.json."""
    count = len(message.notices)
    kind = "summary" if count > 1 else message.notices[0].kind.value if count else "test"
    return {
        "version": 1,
        "kind": "notification",
        "id": message.id,
        "type": kind,
        "title": message.title,
        "installation": installation,
        "count": count,
        "items": [_notice_as_json(notice) for notice in message.listed],
    }


def _notice_as_json(notice: Notice) -> dict[str, object]:
    return {
        "seq": notice.seq,
        "type": notice.kind.value,
        "at": format_utc(notice.at),
        "title": notice.title,
        "why": notice.why or None,
        **notice.next_step.as_json(),
        "project": notice.project,
        "cluster": notice.cluster or None,
        "owner": notice.owner or None,
        "run_id": notice.run_id or None,
        "job": notice.job,
        "status": notice.status,
        "progress": notice.progress or None,
    }
