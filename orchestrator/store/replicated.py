"""What of the store a service sends to its members, for the copy that read commands use. Closed: all else stays.

A table or column that is in none of these is not sent, and tests/store/test_replica.py fails until it is decided.
"""

from __future__ import annotations

EVENTS = "events"
# The columns that are sent. Each table has all its columns, so that the records of a copy are read as those of a store.
SENT: dict[str, tuple[str, ...]] = {
    "clusters": ("uid", "name", "created", "gone", "wanted", "hosts", "held", "summary", "last_state", "last_seen",
                 "limits", "owner", "project"),
    "intents": ("cluster_uid", "generation", "name", "candidate", "token", "request", "state", "cause", "why", "since",
                "touched", "born", "gone", "account"),
    "jobs": ("cluster_uid", "id", "kind", "run_id", "digest", "task", "bucket", "attempt", "started", "opened_at",
             "state", "status", "code", "what", "why", "next_step", "created", "ended", "ranks", "after_end", "wish",
             "watch", "pipeline", "stage"),
    "attempts": ("cluster_uid", "job_id", "attempt", "cause", "why", "generation", "at", "started_at", "exit_code",
                 "rank", "evidence"),
    "pipelines": ("uid", "name", "tasks", "stage", "state", "status", "what", "created", "ended", "wish"),
    "slice_owners": ("token", "epoch", "holder"),
    "bills": ("line", "source", "account", "month", "token", "part", "begin", "until", "microdollars", "imported"),
    "blocks": ("block_id", "provider", "region", "machine", "count", "begin", "until", "microdollars", "project",
               "member", "bought"),
    "predictions": ("run_id", "at", "estimate"),
    EVENTS: ("seq", "at", "cluster", "actor", "kind", "what", "subject", "cause", "before", "after", "prev_hash",
             "hash"),
}  # fmt: skip
# Columns of these that are sent without what a reader must not have, or has no use for (documents/records.py).
REDUCED: dict[str, dict[str, str]] = {
    "clusters": {
        "hosts": "only their addresses: paths of keys and commands of proxies are those of the service's computer",
        "held": "nothing: only a command that changes the hosts needs their contents",
    },
    "jobs": {
        "task": "only its commit: variables in it may be secrets; the service compares the settings of runs itself",
        "wish": "nothing: only the engine prepares a job again",
    },
    "pipelines": {
        "tasks": "only their number, for the same reason",
        "wish": "only project and owner",
    },
    EVENTS: {
        "before": "without variables that are likely secrets, as `orch events` shows it",
        "after": "the same",
    },
}
NOT_SENT_COLUMNS: dict[str, dict[str, str]] = {EVENTS: {"request": "finds a repeated call; no command shows it"}}
NOT_SENT: dict[str, str] = {
    "meta": "versions, installation, incarnation and head are sent by themselves; the rest concerns the file",
    "leases": "those that are held are sent, by what they are for and the process, without the holder's random id",
    "orders": "no read command shows them; their page does",
    "tokens": "who may enter concerns the service alone",
    "sessions": "the same",
    "invitations": "the same",
    "sign_ins": "the same",
    "trust_rules": "the same",
    "entry_codes": "the same",
    "host_pins": "keys of people's own machines, for commands that log in there",
    "admissions": "addresses of servers, and of members",
    "provider_records": "how a provider finds its machines again; the engine alone needs it",
    "run_keys": "secrets",
    "trusted_checkpoints": "hosts get them with the job; their events are sent",
    "blobs": "files of members",
    "budgets": "the service computes what is left of them (/v1/budgets), and checks them where slices are planned",
    "project_settings": "the service uses them where it plans and acts",
    "notification_channels": "addresses of channels may be in their problems",
}
