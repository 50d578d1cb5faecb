"""`orch simulate gcp`: a pretend Google on this computer, to try commands in."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.terminal import put, say
from orchestrator.errors import UserError
from orchestrator.exits import Exit


@click.command(
    cls=OrchCommand,
    context_settings={"ignore_unknown_options": True},
    examples=[
        ("orch simulate gcp -- bash", "a shell in which orch and gcloud meet a pretend Google"),
        ("orch simulate gcp -- orch train v5e-8 --bucket gs://mine --yes", "one command; its exit status is returned"),
        ("orch simulate gcp --scenario stockout.toml", "serve until Ctrl-C; says what to export"),
    ],
)
@click.argument("cloud", type=click.Choice(["gcp"]))
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--scenario", type=click.Path(), help="A cloud as a TOML file; docs/simulator.md tells its words.")
@click.option("--home", type=click.Path(), help="Keep records and logs there; default: a folder that is removed.")
@click.pass_context
def simulate(ctx: click.Context, cloud: str, command: tuple[str, ...], scenario: str | None, home: str | None) -> None:
    """Run COMMAND where Google's APIs and buckets are pretended on this computer. Nothing is rented.

    The TPU hosts are real processes of this computer, reached over SSH; the chips are not there. Inside, orch keeps its
    records in a folder of its own: your clusters are not touched.
    """
    del cloud  # the only one there is
    kept = Path(home).absolute() if home else None
    folder = kept or Path(tempfile.mkdtemp(prefix="orch-simulate-"))
    try:
        ctx.exit(_serve(folder, scenario, list(command)))
    finally:
        if kept is None:
            shutil.rmtree(folder, ignore_errors=True)


def _serve(folder: Path, scenario: str | None, command: list[str]) -> int:
    from orchestrator.simulator.google.iam import owner
    from orchestrator.simulator.google.pretend import PretendGoogle, without_google

    place = folder / "google"
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    if scenario is not None:
        _copy_scenario(Path(scenario), place)
    with PretendGoogle(place, grants=owner()) as google:
        names = {**google.env, "ORCH_HOME": str(folder)}
        if not command:
            return _until_interrupted(names)
        return _run(command, without_google() | names)


def _copy_scenario(path: Path, place: Path) -> None:
    from orchestrator.simulator.rehearsal import SCENARIO_FILE
    from orchestrator.simulator.scenario_file import read_scenario

    read_scenario(path)  # a mistake is told with the user's own path
    shutil.copyfile(path, place / SCENARIO_FILE)


def _run(command: list[str], env: dict[str, str]) -> int:
    try:
        process = subprocess.Popen(command, env=env)
    except OSError as error:
        raise UserError(f"{command[0]} cannot be run", str(error)) from error
    while True:
        try:
            status = process.wait()
        except KeyboardInterrupt:
            continue  # the terminal told the command as well: its end is ours
        return status if status >= 0 else 128 - status


def _until_interrupted(names: dict[str, str]) -> int:
    import shlex
    import time

    try:
        put(*(f"export {name}={shlex.quote(value)}" for name, value in names.items()))
        say("serving; Ctrl-C ends it, and all of its hosts")
        while True:
            time.sleep(0.2)  # not signal.pause(): a signal just before it would be slept over
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
