"""The program on a host that writes further keys: see templates/remote/admit-program.sh. Light."""

from __future__ import annotations

import shlex

from orchestrator.remote.scripts import shell_source

FOLDER = "/etc/orch/authorized_keys"  # a file for each account; sshd wants it and all above it closed to others


def make_admit_program(folder: str = FOLDER) -> str:
    """Return the text of the program that writes the keys for one account below `folder`."""
    return f"#!/bin/sh\norch_folder={shlex.quote(folder)}\n{shell_source('admit-program.sh')}"
