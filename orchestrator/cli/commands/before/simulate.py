"""`orch simulate gcp` and `orch simulate aws`: a simulated cloud on this computer, to try commands in."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.commands.before.simulated_command import Signals, noticed_signals, run_command
from orchestrator.cli.commands.before.simulated_shell import mark_prompt
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.drivers import Driver, get_driver, list_clouds
from orchestrator.errors import UserError
from orchestrator.exits import Exit


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch simulate gcp -- bash", "a shell in which orch and gcloud use a simulated Google Cloud"),
        ("orch simulate aws -- bash", "a shell in which orch and aws use a simulated AWS"),
        ("orch simulate gcp -- orch train v5e-8 --bucket gs://mine --yes", "one command; its exit status is returned"),
        ("orch simulate aws --scenario stockout", "serve until Ctrl-C; prints the variables to export"),
    ],
)
@click.argument("cloud", type=click.Choice([cloud.name for cloud in list_clouds()]))
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--scenario", metavar="NAME|FILE", help="Simulated cloud by name or as a TOML file: docs/simulator.md.")
@click.option("--home", type=click.Path(), help="Keep records and logs in this folder; default: a temporary one.")
@click.pass_context
def simulate(ctx: click.Context, cloud: str, command: tuple[str, ...], scenario: str | None, home: str | None) -> None:
    """Run COMMAND with a cloud's APIs and buckets simulated on this computer. Nothing is rented.

    The hosts are real processes of this computer, reached over SSH; there are no accelerators. Inside, orch keeps its
    records in a separate folder: your clusters are not touched, and your accounts of real clouds are hidden.
    """
    kept = Path(home).absolute() if home else None
    with noticed_signals() as signals:
        folder = kept or Path(tempfile.mkdtemp(prefix="orch-simulate-"))
        try:
            ctx.exit(_serve(cloud, folder, scenario, list(command), signals))
        finally:
            if kept is None:
                shutil.rmtree(folder, ignore_errors=True)


def _serve(name: str, folder: Path, scenario: str | None, command: list[str], signals: Signals) -> int:
    from orchestrator.simulator.fronts import load_front

    cloud, open_front = get_driver(name), load_front(name)
    place = folder / cloud.state_folders[0]
    _make_private(folder)
    place.mkdir(exist_ok=True, mode=0o700)
    if scenario is not None:
        _copy_scenario(scenario, place)
    with open_front(place) as front:
        variables = {**front.env, "ORCH_HOME": str(folder)}
        if not command:
            return _until_interrupted(variables, signals)
        environment = _environment_without_clouds(cloud, folder) | variables
        return run_command(*mark_prompt(command, name, folder, environment), signals)


def _make_private(folder: Path) -> None:
    """Make the folder, or check that only its owner, this user, can change what is in it.

    Raises:
        UserError: Another user can.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = folder.stat()
    except OSError as error:
        raise UserError(f"{folder} cannot be used", str(error), "name another folder: --home FOLDER") from error
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise UserError(
            f"{folder} is not safe for keys",
            "another user of this computer owns it or can write to it",
            f"chmod 700 {shlex.quote(str(folder))}   or name another folder: --home FOLDER",
        )


def _environment_without_clouds(simulated: Driver, folder: Path) -> dict[str, str]:
    """Return our environment without variables that lead to a real cloud or to other records."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("ORCH_")}
    for cloud in list_clouds():
        env = {name: value for name, value in env.items() if not name.startswith(cloud.account_prefixes)}
        if cloud is not simulated:
            env.update({name: value.format(folder=folder) for name, value in cloud.without_accounts})
    return env


def _copy_scenario(name: str, place: Path) -> None:
    from orchestrator.simulator.rehearsal import SCENARIO_FILE
    from orchestrator.simulator.scenario_file import find_scenario_file, read_scenario

    path = find_scenario_file(name)
    read_scenario(path)  # an error names the path that the user gave
    shutil.copyfile(path, place / SCENARIO_FILE)


def _until_interrupted(names: dict[str, str], signals: Signals) -> int:
    import time

    write_stdout(*(f"export {name}={shlex.quote(value)}" for name, value in names.items()))
    sys.stdout.flush()  # a reader behind a pipe needs it now
    write_stderr("serving; Ctrl-C ends it and all of its hosts")
    while not signals:
        time.sleep(0.2)  # not signal.pause(), which would miss a signal that arrives just before it
    return Exit.INTERRUPTED
