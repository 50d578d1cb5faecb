"""`python -m trainer check key=value ...`: checks that the chosen device computes correctly."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace

from trainer.environment import read_run, read_world
from trainer.errors import Exit
from trainer.options import parse_config

SUMMARY = "compute two steps on the chosen device, and compare with a computation without any framework"


def run(words: Sequence[str]) -> int:
    """Check the device with the settings of a run; `--json` prints JSON.

    Raises:
        DeviceError: The device computes wrongly.
    """
    # The model is tiny: more threads only wait for each other, and long where hosts share a computer. The libraries of
    # numpy and torch read this when they are loaded.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from trainer.smoke_test.device_check import check_device

    config = parse_config([word for word in words if word != "--json"])
    config = replace(config, threads=config.threads or 1)
    world = read_world(os.environ)
    checked = check_device(config, read_run(os.environ), world)
    if "--json" in words:
        sys.stdout.write(json.dumps(checked.as_json()) + "\n")
    elif world.is_first:
        sys.stdout.write(f"ok: {checked.where}, {config.products}: loss {checked.loss:.4f} as it should be\n")
    return Exit.OK
