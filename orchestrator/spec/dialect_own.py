"""The sections that are ours: checkpoint, recovery, limits, train, hosts. See dialect.py."""

from __future__ import annotations

from orchestrator.spec.schema import (
    Field,
    Flag,
    ListOf,
    MapOf,
    Number,
    OneOf,
    Scalar,
    Section,
    Text,
    Whole,
)
from orchestrator.spec.stacks import BACKENDS

CHECKPOINT = Section(
    (
        Field(
            "bucket",
            Text("a bucket address: s3://, gs:// or file:///"),
            "where runs keep checkpoints, metrics and logs",
            ours=True,
        ),
        Field("every", Whole(), "steps between checkpoints of the bundled trainer", ours=True),
        Field("keep", Whole(), "newest checkpoints to keep", ours=True),
    )
)

RECOVERY = Section(
    (
        Field("max_preemptions", Whole(0), "how often a lost slice is replaced", ours=True),
        Field("max_failures", Whole(0), "how often the program is started again after it failed", ours=True),
        Field("restart_on_exit_codes", ListOf(Whole(1, 255)), "exit statuses that count as a preemption", ours=True),
        Field("fail_on_exit_codes", ListOf(Whole(1, 255)), "exit statuses that are never worth a restart", ours=True),
        Field("hang_minutes", Number(zero=True), "steps that stand still for so long are a hang", ours=True),
        Field("capacity_wait_hours", Number(zero=True), "how long new machines are looked for after a loss", ours=True),
        Field("on_demand_fallback", Flag(), "when no spot capacity is left: pay for on demand", ours=True),
    )
)

LIMITS = Section(
    (
        Field("max_hours", Number(), "the machines end after so many hours", ours=True),
        Field("idle_minutes", Whole(), "the machines end after so many minutes without a job", ours=True),
        Field("max_cost", Number(), "US dollars for the whole run, at most", ours=True),
    )
)

TRAIN = Section(
    (
        Field("backend", Text("text", BACKENDS), "what drives the chips; tpu: TorchTPU, xla: torch_xla", ours=True),
        Field(
            "args",
            MapOf(OneOf((Scalar(), MapOf(Scalar()))), r"[A-Za-z_][A-Za-z0-9_.]*", "a setting such as model.dim"),
            "settings of the trainer, `model.dim: 256` or nested",
            ours=True,
        ),
        Field("smoke", Flag(), "test devices, data, loop and checkpoint on the hosts before each attempt", ours=True),
    )
)

_PORT = Whole(1, 65535)
HOST = Section(
    (
        Field("host", Text("a name or an address"), "name or address", ours=True),
        Field("user", Text("a user name"), "user to log in as", ours=True),
        Field("port", _PORT, "port of sshd", ours=True),
        Field("key", Text("a path"), "private key file", ours=True),
        Field("jump", Text("user@host:port"), "jump host; several hops with commas", ours=True),
        Field("internal_ip", Text("an address"), "how the other hosts reach it", ours=True),
    )
)

HOSTS = Section(
    (
        Field("addresses", ListOf(OneOf((Text("user@host:port"), HOST)), least=1), "hosts in rank order", ours=True),
        Field("user", Text("a user name"), "for hosts without a user", ours=True),
        Field("port", _PORT, "for hosts without a port", ours=True),
        Field("key", Text("a path"), "for hosts without a key", ours=True),
        Field("jump", Text("user@host:port"), "for hosts without a jump host", ours=True),
    )
)
