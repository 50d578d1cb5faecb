"""The table of verbs: `orch --help` and completion need nothing else."""

from __future__ import annotations

import click

from orchestrator import __version__
from orchestrator.cli.command import debug_option
from orchestrator.cli.lazy import LazyGroup, Section, Verb

_HERE = "orchestrator.cli"

SECTIONS = (
    Section(
        "Run something",
        (
            Verb("launch", f"{_HERE}.launch:launch", "Provision hosts for a task file, set them up, run it."),
            Verb("train", f"{_HERE}.train:train", "Train the bundled model on new or living hosts."),
            Verb("exec", f"{_HERE}.execute:execute", "Run one command on the hosts of a cluster."),
            Verb("resume", f"{_HERE}.resume:resume", "Go on with a run, from its last checkpoint in the bucket."),
            Verb("watch", f"{_HERE}.watch:watch", "Follow a job to its end, and replace hosts that it loses."),
        ),
    ),
    Section(
        "See before you pay",
        (
            Verb("plan", f"{_HERE}.launch:plan", "Show all that a launch would do; nothing is done."),
            Verb(
                "check", f"{_HERE}.check:check", "Credentials, permissions, quota: what is missing, and what mends it."
            ),
            Verb("rehearse", f"{_HERE}.rehearse:rehearse", "Play a task on simulated machines, with faults."),
            Verb("simulate", f"{_HERE}.simulate:simulate", "Run commands in a pretend cloud on this computer."),
            Verb("accelerators", f"{_HERE}.accelerators:accelerators", "Shapes, hosts and list prices."),
            Verb("blocks", f"{_HERE}.blocks:blocks", "Find and buy Capacity Blocks of EC2."),
        ),
    ),
    Section(
        "Watch",
        (
            Verb("status", f"{_HERE}.status:status", "What is there, what it does, what it costs."),
            Verb("queue", f"{_HERE}.queue:queue", "Jobs in the order in which they run; pipelines."),
            Verb("logs", f"{_HERE}.logs:logs", "Output of a job, from every host or some."),
            Verb("events", f"{_HERE}.events:events", "What orch did, in order."),
            Verb("profile", f"{_HERE}.profile:profile", "Record steps of a running training on all hosts, as traces."),
        ),
    ),
    Section(
        "Get to the hosts",
        (
            Verb("ssh", f"{_HERE}.ssh:ssh", "A shell on one host."),
            Verb("cp", f"{_HERE}.cp:cp", "Copy files to and from hosts."),
            Verb("adopt", f"{_HERE}.adopt:adopt", "Manage a TPU VM that is there already."),
        ),
    ),
    Section(
        "Stop",
        (
            Verb("cancel", f"{_HERE}.lifecycle:cancel", "End a job; the hosts stay."),
            Verb("stop", f"{_HERE}.lifecycle:stop", "Stop the hosts, keep their disks."),
            Verb("start", f"{_HERE}.lifecycle:start", "Start stopped hosts again."),
            Verb("down", f"{_HERE}.lifecycle:down", "End the hosts for good; nothing is billed any more."),
            Verb("release", f"{_HERE}.adopt:release", "Give an adopted TPU VM back as it is."),
            Verb("reap", f"{_HERE}.reap:reap", "End machines that nobody wants any more."),
        ),
    ),
    Section(
        "Buckets and settings",
        (
            Verb("storage", f"{_HERE}.storage:storage", "List, copy, sync and remove in buckets."),
            Verb("pull", f"{_HERE}.pull:pull", "Bring a run's checkpoint home, verified."),
            Verb("config", f"{_HERE}.config:config", "Settings, and where each value comes from."),
            Verb("completion", f"{_HERE}.completion:completion", "Completion script for your shell."),
            Verb("serve", f"{_HERE}.serve:serve", "Drive jobs without a terminal."),
            Verb("local", f"{_HERE}.local:local", "Play with hosts on this computer: take one away."),
        ),
    ),
)

EXAMPLES = (
    ("orch train local:4 --bucket file:///tmp/runs model=tiny steps=100", "train on 4 hosts of this computer"),
    ("orch launch task.yaml --dry-run", "everything a launch would do, without doing it"),
    ("orch logs mine -f", "follow the output of the last job on 'mine'"),
    ("orch resume mine", "go on from the last checkpoint, on new hosts if the old ones are gone"),
)


@click.group(
    "orch",
    cls=LazyGroup,
    sections=SECTIONS,
    examples=EXAMPLES,
    params=[debug_option()],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit statuses: docs/exit-codes.md. More about a command: orch COMMAND --help",
)
@click.version_option(__version__, "-V", "--version", prog_name="orch", message="%(prog)s %(version)s")
def app() -> None:
    """Provision accelerators, set them up, train, resume, and preview all of it first."""
