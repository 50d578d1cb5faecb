"""How notices become messages: alone, or a summary; and their forms for each receiver."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import orchestrator
from orchestrator.notifications.mail import make_mail
from orchestrator.notifications.messages import Message, make_messages, make_test_message
from orchestrator.notifications.notices import Kind, Notice
from orchestrator.notifications.settings import EmailChannel
from orchestrator.notifications.slack import format_blocks
from orchestrator.notifications.webhook import message_as_json, sign

NOW = 1_800_000_000.0
DAY = 86_400.0


def notice(seq: int, age: float = 0.0, kind: Kind = Kind.FAILED, title: str = "", **more: Any) -> Notice:
    return Notice(seq=seq, at=NOW - age, kind=kind, title=title or f"run {seq} failed", **more)


def make(*notices: Notice) -> list[tuple[list[int], int]]:
    """The sequence numbers in each message, and that up to which each serves."""
    made = make_messages(notices, "slack", "abc", NOW)
    return [([one.seq for one in message.notices], message.last_seq) for message in made]


def test_a_new_notice_is_one_message() -> None:
    assert make(notice(3), notice(7)) == [([3], 3), ([7], 7)]


def test_what_is_older_than_a_day_is_summarized_and_the_rest_is_not() -> None:
    assert make(notice(1, 3 * DAY), notice(2, 2 * DAY), notice(5, DAY - 1)) == [([1, 2], 2), ([5], 5)]


def test_more_than_twenty_are_one_summary() -> None:
    assert len(make(*(notice(seq) for seq in range(20)))) == 20
    assert make(*(notice(seq) for seq in range(21))) == [(list(range(21)), 20)]


def test_the_order_of_events_holds_where_clocks_differ() -> None:
    assert make(notice(1, 10), notice(2, 2 * DAY), notice(3)) == [([1], 1), ([2], 2), ([3], 3)]


def test_ids_are_the_same_for_the_same_message_and_differ_for_any_other() -> None:
    def ids(channel: str, installation: str) -> list[str]:
        return [one.id for one in make_messages([notice(1), notice(2)], channel, installation, NOW + 5)]

    assert ids("slack", "abc") == ids("slack", "abc")
    assert len({*ids("slack", "abc"), *ids("email", "abc"), *ids("slack", "def")}) == 6


def test_a_summary_counts_its_kinds_and_lists_the_newest() -> None:
    (message,) = make_messages(
        [notice(seq, kind=Kind.LOST if seq % 3 else Kind.ENDED) for seq in range(90)], "slack", "abc", NOW
    )
    assert message.title == "90 messages since 2027-01-15T08:00:00.000Z: 30 ended, 60 lost"
    assert message.lines[0] == "40 earlier messages not listed: orch events" and len(message.lines) == 51


def test_the_schemas_know_every_kind() -> None:
    folder = Path(orchestrator.__file__).parent
    sent = json.loads((folder / "notifications" / "data" / "notification.schema.json").read_text())
    listed = json.loads((folder / "cli" / "data" / "notify.schema.json").read_text())
    assert set(sent["properties"]["type"]["enum"]) == {*Kind, "summary", "test"}
    assert set(listed["properties"]["kinds"]["items"]["enum"]) == {*Kind}


@pytest.mark.parametrize("count", [0, 1, 90])
def test_the_json_of_each_message_is_as_its_schema_says(count: int) -> None:
    file = Path(orchestrator.__file__).parent / "notifications" / "data" / "notification.schema.json"
    schema = json.loads(file.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    made = make_messages([notice(seq, why="why", job=1, status=1) for seq in range(count)], "webhook", "abc", NOW)
    for message in made or [make_test_message("webhook", "abc", NOW)]:
        document = message_as_json(message, "abc")
        jsonschema.validate(document, schema)
        assert document["count"] == count and len(json.dumps(document)) < 20_000


def test_a_signature_is_that_of_the_specification() -> None:
    """The values are those of the specification's own library, standardwebhooks 1.1.0."""
    key = b"\x30\xf2\x41\x0a" * 8
    body = b'{"type":"failed","title":"\xc3\xa4"}'
    assert sign(key, "orch_0123456789abcdef", "1674087231", body) == "v1,ElHc6K0QXhXAdCcS+CCs+lJRqv/voI+yEMkUCqrX9yo="


def test_no_text_of_a_program_mentions_people_in_slack_or_exceeds_its_limit() -> None:
    loud = notice(1, title="<!channel> & <@U1>", why="x" * 5000 + "&" * 4000)
    document = format_blocks(Message(id="i", title=loud.title, notices=(loud,), last_seq=1))
    texts = [document["text"], *(block["text"]["text"] for block in document["blocks"])]  # type: ignore[attr-defined]  # the document is JSON
    assert texts[0] == "&lt;!channel&gt; &amp; &lt;@U1&gt;"
    assert all("<" not in str(text) and len(str(text)) < 3000 for text in texts)


def test_an_email_has_one_id_and_no_second_header_from_a_title() -> None:
    channel = EmailChannel(to=("a@b.org", "c@d.org"), sender="orch@b.org", host="h", port=25, security="none")
    bad = notice(4, title="run 1 failed\nBcc: all@example.org")
    (message,) = make_messages([bad], "email", "abc", NOW)
    mail = make_mail(channel, message, "abc", NOW)
    assert mail["Bcc"] is None and mail["To"] == "a@b.org, c@d.org"
    assert mail["Message-ID"] == f"<{message.id}@abc.orch>" and mail["Auto-Submitted"] == "auto-generated"
