"""The adapters of orch_run on two hosts: a host is lost, and the run ends as an unbroken one, to the last bit."""

from __future__ import annotations

from pathlib import Path

import pytest
from own_program_rehearsal import check_lost_host, orch_with_examples

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.mark.parametrize("name", ["hf-trainer", "lightning-loop", "accelerate-loop", "flax-orbax"])
def test_a_framework_resumes_after_a_lost_host(tmp_path: Path, name: str) -> None:
    check_lost_host(orch_with_examples(tmp_path), name, 33)
