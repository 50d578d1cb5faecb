"""The rows of clusters that a command on their hosts needs, for a member of a service.

They have no secrets, and nothing of the computer that made the hosts. Closed: a column that is not here is not sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, cast

from orchestrator.formatting import format_utc
from orchestrator.store.lookup import cluster_not_found
from orchestrator.store.read import Reader
from orchestrator.store.records import ClusterRecord

SENT: Mapping[str, tuple[str, ...]] = {
    "clusters": ("uid", "name", "created", "gone", "wanted", "hosts", "held", "summary", "last_state", "last_seen",
                 "limits", "owner", "project"),
    "intents": ("cluster_uid", "generation", "name", "candidate", "token", "request", "state", "cause", "why", "since",
                "touched", "born", "gone", "account"),
    "jobs": ("cluster_uid", "id", "kind", "run_id", "digest", "task", "bucket", "attempt", "started", "opened_at",
             "state", "status", "code", "what", "why", "next_step", "created", "ended", "ranks", "after_end",
             "launch_request", "watch", "pipeline", "stage"),
    "attempts": ("cluster_uid", "job_id", "attempt", "cause", "why", "generation", "at", "started_at", "exit_code",
                 "rank", "evidence"),
    "slice_owners": ("token", "epoch", "holder"),
}  # fmt: skip
_OWN_FILES: Mapping[str, object] = {
    "identity_file": "",
    "known_hosts": "",
    "host_key": None,
    "jump": None,
    "proxy": [],
    "own": None,
}
_ADDRESS = ("rank", "alias", "host", "port", "user", "internal_ip")


def list_cluster_rows(store: Reader, now: float, name: str) -> dict[str, Any]:
    """Return the document of data/records.schema.json.

    Args:
        store: Open.
        now: Epoch seconds.
        name: Of the cluster; its newest deleted one where it does not exist any more. "" for all that exist.

    Raises:
        NotFoundError: No cluster of this name is on record.
    """
    store.hold_snapshot()
    clusters = store.clusters() if not name else (_find_newest(store, name),)
    uids = [one.uid for one in clusters]
    found = {"clusters": store.rows_with("clusters", "uid", uids)}
    found |= {table: store.rows_with(table, "cluster_uid", uids) for table in ("intents", "jobs", "attempts")}
    found["slice_owners"] = store.rows_with("slice_owners", "token", [str(one["token"]) for one in found["intents"]])
    return {
        "version": 1,
        "kind": "records",
        "now": format_utc(now),
        "project": store.project,
        "member": store.member,
        "installation": store.installation() or "",
        "incarnation": store.incarnation,
        "tables": {
            table: {"columns": list(SENT[table]), "rows": [_list_values(table, row) for row in rows]}
            for table, rows in found.items()
        },
    }


def _find_newest(store: Reader, name: str) -> ClusterRecord:
    found = store.cluster(name) or store.deleted_cluster(name)
    if found is None:
        raise cluster_not_found(store, name)
    return found


def _list_values(table: str, row: Mapping[str, Any]) -> list[object]:
    reducers = _REDUCERS.get(table, {})
    return [reducers[column](str(row[column])) if column in reducers else row[column] for column in SENT[table]]


def _reduce_hosts(text: str) -> str:
    """Return the addresses alone; of a text that is none, one that a reader refuses as it would refuse that."""
    try:
        hosts = cast("list[dict[str, Any]]", json.loads(text or "[]"))
        return json.dumps([{**_OWN_FILES, **{name: host[name] for name in _ADDRESS}} for host in hosts])
    except (ValueError, TypeError, KeyError):
        return "null"


# Paths of keys and commands of proxies are those of the service's computer; variables of a task may be secrets; only a
# command that changes hosts needs what they hold, and only the engine prepares a job again.
_REDUCERS: Mapping[str, Mapping[str, Callable[[str], str]]] = {
    "clusters": {"hosts": _reduce_hosts, "held": lambda _text: "{}"},
    "jobs": {"task": lambda _text: "", "launch_request": lambda _text: ""},
}
