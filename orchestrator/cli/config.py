"""`orch config`: the settings, and where each value comes from."""

from __future__ import annotations

import json
import os
from typing import cast

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.human import columns
from orchestrator.cli.lazy import LazyGroup, Section, Verb
from orchestrator.cli.terminal import put
from orchestrator.errors import UserError

_HERE = "orchestrator.cli.config"


@click.group(
    cls=LazyGroup,
    sections=[
        Section(
            "Commands",
            (
                Verb("explain", f"{_HERE}:explain", "Every value of one key, the one that holds first."),
                Verb("list", f"{_HERE}:list_", "All keys with the value that holds."),
                Verb("set", f"{_HERE}:set_", "Write one key into the configuration file."),
                Verb("path", f"{_HERE}:path", "Where the configuration file is looked for."),
            ),
        )
    ],
    examples=[
        ("orch config explain defaults.bucket", "which value holds, and where it was written"),
        ("orch config list", "all keys"),
        ("orch config set defaults.bucket s3://mine/runs", "for all that comes"),
        ("$EDITOR $(orch config path)", ""),
    ],
)
def config() -> None:
    """Settings, and where each value comes from.

    A flag wins over an environment variable (ORCH_SECTION_KEY), that over the task file, that over the configuration
    file, that over what is built in.
    """


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch config explain defaults.infra", ""),
        ("ORCH_DEFAULTS_INFRA=local:2 orch config explain defaults.infra", "what a variable would change"),
        ("orch config explain gcp.project -o json", ""),
    ],
)
@click.argument("key")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def explain(key: str, output: str) -> None:
    """Every value of KEY (section.name), the one that holds first."""
    from orchestrator.spec.config import BY_NAME, load_config

    layers = load_config(os.environ).explain(key)
    if output == "json":
        values = [
            {"value": layer.value, "source": str(layer.origin.source), "where": str(layer.origin)} for layer in layers
        ]
        put(json.dumps({"version": 1, "kind": "config", "key": key, "values": values}, indent=2))
        return
    known = BY_NAME[key]
    put(f"{key}: {known.meaning}")
    rows = [
        ("holds" if index == 0 else "hidden", _shown(layer.value), str(layer.origin))
        for index, layer in enumerate(layers)
    ]
    put(*(f"  {line}" for line in columns(rows)) if rows else ["  not set anywhere"])
    field = f", {known.task_path} in a task file" if known.task_path else ""
    put(f"  set it with: {known.variable}{field}, [{known.section}] {known.name} in the configuration")


@click.command(
    "list",
    cls=OrchCommand,
    examples=[("orch config list", ""), ("orch config list | grep spot", "")],
)
def list_() -> None:
    """All keys with the value that holds and where it was written."""
    from orchestrator.spec.config import KEYS, load_config

    settings = load_config(os.environ)
    rows = [("KEY", "VALUE", "FROM", "MEANING")]
    for key in KEYS:
        layers = settings.explain(key.full)
        value, origin = (_shown(layers[0].value), str(layers[0].origin)) if layers else ("-", "")
        rows.append((key.full, value, origin, key.meaning))
    put(*columns(rows))


@click.command(
    "set",
    cls=OrchCommand,
    examples=[
        ("orch config set aws.instance_profile orch-host", ""),
        ("orch config set aws.subnets subnet-1,subnet-2", "a list, with commas"),
        ("orch config set defaults.use_spot true", ""),
    ],
)
@click.argument("key")
@click.argument("value")
def set_(key: str, value: str) -> None:
    """Write KEY (section.name) into the configuration file. Comments and all other keys stay."""
    from orchestrator.providers.files import write_whole
    from orchestrator.spec.config import config_path
    from orchestrator.spec.config_edit import with_value

    file = config_path(os.environ)
    try:
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        new = with_value(text, str(file), key, value)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file.resolve(), new)
    except (OSError, UnicodeError) as error:
        raise UserError(f"{file} cannot be written", str(error)) from error
    put(f"{key} is set in {file}")


@click.command(cls=OrchCommand, examples=[("orch config path", ""), ("cat $(orch config path)", "")])
def path() -> None:
    """Where the configuration file is looked for, whether it exists or not."""
    from orchestrator.spec.config import config_path

    put(str(config_path(os.environ)))


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(map(str, cast("tuple[object, ...]", value))) if isinstance(value, tuple) else str(value)
