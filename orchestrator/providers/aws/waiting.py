"""The request of a slice that waits for its Capacity Block: kept without host keys, rendered when it is sent.

Any computer of the team may send it. It makes the host keys, pins them in the record before the request leaves, and
lets itself in. Sent again, it has other keys: EC2 answers with IdempotentParameterMismatch when an earlier one took
effect, and what EC2 holds is pinned then (Amazon EC2 API, "Ensuring idempotency", 2026-11).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.providers.aws import userdata
from orchestrator.providers.aws.record import Record, Records
from orchestrator.remote.keys import make_host_key


def keep_waiting(records: Records, record: Record, params: Mapping[str, Any]) -> Record:
    """Keep a request until its block begins, without the private host keys that are in it."""
    return records.keep_request(record, {**params, "UserData": userdata.without_host_keys(str(params["UserData"]))})


def render_waiting(records: Records, record: Record) -> tuple[Record, dict[str, Any]]:
    """Return the record with new pins, as it was written, and the request with the keys.

    Raises:
        CloudError: The request is not there.
    """
    params = records.request(record)
    pairs = [make_host_key() for _ in range(record.hosts)]
    mine = Path(f"{record.identity_file}.pub")
    user = mine.read_text(encoding="ascii") if mine.exists() else ""
    text = userdata.with_keys(str(params["UserData"]), user, [private for private, _ in pairs])
    record = records.write(record, host_public=tuple(public for _, public in pairs))
    return record, {**params, "UserData": text}
