"""What is sent: one notice, or a summary of many. Pure."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from orchestrator.formatting import format_utc
from orchestrator.messages import count_noun
from orchestrator.notifications.notices import Notice
from orchestrator.project import DEFAULT_PROJECT

OLD_SECONDS = 86_400.0  # older notices are delivered in one summary
MOST_AT_ONCE = 20  # more notices than that are delivered in one summary, too
MOST_LISTED = 50  # in a summary: the newest


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a channel.

    Attributes:
        id: The same whenever the same message is sent again, so that a receiver can drop the second.
        notices: One, or those of a summary; none for a test.
        last_seq: The event up to which the channel is served with this message.
    """

    id: str
    title: str
    notices: tuple[Notice, ...] = ()
    last_seq: int = 0

    @property
    def listed(self) -> tuple[Notice, ...]:
        """The notices that are listed one by one."""
        return self.notices[-MOST_LISTED:]

    @property
    def lines(self) -> tuple[str, ...]:
        """The text below the title."""
        if not self.notices:
            return ("The channel works. No run is concerned.",)
        if len(self.notices) == 1:
            notice = self.notices[0]
            facts = {
                "why": notice.why,
                "progress": notice.progress,
                "next": str(notice.next_step),
                "project": notice.project if notice.project != DEFAULT_PROJECT else "",
                "owner": notice.owner,
                "when": format_utc(notice.at),
            }
            return tuple(f"{name}: {value}" for name, value in facts.items() if value)
        left = len(self.notices) - len(self.listed)
        first = (f"{count_noun(left, 'earlier message')} not listed: orch events",) if left else ()
        return (*first, *(f"{format_utc(one.at)}  {one.title}" for one in self.listed))


def make_messages(notices: Sequence[Notice], channel: str, installation: str, now: float) -> tuple[Message, ...]:
    """Return the messages for notices, in order: old ones and too many become one summary.

    Args:
        notices: In the order of their events.
        channel: Its name.
        installation: The name of the store's installation.
        now: Epoch seconds.
    """
    old = list(takewhile(lambda one: one.at < now - OLD_SECONDS, notices))
    new = notices[len(old) :]
    few = len(new) <= MOST_AT_ONCE
    groups = [*([old] if old else []), *([one] for one in new)] if few else [notices]
    return tuple(_make_message(group, channel, installation) for group in groups)


def make_test_message(channel: str, installation: str, now: float) -> Message:
    """Return a message that says only that the channel works."""
    return Message(id=_make_id(installation, channel, f"test {now!r}"), title="orch: a test of notifications")


def _make_message(group: Sequence[Notice], channel: str, installation: str) -> Message:
    name = f"{group[0].seq}-{group[-1].seq}"
    title = group[0].title
    if len(group) > 1:
        counts = ", ".join(f"{count} {kind}" for kind, count in Counter(one.kind.value for one in group).items())
        title = f"{count_noun(len(group), 'message')} since {format_utc(group[0].at)}: {counts}"
    message_id = _make_id(installation, channel, name)
    return Message(id=message_id, title=title, notices=tuple(group), last_seq=group[-1].seq)


def _make_id(installation: str, channel: str, name: str) -> str:
    digest = hashlib.sha256("\n".join((installation, channel, name)).encode()).hexdigest()
    return f"orch_{digest[:32]}"
