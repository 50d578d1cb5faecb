"""The real gcloud's own parser: does it take this command line? Nothing is sent, nothing is run."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from support.gcloud import find_gcloud

_DRIVER = """
import json, os, sys
sdk = sys.argv[1]
sys.path[:0] = [f"{sdk}/lib", f"{sdk}/lib/third_party"]
os.environ.setdefault("CLOUDSDK_ROOT_DIR", sdk)
import gcloud
gcloud.reorder_sys_path(sys.path)
from googlecloudsdk import gcloud_main
parser = gcloud_main.CreateCLI([]).top_element._parser
refused = []
for words in json.load(sys.stdin):
    try:
        parser.parse_args(words, raise_error=True)
    except BaseException as error:
        refused.append([words, f"{type(error).__name__}: {error}"])
sys.__stdout__.write(json.dumps(refused))
"""


def refused(commands: Sequence[Sequence[str]], folder: Path) -> list[tuple[list[str], str]]:
    """Those that it does not take, each with its words. commands: without the word gcloud."""
    where = find_gcloud()
    assert where is not None
    sdk, python = where
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "CLOUDSDK_CONFIG": str(folder / "config")}
    env |= {"CLOUDSDK_CORE_DISABLE_PROMPTS": "1", "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true"}
    done = subprocess.run(
        [python, "-S", "-c", _DRIVER, sdk],
        input=json.dumps([list(words) for words in commands]),
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [(list(words), why) for words, why in json.loads(done.stdout)]
