"""A large download from machines of a cloud is asked for, in the words and at the bound of one from a bucket."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from support.orch_process import Orch

from orchestrator.cli.app import app
from orchestrator.engine.operations.transfers import assess_host_download, is_large
from orchestrator.errors import NotFoundError, UserError
from orchestrator.slices import Candidate, OnDemand

SIZE = 300_000


def place(provider: str, region: str) -> Candidate:
    return Candidate(provider=provider, accelerator="a", hosts=1, chips_per_host=0, market=OnDemand(), region=region)


def test_a_download_is_priced_by_the_place_of_its_hosts() -> None:
    (found,) = assess_host_download("mine", place("aws", "us-west-2"), 200 << 30)
    assert str(found) == (
        "from 'mine' in us-west-2 to this computer: 200 GiB, about $18.00 ($0.09 per GiB, price of 2026-06-30)"
    )
    (other,) = assess_host_download("mine", place("gcp", "us-west4"), 100 << 30)
    assert other.dollars == pytest.approx(12.0)
    assert is_large([found]) and is_large([other])
    (small,) = assess_host_download("mine", place("aws", "us-west-2"), 2 << 30)
    assert not is_large([small]) and assess_host_download("mine", place("aws", "us-west-2"), 1 << 20) == ()
    assert is_large(assess_host_download("mine", place("aws", "us-west-2"), None)), "what is not known is asked for"
    assert assess_host_download("mine", place("local", ""), 200 << 30) == ()


@pytest.mark.timeout(200)
def test_a_large_copy_from_hosts_needs_consent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With bounds of a byte and a cent, and hosts of this computer in place of a cloud's."""
    orch = Orch(tmp_path)
    run = f"head -c {SIZE} /dev/zero >out"
    (tmp_path / "task.yaml").write_text(f"name: mine\nresources: {{infra: 'local:2'}}\nrun: {run}\n")
    orch.ok("launch", "task.yaml", "--yes")
    for name in ("ORCH_STORE", "ORCH_SERVER"):
        monkeypatch.delenv(name, raising=False)
    for name in ("ORCH_HOME", "HOME"):
        monkeypatch.setenv(name, orch.env[name])
    transfers = "orchestrator.engine.operations.transfers."
    monkeypatch.setattr(f"{transfers}list_services", lambda: {"gs": "local"})
    monkeypatch.setattr(f"{transfers}_NAMED_FROM", SIZE)
    monkeypatch.setattr(f"{transfers}CONSENT_FROM", 1e-9)
    here = tmp_path / "here"
    copy = ["cp", "mine:out", f"{here}/"]
    try:
        with pytest.raises(UserError, match=r"transfer from 'mine' in  to this computer: 586 KiB, about \$0\.00") as no:
            CliRunner().invoke(app, copy, catch_exceptions=False)
        assert no.value.next_step == "add --yes to agree" and not here.exists()
        done = CliRunner().invoke(app, [*copy, "--yes"], catch_exceptions=False)
        assert done.exit_code == 0 and "transfer from 'mine'" in done.stderr
        assert {path.stat().st_size for path in here.glob("*/out")} == {SIZE} and len(list(here.iterdir())) == 2
        absent = CliRunner().invoke(app, ["cp", "mine:absent", f"{here}/"])
        assert isinstance(absent.exception, NotFoundError), "nothing to pay"
    finally:
        orch("down", "mine", "--yes")
