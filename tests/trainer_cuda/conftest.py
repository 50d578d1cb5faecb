"""Fixtures of the tests that use a GPU where there is one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cuda_cases import GPUS


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Restore torch's process-wide settings, which a run changes."""
    import torch

    if GPUS and not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    mode, threads = torch.get_deterministic_debug_mode(), torch.get_num_threads()
    yield
    torch.set_deterministic_debug_mode(mode)
    torch.set_num_threads(threads)
