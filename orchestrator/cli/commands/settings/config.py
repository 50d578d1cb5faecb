"""`orch config`: settings, and where each value comes from."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, cast

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.tables import draw_table
from orchestrator.cli.drawing.terminal import write_stderr, write_stdout
from orchestrator.cli.lazy_group import LazyCommand, LazyGroup, Section
from orchestrator.client.choose import open_team
from orchestrator.errors import UserError
from orchestrator.formatting import align_columns

if TYPE_CHECKING:
    from orchestrator.task.config import SourcedValue

_HERE = "orchestrator.cli.commands.settings.config"


_project_option = click.option("--project", metavar="NAME", help="Of this project, for all of its members.")


@click.group(
    cls=LazyGroup,
    sections=[
        Section(
            "Commands",
            (
                LazyCommand("explain", f"{_HERE}:explain", "Every value of one key, the effective one first."),
                LazyCommand("list", f"{_HERE}:list_", "All keys with their effective values."),
                LazyCommand("set", f"{_HERE}:set_", "Write one key into the configuration file."),
                LazyCommand("unset", f"{_HERE}:unset", "Remove one key from the configuration file."),
                LazyCommand("path", f"{_HERE}:path", "The path of the configuration file."),
            ),
        )
    ],
    examples=[
        ("orch config explain checkpoint.bucket", "the effective value, and where it is set"),
        ("orch config list", "all keys"),
        ("orch config set checkpoint.bucket s3://mine/runs", "for all later commands"),
        ("$EDITOR $(orch config path)", ""),
    ],
)
def config() -> None:
    """Show and change settings, and where each value comes from.

    A flag overrides an environment variable (ORCH_SECTION_KEY), which overrides the task file, which overrides the
    configuration file, which overrides the default. As whom clouds are called, a project can set for all of its
    members (--project): that overrides all of these.
    """


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch config explain resources.infra", ""),
        ("ORCH_RESOURCES_INFRA=local:2 orch config explain resources.infra", "what a variable would change"),
        ("orch config explain gcp.project -o json", ""),
    ],
)
@click.argument("key")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def explain(key: str, output: str) -> None:
    """Show every value of KEY (a field of task files, such as limits.max_hours), the effective one first."""
    from orchestrator.task.config import KEYS_BY_NAME, load_config

    key = _key_name(key)
    layers = load_config(os.environ).explain(key)
    if output == "json":
        values = [
            {"value": layer.value, "source": str(layer.origin.source), "where": str(layer.origin)} for layer in layers
        ]
        write_stdout(json.dumps({"version": 1, "kind": "config", "key": key, "values": values}, indent=2))
        return
    known = KEYS_BY_NAME[key]
    write_stdout(f"{key}: {known.meaning}")
    rows = [
        ("effective" if index == 0 else "overridden", _format_value(layer.value), str(layer.origin))
        for index, layer in enumerate(layers)
    ]
    write_stdout(*(f"  {line}" for line in align_columns(rows)) if rows else ["  not set anywhere"])
    field = f", {known.task_path} in a task file" if known.task_path else ""
    write_stdout(f"  set it with: {known.variable}{field}, [{known.section}] {known.name} in the configuration")


@click.command(
    "list",
    cls=OrchCommand,
    examples=[
        ("orch config list", ""),
        ("orch config list -o json", ""),
        ("orch config list --project vision", "what holds for every member of a project"),
    ],
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@_project_option
def list_(output: str, project: str | None) -> None:
    """List all keys with their effective value and where it is set; with --project, what a project sets."""
    from orchestrator.task.config import KEYS, load_config

    if project is not None:
        _list_project(project, output)
        return
    settings = load_config(os.environ)
    if output == "json":
        keys = [_key_json(key.full_name, key.meaning, settings.explain(key.full_name)) for key in KEYS]
        write_stdout(json.dumps({"version": 1, "kind": "config-list", "keys": keys}, indent=2))
        return
    rows = [("KEY", "VALUE", "FROM", "MEANING")]
    for key in KEYS:
        layers = settings.explain(key.full_name)
        value, origin = (_format_value(layers[0].value), str(layers[0].origin)) if layers else ("-", "")
        rows.append((key.full_name, value, origin, key.meaning))
    write_stdout(*draw_table(rows, sys.stdout))


@click.command(
    "set",
    cls=OrchCommand,
    examples=[
        ("orch config set aws.instance_profile orch-host", ""),
        ("orch config set aws.subnets subnet-1,subnet-2", "a list, with commas"),
        ("orch config set resources.use_spot true", ""),
        ("orch config set aws.role_arn ARN --project vision", "for every member of a project; see docs/security.md"),
    ],
)
@click.argument("key")
@click.argument("value")
@_project_option
def set_(key: str, value: str, project: str | None) -> None:
    """Write KEY (a field of task files, such as limits.max_hours) into the configuration file.

    Comments and all other keys stay. With --project it is recorded in the store, and holds for every member of the
    project. Through a service, owners of every project can do that.
    """
    from orchestrator.task.config import parse_setting

    name = _key_name(key)
    if project is not None:
        with open_team() as team:
            team.set_setting(project, name, value)
        write_stdout(f"{name} = {value} is set for project '{project}': for machines that are made from now on")
        return
    file = store_setting(name, value)
    write_stdout(f"{name} = {_format_value(parse_setting(name, value))} is set in {file}")


def _list_project(project: str, output: str) -> None:
    with open_team() as team:
        found = team.list_settings(project)
    if output == "json":
        write_stdout(json.dumps(found, indent=2))
        return
    rows = [(one["key"], one["value"] or "-", one["where"] or "", one["meaning"]) for one in found["keys"]]
    write_stdout(*draw_table([("KEY", "VALUE", "FROM", "MEANING"), *rows], sys.stdout))
    if not any(one["value"] for one in found["keys"]):
        write_stderr(f"note: nothing is set for a project '{project}'")


def store_setting(name: str, value: str) -> Path:
    """Write a key into the configuration file, and return the file. Raises UserError."""
    from orchestrator.task.config_edit import set_config_value

    file, _ = _rewrite(lambda text, path: set_config_value(text, path, name, value))
    return file


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch config unset resources.use_spot", "the default applies again"),
        ("orch config unset aws.profile", ""),
        ("orch config unset aws.role_arn --project vision", ""),
    ],
)
@click.argument("key")
@_project_option
def unset(key: str, project: str | None) -> None:
    """Remove KEY (a field of task files, such as limits.max_hours) from the configuration file.

    Comments and all other keys stay.
    """
    from orchestrator.task.config_edit import unset_config_value

    name = _key_name(key)
    if project is not None:
        with open_team() as team:
            team.remove_setting(project, name)
        write_stdout(f"{name} is no longer set for project '{project}'")
        return
    file, changed = _rewrite(lambda text, path: unset_config_value(text, path, name))
    write_stdout(f"{name} is {'no longer' if changed else 'not'} set in {file}")


def _rewrite(change: Callable[[str, str], str]) -> tuple[Path, bool]:
    """Replace the configuration file by its changed text, atomically; return its path and whether it changed."""
    from orchestrator.paths import config_path
    from orchestrator.private_files import make_private_folder, write_whole

    file = config_path(os.environ)
    try:
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        new = change(text, str(file))
        if new != text:
            make_private_folder(file.parent)
            write_whole(file.resolve(), new)
    except (OSError, UnicodeError) as error:
        raise UserError(f"{file} cannot be written", str(error), f"ls -l {quote(str(file.parent))}") from error
    return file, new != text


def _key_name(key: str) -> str:
    """Return the key of a field of a task file: config.gcp.project is gcp.project here, the others are the same."""
    return key.removeprefix("config.")


@click.command(cls=OrchCommand, examples=[("orch config path", ""), ("cat $(orch config path)", "")])
def path() -> None:
    """Print the path of the configuration file, whether it exists or not."""
    from orchestrator.paths import config_path

    write_stdout(str(config_path(os.environ)))


def _key_json(key: str, meaning: str, layers: Sequence[SourcedValue]) -> dict[str, object]:
    effective = layers[0] if layers else None
    return {
        "key": key,
        "value": effective.value if effective is not None else None,
        "where": str(effective.origin) if effective is not None else None,
        "meaning": meaning,
    }


def _format_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(map(str, cast("tuple[object, ...]", value))) if isinstance(value, tuple) else str(value)
