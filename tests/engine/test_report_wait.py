"""What a request that blocks for long reports meanwhile, and that the report ends with it."""

from __future__ import annotations

import io
import time

import pytest

from orchestrator.cli.drawing.narrator import TerminalNarrator
from orchestrator.engine.operations.report_wait import report_wait


def test_a_request_that_blocks_says_what_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    with TerminalNarrator(io.TextIOWrapper(io.BytesIO())) as narrator:
        with report_wait(narrator, "asking aws"):
            time.sleep(3.5)
        time.sleep(1.5)
        with pytest.raises(ValueError, match="refused"), report_wait(narrator, "asking gcp"):
            raise ValueError("refused")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("asking aws, "), lines
