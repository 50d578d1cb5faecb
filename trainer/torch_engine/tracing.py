"""Recording with torch's profiler."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from torch.profiler import profile

from trainer.accelerators.base import NativeAccelerator


@contextmanager
def record_trace(folder: Path, rank: int, accelerator: NativeAccelerator) -> Generator[None]:
    """Write `torch-rank-N.trace.json.gz`, which Perfetto and chrome://tracing read."""
    folder.mkdir(parents=True, exist_ok=True)
    with profile(activities=accelerator.activities()) as recording:
        yield
        accelerator.synchronize()
    recording.export_chrome_trace(str(folder / f"torch-rank-{rank}.trace.json.gz"))
