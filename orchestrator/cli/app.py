"""The table of commands, which is all that `orch --help` and completion need."""

from __future__ import annotations

import click

from orchestrator import __version__
from orchestrator.cli.command import debug_option
from orchestrator.cli.lazy_group import LazyCommand, LazyGroup, Section

SECTIONS = (
    Section(
        "Run something",
        (
            LazyCommand(
                "init",
                "orchestrator.cli.commands.before.init:init",
                "A task file in seven questions, with checks and prices.",
            ),
            LazyCommand(
                "launch",
                "orchestrator.cli.commands.run.launch:launch",
                "Provision hosts for a task file, set them up, run it.",
            ),
            LazyCommand(
                "train",
                "orchestrator.cli.commands.run.train:train",
                "Train the bundled model on new or existing hosts.",
            ),
            LazyCommand(
                "exec", "orchestrator.cli.commands.run.execute:execute", "Run one command on the hosts of a cluster."
            ),
            LazyCommand(
                "resume",
                "orchestrator.cli.commands.run.resume:resume",
                "Resume a run from its last checkpoint in the bucket.",
            ),
            LazyCommand(
                "watch",
                "orchestrator.cli.commands.run.watch:watch",
                "Follow a job to its end, and replace lost hosts.",
            ),
        ),
    ),
    Section(
        "See before you pay",
        (
            LazyCommand(
                "plan",
                "orchestrator.cli.commands.run.launch:plan",
                "Show everything a launch would do; nothing is done.",
            ),
            LazyCommand(
                "import",
                "orchestrator.cli.commands.run.import_task:import_file",
                "What of a SkyPilot task file changes to run with orch.",
            ),
            LazyCommand(
                "check",
                "orchestrator.cli.commands.before.check:check",
                "Check credentials, permissions and quota, with a fix for each problem.",
            ),
            LazyCommand(
                "rehearse",
                "orchestrator.cli.commands.before.rehearse:rehearse",
                "Run a task on simulated machines, with faults.",
            ),
            LazyCommand(
                "simulate",
                "orchestrator.cli.commands.before.simulate:simulate",
                "Run commands in a simulated cloud on this computer.",
            ),
            LazyCommand(
                "accelerators",
                "orchestrator.cli.commands.before.accelerators:accelerators",
                "Shapes, hosts and list prices.",
            ),
            LazyCommand(
                "catalog",
                "orchestrator.cli.commands.before.catalog:catalog",
                "Which prices are used; read them from the vendors.",
            ),
            LazyCommand(
                "offers",
                "orchestrator.cli.commands.before.offers:offers",
                "Which machines train this, how long it takes, what it costs.",
            ),
            LazyCommand(
                "acceptance",
                "orchestrator.cli.commands.before.acceptance:acceptance",
                "Try orch on your real cloud account, within a price cap.",
            ),
            LazyCommand("blocks", "orchestrator.cli.commands.before.blocks:blocks", "Find and buy capacity blocks."),
        ),
    ),
    Section(
        "Watch",
        (
            LazyCommand(
                "status", "orchestrator.cli.commands.watch.status:status", "Clusters, what they run and what they cost."
            ),
            LazyCommand(
                "queue",
                "orchestrator.cli.commands.watch.queue:queue",
                "Jobs in the order in which they run; pipelines.",
            ),
            LazyCommand("top", "orchestrator.cli.commands.watch.top:top", "Hosts and chips of a cluster, live."),
            LazyCommand(
                "runs", "orchestrator.cli.commands.watch.runs:runs", "Every run: owner, duration, cost, result."
            ),
            LazyCommand(
                "cost", "orchestrator.cli.commands.watch.cost:cost", "What machines cost, by person, run, day and more."
            ),
            LazyCommand(
                "logs", "orchestrator.cli.commands.watch.logs:logs", "Output of a job, from every host or some."
            ),
            LazyCommand("events", "orchestrator.cli.commands.watch.events:events", "What orch did, in order."),
            LazyCommand(
                "profile",
                "orchestrator.cli.commands.watch.profile:profile",
                "Record steps of a running training on all hosts, as traces.",
            ),
        ),
    ),
    Section(
        "Get to the hosts",
        (
            LazyCommand("ssh", "orchestrator.cli.commands.hosts.ssh:ssh", "A shell on one host."),
            LazyCommand("cp", "orchestrator.cli.commands.hosts.cp:cp", "Copy files to and from hosts."),
            LazyCommand(
                "ssh-config",
                "orchestrator.cli.commands.hosts.ssh_config:ssh_config",
                "Hosts as aliases for ssh, scp, rsync and editors.",
            ),
            LazyCommand(
                "forward", "orchestrator.cli.commands.hosts.forward:forward", "A port of a host, on this computer."
            ),
            LazyCommand(
                "notebook", "orchestrator.cli.commands.hosts.notebook:notebook", "Jupyter on a host, in your browser."
            ),
        ),
    ),
    Section(
        "Stop",
        (
            LazyCommand("cancel", "orchestrator.cli.commands.stop.lifecycle:cancel", "End a job; the hosts stay."),
            LazyCommand("stop", "orchestrator.cli.commands.stop.lifecycle:stop", "Stop the hosts, keep their disks."),
            LazyCommand("start", "orchestrator.cli.commands.stop.lifecycle:start", "Start stopped hosts again."),
            LazyCommand(
                "down",
                "orchestrator.cli.commands.stop.lifecycle:down",
                "Delete the hosts and their disks; billing ends.",
            ),
            LazyCommand("reap", "orchestrator.cli.commands.stop.reap:reap", "Find and end orphaned machines."),
            LazyCommand(
                "recover",
                "orchestrator.cli.commands.stop.recover:recover",
                "Find and end machines whose record is lost.",
            ),
        ),
    ),
    Section(
        "Buckets and settings",
        (
            LazyCommand(
                "storage",
                "orchestrator.cli.commands.settings.storage:storage",
                "List, copy, sync and delete in buckets.",
            ),
            LazyCommand(
                "pull", "orchestrator.cli.commands.settings.pull:pull", "Download and verify a run's checkpoint."
            ),
            LazyCommand("store", "orchestrator.cli.commands.store.group:store", "Back up and restore the store."),
            LazyCommand(
                "config",
                "orchestrator.cli.commands.settings.config:config",
                "Settings, and where each value comes from.",
            ),
            LazyCommand(
                "login",
                "orchestrator.cli.commands.settings.login:login",
                "Keep a token for your team's service.",
            ),
            LazyCommand(
                "token",
                "orchestrator.cli.commands.settings.token:token",
                "Tokens with which members call the service.",
            ),
            LazyCommand(
                "budget",
                "orchestrator.cli.commands.settings.budget:budget",
                "What projects and members may spend.",
            ),
            LazyCommand(
                "schema", "orchestrator.cli.commands.settings.schema:schema", "JSON Schemas of what -o json prints."
            ),
            LazyCommand(
                "completion",
                "orchestrator.cli.commands.settings.completion:completion",
                "Completion script for your shell.",
            ),
            LazyCommand(
                "notify",
                "orchestrator.cli.commands.settings.notify:notify",
                "Channels that report ends, losses and limits of runs.",
            ),
            LazyCommand("serve", "orchestrator.cli.commands.settings.serve:serve", "Drive jobs without a terminal."),
            LazyCommand(
                "local",
                "orchestrator.cli.commands.settings.local:local",
                "Try failures of hosts on this computer.",
            ),
        ),
    ),
)

EXAMPLES = (
    ("orch train local:4 --bucket file:///tmp/runs model=tiny steps=100", "train on 4 hosts of this computer"),
    ("orch launch task.yaml --dry-run", "everything a launch would do, without doing it"),
    ("orch logs mine -f", "follow the output of the job on 'mine'"),
    ("orch resume mine", "resume from the last checkpoint, on new hosts if the old ones are lost"),
)


_OWN_MACHINES = "infra: hosts   serves a machine that you made yourself: docs/hosts.md"
REMOVED = {
    "adopt": _OWN_MACHINES,
    "release": _OWN_MACHINES,
    "team": "orch token create NAME --member MEMBER   lets someone in: docs/team.md",
}


@click.group(
    "orch",
    cls=LazyGroup,
    sections=SECTIONS,
    removed=REMOVED,
    examples=EXAMPLES,
    params=[debug_option()],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit statuses: docs/exit-codes.md. More about a command: orch COMMAND --help",
)
@click.version_option(__version__, "-V", "--version", prog_name="orch", message="%(prog)s %(version)s")
def app() -> None:
    """Provision accelerators, set them up, train, resume, and preview all of it first."""
