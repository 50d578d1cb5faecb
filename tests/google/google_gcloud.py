"""The real gcloud, as an oracle: many commands in one process, led to a server on this computer.

Its environment keeps it from every other server: an own configuration folder, a token that is no token, own addresses.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from support.gcloud import gcloud_settings

_DRIVER = """
import json, os, sys
sdk = sys.argv[1]
sys.path[:0] = [f"{sdk}/lib", f"{sdk}/lib/third_party"]
os.environ.setdefault("CLOUDSDK_ROOT_DIR", sdk)
import gcloud
gcloud.reorder_sys_path(sys.path)
from googlecloudsdk import gcloud_main
cli = gcloud_main.CreateCLI([])
real = os.dup(1)
os.dup2(2, 1)
for line in sys.stdin:
    try:
        cli.Execute(json.loads(line))
        result = ""
    except SystemExit as error:
        result = f"exit {error.code}" if error.code else ""
    except BaseException as error:
        result = f"{type(error).__name__}: {error}"
    os.write(real, (json.dumps(result) + "\\n").encode())
"""


class Gcloud:
    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process, self._log = process, log

    def run(self, words: Sequence[str]) -> None:
        """Run one command line, the word `gcloud` left away. Raises AssertionError with its words when it fails."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(list(words)) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, self._log.read_text()[-2000:]
        failed = json.loads(line)
        assert not failed, (failed, self._log.read_text()[-2000:])


@contextmanager
def gcloud_to(url: str, folder: Path, project: str, where: tuple[str, str]) -> Generator[Gcloud]:
    names = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")
    environment = {key: os.environ[key] for key in names if key in os.environ}
    environment |= gcloud_settings(folder, url) | {"CLOUDSDK_CORE_PROJECT": project}
    log = folder / "log"
    sdk, python = where
    with log.open("w") as errors:
        process = subprocess.Popen(
            [python, "-S", "-c", _DRIVER, sdk],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            yield Gcloud(process, log)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
