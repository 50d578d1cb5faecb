"""Simulated cloud in a folder: `cloud.json` and, unless it is the calm scenario, `scenario.toml`."""

from __future__ import annotations

import time
from pathlib import Path

from orchestrator.clock import Clock, RealClock
from orchestrator.errors import CloudError
from orchestrator.simulator.clock import ScaledClock
from orchestrator.simulator.durable import Durable
from orchestrator.simulator.files import exclusive, read_json, write_json
from orchestrator.simulator.scenario import Scenario
from orchestrator.simulator.scenario_file import named_scenario, read_scenario

SCENARIO_FILE = "scenario.toml"
CLOUD_FILE = "cloud.json"
DEFAULT = "calm"


def open_cloud(folder: Path) -> Durable:
    """Open the folder's cloud at its scenario's speed; nothing is written before the first call.

    Raises:
        OrchError: The folder or its scenario cannot be used.
    """
    scenario = folder_scenario(folder)
    return Durable(folder / CLOUD_FILE, scenario, _clock(folder, scenario))


def folder_scenario(folder: Path) -> Scenario:
    """Read the folder's scenario.

    Raises:
        UserError: The file is not a scenario.
    """
    path = folder / SCENARIO_FILE
    try:
        is_file = path.is_file()
    except OSError as error:
        raise CloudError(f"{path} cannot be read", str(error), f"ls -l {path}") from error
    return read_scenario(path) if is_file else named_scenario(DEFAULT)


def _clock(folder: Path, scenario: Scenario) -> Clock:
    """At speed 1 the real one. Otherwise all processes share the moment at which the rehearsal began."""
    if scenario.speed == 1.0:
        return RealClock()
    path = folder / "clock.json"
    with exclusive(path.with_suffix(".lock")):
        stored = read_json(path)
        if stored is None:
            stored = {"origin": time.time()}
            write_json(path, stored)
    return ScaledClock(scenario.speed, float(stored["origin"]))
