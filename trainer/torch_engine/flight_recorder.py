"""NCCL's flight recorder: torch keeps the last collectives of each rank, and writes them when one times out or fails.

The file is beside the stacks of the watchdog: nccl-trace-RANK in the job's folder. `torchfrtrace FOLDER -p nccl-trace-`
compares the ranks' files. Written after PyTorch's documentation and torch 2.13; not run on GPUs here.
"""

from __future__ import annotations

from collections.abc import MutableMapping

_EVENTS = "2000"
_SIZES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")  # the second name is that of older torch
_FILES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")


def enable_flight_recorder(environ: MutableMapping[str, str]) -> None:
    """Turn the recorder on for process groups of NCCL that are created later; what the user has set stays.

    Args:
        environ: Of this process. Without ORCH_JOB_DIR the file is where torch writes it, below /tmp.
    """
    if not any(name in environ for name in _SIZES):
        environ[_SIZES[0]] = _EVENTS
    environ.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "1")
    folder = environ.get("ORCH_JOB_DIR", "")
    if folder and not any(name in environ for name in _FILES):
        environ[_FILES[0]] = f"{folder}/nccl-trace-"  # torch appends the rank
