"""The pretend account of all these tests; the command line in this process, with an orch of its own."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aws_check_support import REGION, Account, pretend_account

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


Orch = Callable[..., Said]


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    with pretend_account(tmp_path_factory.mktemp("state")) as account:
        yield account


@pytest.fixture
def account(whole: Account) -> Account:
    whole.reset()
    return whole


@pytest.fixture
def orch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Orch:
    for name in list(os.environ):
        if name.startswith(("ORCH_", "AWS_", "BOTO_", "GOOGLE_", "CLOUDSDK_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ORCH_HOME", str(tmp_path / "orch"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")  # boto3 would look for a machine of Amazon's

    def run(*words: str) -> Said:
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
        with redirect_stdout(out), redirect_stderr(err):
            status = main(words)
        texts = [stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]  # BytesIO
        return Said(status, *texts)

    return run


@pytest.fixture
def led(account: Account, orch: Orch, monkeypatch: pytest.MonkeyPatch) -> Orch:
    """The command line, led to the pretend account."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", account.server.url)
    monkeypatch.setenv("AWS_REGION", REGION)
    return orch
