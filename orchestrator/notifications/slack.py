"""Messages for an incoming webhook of Slack, and for services that take the same form.

The texts of a section have at most 3,000 characters (https://api.slack.com/reference/block-kit/blocks#section, as of
2026-11-26). `&`, `<` and `>` are escaped, so no text can mention people; with `verbatim` names are not made links.
"""

from __future__ import annotations

import json

from orchestrator.notifications.http_post import post_json
from orchestrator.notifications.messages import Message
from orchestrator.notifications.settings import SlackChannel

_LONGEST = 2900
_SIGNS = {"ended": ":white_check_mark:", "failed": ":x:", "limit": ":moneybag:", "budget": ":moneybag:"}
_OTHER_SIGN = ":warning:"


def send_slack(channel: SlackChannel, message: Message) -> str:
    """Send a message, and return the answer in words. Raises DeliveryError."""
    return post_json(channel.url, json.dumps(format_blocks(message)).encode(), {})


def format_blocks(message: Message) -> dict[str, object]:
    """Return a message as text, for lists and screen readers, and as blocks."""
    kinds = {notice.kind.value for notice in message.notices}
    sign = "" if not kinds else f"{_SIGNS.get(next(iter(kinds)), _OTHER_SIGN) if len(kinds) == 1 else _OTHER_SIGN} "
    title, rest = _escape(message.title), _escape("\n".join(message.lines))
    return {
        "text": title,
        "blocks": [
            {"type": "section", "text": {"type": "mrkdwn", "text": f"{sign}*{title}*", "verbatim": True}},
            {"type": "section", "text": {"type": "mrkdwn", "text": rest, "verbatim": True}},
        ],
    }


def _escape(text: str) -> str:
    short = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return short.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")[:_LONGEST]
