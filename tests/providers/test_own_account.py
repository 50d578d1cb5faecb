"""The user's entry in the database of users: a lack of open files is not an unknown user."""

from __future__ import annotations

import subprocess
import sys

import pytest

from orchestrator.open_files import read_own_account

_WITHOUT_FILES = """
import os, resource, sys
from orchestrator.open_files import explain_exhaustion, read_own_account
from orchestrator.providers.local.sshd import account
resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1, 4096))
for read in (read_own_account, account):
    try:
        read()
    except OSError as error:
        found = explain_exhaustion(error)
        print(found.code if found is not None else error)
"""


def test_a_lack_of_open_files_is_not_an_unknown_user() -> None:
    if sys.platform != "linux":
        pytest.skip("other systems ask a daemon")
    done = subprocess.run([sys.executable, "-c", _WITHOUT_FILES], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["open-files", "open-files"], done.stderr
    assert read_own_account().pw_dir
