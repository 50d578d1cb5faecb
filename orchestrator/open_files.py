"""Open files of this process: its limit is raised, and hosts that need more are refused before anything is created."""

from __future__ import annotations

import errno
import os
import pwd
import resource
import sys
from collections.abc import Iterator
from typing import TypeGuard

from orchestrator.errors import OpenFilesError, UserError
from orchestrator.messages import count_noun

# Counted in /proc/PID/fd every 10 ms, November 2026: a launch on 2, 8 and 32 hosts of `infra: local` has 13, 23 and 71
# open at most, two a host. Programs that carry connections take more.
OF_HOST = (
    4  # its connection, or the program that carries it and the file of its errors; its kept log; a file beside that
)
OF_COMMAND = 64  # the store, standard streams, libraries, connections to clouds, jump hosts, programs that start
# systemd's hard limit is 524,288 (NEWS of systemd 240, 2018); macOS refuses a soft limit above OPEN_MAX, which is
# 10,240 (setrlimit(2) of macOS 14, COMPATIBILITY).
_MOST = 65_536 if sys.platform == "linux" else 10_240


def raise_open_files_limit() -> int:
    """Raise the soft limit of open files as far as the hard one lets us, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    possible = _find_possible(soft, hard)
    if soft == resource.RLIM_INFINITY or possible <= soft:
        return possible
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (possible, hard))
    except (ValueError, OSError):
        return soft
    return possible


def find_open_files_limit() -> int:
    """Return the limit that a command on hosts gets: see `raise_open_files_limit`."""
    return _find_possible(*resource.getrlimit(resource.RLIMIT_NOFILE))


def _find_possible(soft: int, hard: int) -> int:
    if soft == resource.RLIM_INFINITY:
        return sys.maxsize
    return max(soft, _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST))


def too_many_hosts_error(hosts: int) -> UserError | None:
    """Return an error for more hosts than one process of this computer can have connections to, or None."""
    needed, limit = OF_COMMAND + OF_HOST * hosts, find_open_files_limit()
    if needed <= limit:
        return None
    return UserError(
        f"{count_noun(hosts, 'host')} need {needed:,} open files, and a process on this computer may have {limit:,}",
        f"each host takes {OF_HOST}, orch itself {OF_COMMAND}; the hard limit (ulimit -Hn) is the most orch can get",
        describe_remedy(needed),
    )


def describe_remedy(needed: int) -> str:
    """Return how a person raises the hard limit.

    Sources: limits.conf(5) of Linux-PAM 1.6 (2024), LimitNOFILE= in systemd.exec(5) of systemd 256 (2024).
    """
    return (
        f"`* hard nofile {needed}` in /etc/security/limits.conf, and log in again\n"
        f"for a service of systemd: LimitNOFILE={needed} in its unit"
    )


def explain_exhaustion(error: BaseException) -> OpenFilesError | None:
    """Return the error to show where an exception, or what caused it, is a lack of open files; else None."""
    cause = next((one for one in _causes(error) if is_exhaustion(one)), None)
    if cause is None or isinstance(error, OpenFilesError):
        return None
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    whose = "this process" if cause.errno == errno.EMFILE else "this computer"
    return OpenFilesError(
        f"{whose} has no open file left",
        f"{cause.strerror}; the limit of this process is {limit:,}",
        f"use fewer hosts at a time, or raise the limit:\n{describe_remedy(2 * limit).splitlines()[0]}",
    )


def raise_exhaustion() -> None:
    """Raise OSError where no file can be opened: to be asked after an error that may hide its cause."""
    os.close(os.open(os.devnull, os.O_RDONLY))


def is_exhaustion(error: BaseException) -> TypeGuard[OSError]:
    """Return whether an exception is a lack of open files in this process or on this computer."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and what led to it."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def read_own_account() -> pwd.struct_passwd:
    """Return this user's entry in the database of users.

    The look-up opens a file, and Python reports every failure of it as an unknown user (pwd_getpwuid in pwdmodule.c,
    CPython 3.11): without an open file left the error is the lack of it.

    Raises:
        KeyError: The user has no entry.
        OSError: No file can be opened.
    """
    try:
        return pwd.getpwuid(os.getuid())
    except KeyError:
        raise_exhaustion()
        raise
