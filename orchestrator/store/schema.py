"""The tables, for SQLite and PostgreSQL alike. A changed definition raises SCHEMA_VERSION and adds a migration.

audited.py lists the columns that the audit leaves out, and why.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    text,
)

metadata = MetaData()

# Conditions of partial indexes: engines and lists read what is open each second, beside all that has ended. SQLite
# takes the index only where a query has the condition without parameters.
OPEN_CLUSTER = text("gone IS NULL")
UNENDED_JOB = text("state != 'ended'")
UNENDED_PIPELINE = text("state NOT IN ('ended', 'cancelled')")
OPEN_ORDER = text("state = 'open'")

meta = Table("meta", metadata, Column("key", String, primary_key=True), Column("value", Text, nullable=False))

clusters = Table(
    "clusters",
    metadata,
    Column("uid", String, primary_key=True),
    Column("name", String, nullable=False),
    Column("created", Float, nullable=False),
    Column("gone", Float),  # set last, when the provider reports every machine absent
    Column("wanted", String, nullable=False, server_default="up"),
    Column("hosts", Text, nullable=False, server_default="[]"),
    Column("held", Text, nullable=False, server_default="{}"),
    Column("summary", Text, nullable=False, server_default=""),
    Column("last_state", String, nullable=False, server_default=""),
    Column("last_seen", Float, nullable=False, server_default="0"),
    Column("limits", Text, nullable=False, server_default="{}"),  # JSON: max_hours, idle_minutes, max_cost
    Column("owner", String, nullable=False, server_default=""),  # the member who opened it; "" where not known
    Column("project", String, nullable=False, server_default=""),  # "" is the project "default"
    Index("one_open_cluster_of_a_name_and_project", "project", "name", unique=True, sqlite_where=OPEN_CLUSTER,
          postgresql_where=OPEN_CLUSTER),
    Index("open_clusters", "name", "created", sqlite_where=OPEN_CLUSTER, postgresql_where=OPEN_CLUSTER),
    Index("clusters_by_name", "name", "gone"),
)  # fmt: skip

intents = Table(
    "intents",
    metadata,
    Column("cluster_uid", String, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("name", String, nullable=False),
    Column("candidate", Text, nullable=False),
    Column("token", String, nullable=False),
    Column("request", Text, nullable=False),  # SHA-256 of the request as previewed
    Column("state", String, nullable=False),
    Column("cause", String),
    Column("why", Text, nullable=False, server_default=""),
    Column("since", Float, nullable=False),
    Column("touched", Float, nullable=False),
    Column("born", Float),  # start of billing: the provider accepted the create
    Column("gone", Float),  # end of billing
    Column("account", String, nullable=False, server_default=""),  # whose credentials made it; "" where not known
    PrimaryKeyConstraint("cluster_uid", "generation"),
)

jobs = Table(
    "jobs",
    metadata,
    Column("cluster_uid", String, nullable=False),
    Column("id", Integer, nullable=False),
    Column("kind", String, nullable=False),
    Column("run_id", String, nullable=False),
    Column("digest", String, nullable=False),
    Column("task", Text, nullable=False),
    Column("bucket", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("started", Boolean, nullable=False),
    Column("opened_at", Integer, nullable=False),
    Column("state", String, nullable=False),
    Column("status", Integer),
    Column("code", String, nullable=False, server_default=""),
    Column("what", Text, nullable=False, server_default=""),
    Column("why", Text, nullable=False, server_default=""),
    Column("next_step", Text, nullable=False, server_default=""),
    Column("created", Float, nullable=False),
    Column("ended", Float),
    Column("ranks", Text),
    Column("after_end", String, nullable=False, server_default="keep"),
    Column(
        "launch_request", Text, nullable=False, server_default=""
    ),  # JSON from which another process prepares it again
    Column("watch", Text, nullable=False, server_default=""),  # "engine": unattended engines drive it
    Column("pipeline", Text, nullable=False, server_default=""),  # uid of the pipeline it is a stage of
    Column("stage", Integer, nullable=False, server_default=text("0")),
    PrimaryKeyConstraint("cluster_uid", "id"),
    Index("jobs_by_run", "run_id"),
    Index("jobs_by_time", "created", "run_id", "kind"),
    Index("unended_jobs", "created", "id", sqlite_where=UNENDED_JOB, postgresql_where=UNENDED_JOB),
)

attempts = Table(
    "attempts",
    metadata,
    Column("cluster_uid", String, nullable=False),
    Column("job_id", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("cause", String, nullable=False),
    Column("why", Text, nullable=False),
    Column("generation", Integer),
    Column("at", Float, nullable=False),
    Column("started_at", Float),
    Column("exit_code", Integer),
    Column("rank", Integer),
    Column("evidence", Text, nullable=False, server_default=""),  # JSON
    PrimaryKeyConstraint("cluster_uid", "job_id", "attempt"),
)

pipelines = Table(
    "pipelines",
    metadata,
    Column("uid", String, primary_key=True),
    Column("name", String, nullable=False),
    Column("tasks", Text, nullable=False),  # JSON list, one item for each stage
    Column("stage", Integer, nullable=False),
    Column("state", String, nullable=False),  # running, ended, cancelled
    Column("status", Integer),
    Column("what", Text, nullable=False, server_default=""),
    Column("created", Float, nullable=False),
    Column("ended", Float),
    Column("launch_request", Text, nullable=False, server_default=""),
    Index("unended_pipelines", "created", "uid", sqlite_where=UNENDED_PIPELINE, postgresql_where=UNENDED_PIPELINE),
)

orders = Table(
    "orders",
    metadata,
    Column("uid", String, primary_key=True),
    Column("project", String, nullable=False),
    Column("cluster", String, nullable=False),
    Column("verb", String, nullable=False),
    Column("arguments", Text, nullable=False),  # JSON
    Column("plan", String, nullable=False),  # digest of the plan that the member saw
    Column("fingerprint", String, nullable=False),  # digest of the whole request
    Column("member", String, nullable=False),
    Column("state", String, nullable=False),  # open, ended
    Column("created", Float, nullable=False),
    Column("run_id", String, nullable=False, server_default=""),
    Column("ended", Float),
    Column("status", Integer),
    Column("code", String, nullable=False, server_default=""),
    Column("what", Text, nullable=False, server_default=""),
    Column("why", Text, nullable=False, server_default=""),
    Column("next_step", Text, nullable=False, server_default=""),
    Index("orders_by_verb", "verb", "created"),
    Index("open_orders", "created", "uid", sqlite_where=OPEN_ORDER, postgresql_where=OPEN_ORDER),
)

budgets = Table(
    "budgets",
    metadata,
    Column("project", String, nullable=False),  # "" for all; the default project is "default" here
    Column("member", String, nullable=False),  # the owner of the clusters; "" for all
    Column("dollars_per_month", Float),
    Column("dollars_per_run", Float),
    Column("dollars_per_hour", Float),
    Column("largest_slice", Integer),  # chips
    Column("markets", String, nullable=False, server_default=""),  # with spaces between them; "" for all
    Column("unknown_prices", String, nullable=False, server_default="refuse"),  # refuse, allow
    Column("at_limit", String, nullable=False, server_default="refuse"),  # refuse, stop
    Column("removed", Float),  # the row stays: its revision must never decrease
    Column("revision", Integer, nullable=False, server_default=text("0")),  # rises with each slice that is planned
    PrimaryKeyConstraint("project", "member"),
)

project_settings = Table(
    "project_settings",
    metadata,
    Column("project", String, nullable=False),  # the default project is "default" here
    Column("key", String, nullable=False),  # of the configuration, such as aws.role_arn
    Column("value", Text, nullable=False),  # "" for one that was removed
    PrimaryKeyConstraint("project", "key"),
)

bills = Table(
    "bills",
    metadata,
    Column("line", String, primary_key=True),  # what the other columns up to `begin` say; see bill_records.py
    Column("source", String, nullable=False),  # the driver of the cloud that sent the bill
    Column("account", String, nullable=False),  # who pays it
    Column("month", String, nullable=False),  # of the bill, such as 2026-11
    Column("token", String, nullable=False),  # of the slice
    Column("part", String, nullable=False),  # one of plan/charges.BILLED_PARTS
    Column("begin", Float, nullable=False),
    Column("until", Float, nullable=False),
    Column("microdollars", BigInteger, nullable=False),
    Column("imported", Float, nullable=False),
    Index("bills_by_token", "token"),
)

blocks = Table(  # capacity that was bought beforehand
    "blocks",
    metadata,
    Column("block_id", String, primary_key=True),
    Column("provider", String, nullable=False),
    Column("region", String, nullable=False),
    Column("machine", String, nullable=False),
    Column("count", Integer, nullable=False),
    Column("begin", Float, nullable=False),
    Column("until", Float, nullable=False),
    Column("microdollars", BigInteger, nullable=False),
    Column("project", String, nullable=False),
    Column("member", String, nullable=False),
    Column("bought", Float, nullable=False),
)

predictions = Table(  # what was estimated for a run when it was launched
    "predictions",
    metadata,
    Column("run_id", String, primary_key=True),
    Column("at", Float, nullable=False),
    Column("estimate", Text, nullable=False),  # JSON
)

tokens = Table(
    "tokens",
    metadata,
    Column("digest", String, primary_key=True),
    Column("name", String, nullable=False),
    Column("member", String, nullable=False),
    Column("role", String, nullable=False),
    Column("created", Float, nullable=False),
    Column("expires", Float, nullable=False),
    Column("revoked", Float),
    Column("project", String, nullable=False, server_default=""),  # "" for every project
    Column("parent", String, nullable=False, server_default=""),  # subject of the row with which it ends
)

trust_rules = Table(
    "trust_rules",
    metadata,
    Column("uid", String, primary_key=True),
    Column("name", String, nullable=False),
    Column("issuer", Text, nullable=False),
    Column("claims", Text, nullable=False),  # JSON: the values that a token has to have
    Column("member", String, nullable=False),
    Column("role", String, nullable=False),
    Column("project", String, nullable=False),  # "" for every project
    Column("seconds", Integer, nullable=False),  # how long a token counts that it gives
    Column("created", Float, nullable=False),
    Column("expires", Float),
    Column("revoked", Float),
)

sessions = Table(
    "sessions",
    metadata,
    Column("digest", String, primary_key=True),  # of the cookie
    Column("member", String, nullable=False),
    Column("role", String, nullable=False, server_default=""),
    Column("token", String, nullable=False, server_default=""),  # digest of the token that opened it
    Column("identity", String, nullable=False, server_default=""),  # the sign-in that opened it
    Column("begun", Float, nullable=False),
    Column("used", Float, nullable=False),
    Column("ended", Float),
)

invitations = Table(
    "invitations",
    metadata,
    Column("digest", String, primary_key=True),
    Column("name", String, nullable=False),
    Column("member", String, nullable=False),
    Column("role", String, nullable=False),
    Column("token_days", Integer, nullable=False),
    Column("created", Float, nullable=False),
    Column("expires", Float, nullable=False),
    Column("state", String, nullable=False, server_default="open"),  # open, used, revoked
    Column("ended", Float),
    Column("project", String, nullable=False, server_default=""),  # of the token that it becomes
)

sign_ins = Table(
    "sign_ins",
    metadata,
    Column("identity", String, primary_key=True),  # digest of issuer and subject
    Column("issuer", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("member", String, nullable=False),
    Column("created", Float, nullable=False),
    Column("revoked", Float),
    Index("one_sign_in_of_a_member", "member", unique=True),
)

entry_codes = Table(
    "entry_codes",
    metadata,
    Column("digest", String, primary_key=True),
    Column("kind", String, nullable=False),  # link, identity, spent
    Column("details", Text, nullable=False),  # JSON
    Column("until", Float, nullable=False),
)

host_pins = Table(
    "host_pins",
    metadata,
    Column("name", String, primary_key=True),  # the user and the host as known_hosts names it
    Column("kind", String, nullable=False),
    Column("key", Text, nullable=False),  # base64
    Column("since", Float, nullable=False),
    Column("actor", String, nullable=False),
    Column("job", Text, nullable=False, server_default=""),  # in which it was accepted without a confirmation
)

admissions = Table(
    "admissions",
    metadata,
    Column("cluster_uid", String, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("computer", String, nullable=False),
    Column("address", String, nullable=False),  # CIDR in the slice's firewall; "" for the computer's key on its hosts
    Column("at", Float, nullable=False),
    Column("until", Float, nullable=False),  # 0: as long as the machines exist
    Column(
        "confirmed", Float, nullable=False, server_default=text("0")
    ),  # when the change took effect; 0: not known yet
    PrimaryKeyConstraint("cluster_uid", "generation", "computer", "address"),
)

slice_owners = Table(  # slices that changed hands; the others are ours, with epoch 1
    "slice_owners",
    metadata,
    Column("token", String, primary_key=True),  # of the intent
    Column("epoch", Integer, nullable=False),  # what our commands present to the hosts
    Column("holder", Text, nullable=False),  # who has taken it over from here, in words; "" when it is ours
)

provider_records = Table(
    "provider_records",
    metadata,
    Column("kind", String, nullable=False),
    Column("name", String, nullable=False),  # of the slice
    Column("body", Text, nullable=False),  # JSON; each provider's record.py describes it
    PrimaryKeyConstraint("kind", "name"),
)

run_keys = Table(
    "run_keys",
    metadata,
    Column("run_id", String, primary_key=True),
    Column("key", String, nullable=False),  # a secret: signs what the ranks of the run leave in its bucket
)

trusted_checkpoints = Table(  # that lack their run's signature, and are loaded with someone's consent
    "trusted_checkpoints",
    metadata,
    Column("run_id", String, nullable=False),
    Column("digest", String, nullable=False),  # SHA-256 of the manifest
    Column("step", BigInteger, nullable=False),
    Column("at", Float, nullable=False),
    PrimaryKeyConstraint("run_id", "digest"),
)

blobs = Table(
    "blobs",
    metadata,
    Column("digest", String, primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("unpacked", BigInteger, nullable=False),
    Column("content", Text),  # base64; NULL when it is in a bucket
    Column("bucket", Text, nullable=False, server_default=""),
    Column("path", Text, nullable=False, server_default=""),
    Column("used", Float, nullable=False),  # when a launch last named it; negative while it is being deleted
    Column("project", String),  # as whose members the bucket is reached: see blob_changes.Blob
)

progress = Table(
    "progress",
    metadata,
    # A number is never given twice, also where the newest row was replaced.
    Column("number", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=True),
    Column("at", Float, nullable=False),
    Column("cluster", String, nullable=False),  # qualified name
    Column("document", Text, nullable=False),  # engine/progress.py, as JSON
    Index("progress_by_time", "at"),
    sqlite_autoincrement=True,
)

notification_channels = Table(
    "notification_channels",
    metadata,
    Column("name", String, primary_key=True),
    Column("seq", Integer, nullable=False),  # the newest event that was delivered, or has nothing to deliver
    Column("delivered", Float),  # when the last message was delivered
    Column("problem", Text, nullable=False, server_default=""),  # why the last try failed; "" after a delivery
)

leases = Table(
    "leases",
    metadata,
    Column("name", String, primary_key=True),
    Column("fence", Integer, nullable=False),
    Column("owner", String, nullable=False),
    Column("machine", String, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("process_start", String, nullable=False),
    Column("doing", Text, nullable=False),
    Column("expires", Float, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("at", Float, nullable=False),
    Column("cluster", String, nullable=False),
    Column("actor", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("what", Text, nullable=False),
    Column("subject", Text, nullable=False, server_default=""),  # the row that changed, see audited.py
    Column("cause", Text, nullable=False, server_default=""),
    Column("before", Text),  # JSON of the changed columns; NULL for a new row
    Column("after", Text),  # NULL when the event changed no row
    Column("prev_hash", String, nullable=False, server_default=""),
    Column("hash", String, nullable=False, server_default=""),
    Column("request", String, nullable=False, server_default=""),  # random id of the call that wrote it; not hashed
    Index("events_by_cluster", "cluster", "seq"),
    Index("events_by_kind", "kind", "seq"),
    Index("events_by_request", "request"),
    Index("events_by_subject", "subject", "seq"),
)
