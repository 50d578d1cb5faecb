"""The trainer's errors: each is reported in one line, and each kind has its own exit status."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit statuses of `python -m trainer`. 6, 10 and 75 mean the same as in the orchestrator."""

    OK = 0
    FAILURE = 1  # any other failure, a lost peer, a loss that is not a number
    CONFIG = 2  # the command line or the environment is wrong; nothing was done
    DATA = 3  # the corpus is missing, too small, or not the one the checkpoint was made with
    DEVICE = 4  # the device is missing or does not work
    TAKEN_OVER = 6  # another start of the run has taken it over: do not start this one again
    STORAGE = 10  # a checkpoint could not be written or read
    NO_STORAGE = 16  # the bucket is missing, denied or full before anything was saved: do not start this one again
    STOPPED = 75  # stopped by SIGTERM with a checkpoint saved: run again to resume
    INTERRUPTED = 130
    TERMINATED = 143  # SIGTERM with nothing saved, or a second SIGTERM


class TrainerError(Exception):
    """A failure with a message for people. It is printed as `error[code]: message` without a traceback."""

    code = "failure"
    exit_status: Exit = Exit.FAILURE


class ConfigError(TrainerError):
    """The settings or the environment are wrong."""

    code = "config"
    exit_status = Exit.CONFIG


class DataError(TrainerError):
    """The corpus is missing, too small, or not the one that the checkpoint was made with."""

    code = "data"
    exit_status = Exit.DATA


class DeviceError(TrainerError):
    """The device is missing or does not work."""

    code = "device"
    exit_status = Exit.DEVICE


class StorageError(TrainerError):
    """A checkpoint or an object cannot be written or read."""

    code = "storage"
    exit_status = Exit.STORAGE


class MissingFolderError(StorageError):
    """A local place does not exist."""


LASTING = "does not pass by itself"
"""In the message of each LastingStorageError: ranks send each other messages, and know it by that."""


class LastingStorageError(StorageError):
    """The bucket cannot be used until someone has changed something; before the first save it ends the run."""

    exit_status = Exit.NO_STORAGE

    def __init__(self, message: str) -> None:
        super().__init__(message if LASTING in message else f"{message} (it {LASTING})")


class AccessDenied(LastingStorageError):
    """The bucket refuses the right to read or write, which may also have been given a moment ago."""


class DiskFull(LastingStorageError):
    """The disk of a local place has no room left."""


class TakenOver(StorageError):
    """Another start of the run has claimed it: this one writes nothing more, and must not be started again."""

    code = "taken-over"
    exit_status = Exit.TAKEN_OVER


class PeerError(TrainerError):
    """Another rank cannot be reached, or left in the middle of a step."""

    code = "peer"
