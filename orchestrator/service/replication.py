"""The route of the copies of the store that read commands of members use."""

from __future__ import annotations

from orchestrator.documents.records import records_as_json
from orchestrator.service.route import Answer, Call
from orchestrator.store.failures import StoreError
from orchestrator.store.version import SCHEMA_VERSION


def list_records(call: Call) -> Answer:
    """Answer with the records after an event, and what changes without events.

    Raises:
        StoreError: The store has tables of an older orch, which lack columns.
    """
    person = call.person
    assert person is not None  # noqa: S101  # the route needs a role
    with call.open_reader() as store:
        if store.version < SCHEMA_VERSION:
            raise StoreError(
                "the store of the service has tables of an older orch",
                f"they have version {store.version}, and this orch sends those of version {SCHEMA_VERSION}",
                "on the computer of the service: orch store upgrade",
            )
        return Answer(document=records_as_json(store, call.query["after"], person.name, call.query["limit"]))
