"""`orch completion SHELL`: the completion script that a shell loads."""

from __future__ import annotations

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.terminal import write_stdout


@click.command(
    cls=OrchCommand,
    examples=[
        ('eval "$(orch completion bash)"', "in ~/.bashrc"),
        ('eval "$(orch completion zsh)"', "in ~/.zshrc"),
        ("orch completion fish > ~/.config/fish/completions/orch.fish", ""),
    ],
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for your shell.

    It completes commands, options and the names of clusters, from the store on this computer alone.
    """
    from click.shell_completion import ShellComplete, get_completion_class

    from orchestrator.cli.app import app

    found = get_completion_class(shell)
    if found is None:
        raise TypeError(f"click has no completion for {shell}")
    # Not BashComplete.source: it starts a bash to read its version, which takes longer than all the rest.
    write_stdout(ShellComplete.source(found(app, {}, "orch", "_ORCH_COMPLETE")))
