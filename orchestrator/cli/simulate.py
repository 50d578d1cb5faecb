"""`orch simulate gcp` and `orch simulate aws`: a pretend cloud on this computer, to try commands in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.terminal import put, say
from orchestrator.errors import UserError
from orchestrator.exits import Exit


class _Pretend(Protocol):
    @property
    def env(self) -> Mapping[str, str]: ...


@dataclass(frozen=True, slots=True)
class _Cloud:
    """folder: of its state, in that of the play. open: who calls may do everything there.

    lead: beginnings of the variables that lead to the real one. hide: variables that hide the accounts which this
    computer knows besides, while another cloud is pretended.
    """

    folder: str
    open: Callable[[Path], AbstractContextManager[_Pretend]]
    lead: tuple[str, ...]
    hide: Callable[[Path], Mapping[str, str]]


def _google(folder: Path) -> AbstractContextManager[_Pretend]:
    from orchestrator.simulator.google.iam import owner
    from orchestrator.simulator.google.pretend import PretendGoogle

    return PretendGoogle(folder, grants=owner())


def _aws(folder: Path) -> AbstractContextManager[_Pretend]:
    from orchestrator.simulator.aws.grants import owner
    from orchestrator.simulator.aws.pretend import PretendAws

    return PretendAws(folder, grants=owner())


def _hide_google(folder: Path) -> Mapping[str, str]:
    names = ("CLOUDSDK_CONFIG", "GOOGLE_APPLICATION_CREDENTIALS")
    return {name: str(folder / "no-google") for name in names} | {"NO_GCE_CHECK": "true"}


def _hide_aws(folder: Path) -> Mapping[str, str]:
    del folder
    from orchestrator.simulator.aws.pretend import NO_ACCOUNT

    return NO_ACCOUNT


_CLOUDS: Mapping[str, _Cloud] = {
    "gcp": _Cloud("google", _google, ("GOOGLE_", "CLOUDSDK_"), _hide_google),
    "aws": _Cloud("aws", _aws, ("AWS_", "BOTO_"), _hide_aws),
}


@click.command(
    cls=OrchCommand,
    context_settings={"ignore_unknown_options": True},
    examples=[
        ("orch simulate gcp -- bash", "a shell in which orch and gcloud meet a pretend Google"),
        ("orch simulate aws -- bash", "a shell in which orch and aws meet a pretend AWS"),
        ("orch simulate gcp -- orch train v5e-8 --bucket gs://mine --yes", "one command; its exit status is returned"),
        ("orch simulate aws --scenario stockout.toml", "serve until Ctrl-C; says what to export"),
    ],
)
@click.argument("cloud", type=click.Choice(list(_CLOUDS)))
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--scenario", type=click.Path(), help="A cloud as a TOML file; docs/simulator.md tells its words.")
@click.option("--home", type=click.Path(), help="Keep records and logs there; default: a folder that is removed.")
@click.pass_context
def simulate(ctx: click.Context, cloud: str, command: tuple[str, ...], scenario: str | None, home: str | None) -> None:
    """Run COMMAND where a cloud's APIs and buckets are pretended on this computer. Nothing is rented.

    The hosts are real processes of this computer, reached over SSH; the chips are not there. Inside, orch keeps its
    records in a folder of its own: your clusters are not touched. No real cloud is reached from there by your accounts.
    """
    kept = Path(home).absolute() if home else None
    folder = kept or Path(tempfile.mkdtemp(prefix="orch-simulate-"))
    try:
        ctx.exit(_serve(_CLOUDS[cloud], folder, scenario, list(command)))
    finally:
        if kept is None:
            shutil.rmtree(folder, ignore_errors=True)


def _serve(cloud: _Cloud, folder: Path, scenario: str | None, command: list[str]) -> int:
    place = folder / cloud.folder
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    if scenario is not None:
        _copy_scenario(Path(scenario), place)
    with cloud.open(place) as pretended:
        names = {**pretended.env, "ORCH_HOME": str(folder)}
        if not command:
            return _until_interrupted(names)
        return _run(command, _without_clouds(cloud, folder) | names)


def _without_clouds(pretended: _Cloud, folder: Path) -> dict[str, str]:
    """Our environment, in which nothing leads to a real cloud, or to other records."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("ORCH_")}
    for cloud in _CLOUDS.values():
        env = {name: value for name, value in env.items() if not name.startswith(cloud.lead)}
        if cloud is not pretended:
            env.update(cloud.hide(folder))
    return env


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
        sys.stdout.flush()  # who reads this through a pipe needs it now
        say("serving; Ctrl-C ends it, and all of its hosts")
        while True:
            time.sleep(0.2)  # not signal.pause(): a signal just before it would be slept over
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
