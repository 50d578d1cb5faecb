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


class DiskFull(StorageError):
    """The disk of a local place has no room left."""


class TakenOver(StorageError):
    """Another start of the run has claimed it: this one writes nothing more, and must not be started again."""

    code = "taken-over"
    exit_status = Exit.TAKEN_OVER


class PeerError(TrainerError):
    """Another rank cannot be reached, or left in the middle of a step."""

    code = "peer"
