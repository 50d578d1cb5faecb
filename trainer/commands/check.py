"""`python -m trainer check key=value ...`: does the chosen device compute, and compute right?"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

from trainer.environment import read_run, read_world
from trainer.errors import Exit
from trainer.options import parse
from trainer.smoking.checking import check

SUMMARY = "compute two steps on the chosen device, and compare with a computation without any framework"


def run(words: Sequence[str]) -> int:
    """Takes the settings of a run, and --json. Raises DeviceError when the device computes wrongly."""
    config = parse([word for word in words if word != "--json"])
    world = read_world(os.environ)
    checked = check(config, read_run(os.environ), world)
    if "--json" in words:
        sys.stdout.write(json.dumps(checked.as_json()) + "\n")
    elif world.is_first:
        sys.stdout.write(f"ok: {checked.where}, {config.dtype}: loss {checked.loss:.4f} as it should be\n")
    return Exit.OK
