"""The command line in this process, with an orch of its own."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.__main__ import main


@dataclass(frozen=True)
class Said:
    status: int
    out: str
    err: str

    def findings(self) -> dict[str, dict[str, Any]]:
        """Of `-o json`, by the name of the check."""
        (provider,) = json.loads(self.out)["providers"]
        return {one["check"]: one for one in provider["findings"]}


@pytest.fixture
def orch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    for name in list(os.environ):
        if name.startswith(("ORCH_", "GOOGLE_", "CLOUDSDK_", "XDG_", "AWS_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ORCH_HOME", str(tmp_path / "orch"))
    monkeypatch.setenv("NO_GCE_CHECK", "true")  # google-auth would look for a machine of Google's
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")  # and boto3 for one of Amazon's

    def run(*words: str) -> Said:
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
        with redirect_stdout(out), redirect_stderr(err):
            status = main(words)
        texts = [stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]  # BytesIO
        return Said(status, *texts)

    return run
