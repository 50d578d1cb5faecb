"""The library `orch_run` for the user's own training program: complete checkpoints, heartbeats, stop requests.

Its files have the form of the trainer's (trainer/checkpoint), so `orch pull`, `orch resume` and the service know them.

Own programs import trainer/library/orch_run, which loads the package `trainer` under another name: a program may have
its own module or package `trainer`. So this package, and every module of the trainer that it imports, uses relative
imports, the standard library, and Python 3.10; buckets also need obstore.
"""

from ..errors import ConfigError, StorageError, TakenOver
from .run import STOPPED, Run, init

__all__ = ["STOPPED", "ConfigError", "Run", "StorageError", "TakenOver", "init"]
