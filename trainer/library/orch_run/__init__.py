"""`import orch_run`: complete checkpoints, heartbeats and stop requests for your own training program.

docs/own-programs.md explains it. The implementation is trainer/program; it is loaded under another name than `trainer`,
because a program may have its own module or package of that name.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainer.program import STOPPED, ConfigError, Run, StorageError, TakenOver, init

__all__ = ["STOPPED", "ConfigError", "Run", "StorageError", "TakenOver", "init"]

_ALIAS = "_orch_trainer"


def _find_trainer() -> Path:
    """Return the folder of the package: around this one in a checkout and on hosts, beside it in an installed wheel."""
    here = Path(__file__).resolve().parent
    for folder in (here.parents[1], here.parent / "trainer"):
        if (folder / "program" / "__init__.py").is_file():
            return folder
    raise ImportError(f"orch_run: the package of the trainer is not beside {here}: install orch again")


def _load() -> None:
    if _ALIAS not in sys.modules:
        root = _find_trainer()
        spec = importlib.util.spec_from_file_location(
            _ALIAS, root / "__init__.py", submodule_search_locations=[str(root)]
        )
        if spec is None or spec.loader is None:
            raise ImportError(f"orch_run: {root} cannot be loaded")
        sys.modules[_ALIAS] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    program = importlib.import_module(f"{_ALIAS}.program")
    globals().update({name: getattr(program, name) for name in __all__})


_load()
