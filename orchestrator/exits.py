"""The exit statuses of `orch`: stable, documented in docs/exit-codes.md, and tested.

A program that ran on a host and failed passes its own status through (128 + n for signal n); every
failure of `orch` itself uses a value from this list.
"""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit statuses of orch itself."""

    OK = 0
    FAILURE = 1  # a fault of orch itself, or one that fits no other line
    USAGE = 2  # the command line or the task file is wrong; nothing was done
    NOT_FOUND = 3  # no such cluster, run, file or bucket
    PERMISSION = 4  # credentials are missing or refused
    CAPACITY = 5  # no capacity or no quota anywhere that was allowed
    CONFLICT = 6  # another orch, or another job, holds the cluster; or what is there forbids it
    SETUP_FAILED = 7  # a setup script or a copy failed on a host
    HOST_LOST = 8  # a host vanished or cannot be reached
    IDENTITY = 9  # a host presented another key than the pinned one, or no one confirmed a new one
    STORAGE = 10  # the bucket refused, is full, or holds no complete checkpoint
    OTHER_ACCOUNT = 11  # the machines belong to another account than these credentials; nothing was changed
    UNTRUSTED = 12  # what a bucket holds is not of this installation or not signed by its run, and no one agreed to it
    NOT_RESUMED = (
        13  # a rehearsal: the program began at its first step again after a loss, or was not preempted as requested
    )
    BUDGET = 14  # a budget does not allow the machines; nothing was rented
    NO_STORAGE = 16  # the program's bucket is missing, denied or full, and nothing was saved: no restart helps
    PREEMPTED = 75  # the program saved a checkpoint and requests a restart (EX_TEMPFAIL)
    TIMEOUT = 124
    INTERRUPTED = 130
