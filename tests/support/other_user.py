"""A second user of this computer: functions that run without any right of ours."""

from __future__ import annotations

import encodings.idna  # noqa: F401  # sockets need it, and the other user cannot read its file
import json
import os
import traceback
from collections.abc import Callable
from typing import Any

import pytest

root_only = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")

_OTHER = 65534  # the usual number of an account that owns nothing


def as_other_user(work: Callable[[], Any]) -> Any:
    """Run `work` in a child process of another user; what it returns goes through JSON."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            said = {"result": _give_up_root(work)}
        except BaseException:
            said = {"failed": traceback.format_exc()}
        with os.fdopen(write, "w") as pipe:
            json.dump(said, pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = json.load(pipe)
    os.waitpid(child, 0)
    assert "failed" not in said, said["failed"]
    return said["result"]


def _give_up_root(work: Callable[[], Any]) -> Any:
    os.setgroups([])
    os.setresgid(_OTHER, _OTHER, _OTHER)
    os.setresuid(_OTHER, _OTHER, _OTHER)
    os.environ.clear()
    os.environ.update({"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"})
    return work()
