"""`orch ssh`: become OpenSSH, with the keys and the pinned host key that orch has for the host."""

from __future__ import annotations

import os
import shlex
import shutil
import sys

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.terminal import write_stdout
from orchestrator.cli.execution.host_ssh import prepare_ssh
from orchestrator.cli.parameters.clusters import CLUSTER
from orchestrator.cli.parameters.shared import IDENTITY
from orchestrator.errors import OrchError, UserError
from orchestrator.hosts import ssh_argv

BEHIND = "orch.behind"  # key of the words behind `--`


class SshCommand(OrchCommand):
    """A command line in which a number is a host before `--`, and a word of the remote command behind it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse what stands before `--`, and keep what follows as it is."""
        end = args.index("--") if "--" in args else len(args)
        ctx.meta[BEHIND] = tuple(args[end + 1 :])
        try:
            return super().parse_args(ctx, args[:end])
        except click.NoSuchOption as error:
            _refuse_remote_option(error.option_name, args[:end])
            raise


def _refuse_remote_option(option: str, words: list[str]) -> None:
    """Raise UserError for an option that belongs to the command on the host."""
    begin = next((at for at, word in enumerate(words) if not word.startswith("-")), len(words)) + 1
    begin += words[begin : begin + 1] != [] and words[begin].isdecimal()
    if begin < len(words) and not words[begin].startswith("-"):
        step = shlex.join(["orch", "ssh", *words[:begin], "--", *words[begin:]])
        raise UserError(f"`orch ssh` has no option {option}", "the command for the host is written after --", step)


@click.command(
    cls=SshCommand,
    examples=[
        ("orch ssh mine", "a shell on the head"),
        ("orch ssh mine 2 -- nvidia-smi", "one command on host 2"),
        ("orch ssh mine 2 --print", "the plain ssh command"),
    ],
)
@click.option("--print", "only_print", is_flag=True, help="Print the ssh command instead of running it.")
@IDENTITY
@click.argument("cluster", type=CLUSTER)
@click.argument("rest", metavar="[N] [-- COMMAND...]", nargs=-1)
@click.pass_context
def ssh(ctx: click.Context, only_print: bool, identity: str, cluster: str, rest: tuple[str, ...]) -> None:
    """Open a shell on host N of CLUSTER (the head when N is left out), or run one command after --."""
    rank, command = _split(rest, ctx.meta[BEHIND])
    # Several words stay separate, as typed; one word is a line for the shell, as with ssh itself.
    text = (command[0],) if len(command) == 1 else (shlex.join(command),) if command else ()
    host, strict = prepare_ssh(cluster, rank, identity, connects=not only_print)
    argv = ssh_argv(host, *text, interactive=not command or sys.stdin.isatty(), strict=strict)
    if only_print:
        write_stdout(shlex.join(argv))
        return
    if shutil.which("ssh") is None:
        raise OrchError("this computer has no ssh program", next_step="install the OpenSSH client")
    sys.stdout.flush()
    os.execvp(argv[0], argv)  # noqa: S606  # an argument list, no shell


def _split(rest: tuple[str, ...], behind: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
    """Return the rank and the command of `[N] [WORD...] [-- WORD...]`."""
    numbered = bool(rest) and rest[0].isdecimal()
    return (int(rest[0]) if numbered else 0), (*rest[numbered:], *behind)
