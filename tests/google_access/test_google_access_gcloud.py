"""Planned firewall requests against what the real gcloud sends for the command that stands beside them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from access_support import GCLOUD, PROJECT, Compute, compute_api, run_gcloud, spec
from support.served import Seen

from orchestrator.providers.google import access
from orchestrator.providers.google.access import CALLER
from orchestrator.providers.google.firewall import Firewall, with_caller
from orchestrator.slices import Request
from orchestrator.values import Text, fill_unknowns

CASES: dict[str, tuple[str, dict[str, str]]] = {
    "the usual": ("default", {}),
    "IAP": ("default", {"access": "iap"}),
    "two ranges, in a network of another project": (
        "projects/host-project/global/networks/net-1",
        {"ssh_cidr": "198.51.100.0/24,192.0.2.4"},
    ),
}
ADDRESS = "203.0.113.9"
pytestmark = pytest.mark.skipif(GCLOUD is None, reason="gcloud is not installed")


@pytest.fixture(scope="module")
def compute() -> Iterator[Compute]:
    with compute_api() as compute:
        yield compute


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """gcloud keeps what it found out at its first start."""
    return tmp_path_factory.mktemp("gcloud")


def command(request: Request) -> list[str]:
    return [fill_unknowns(word, {CALLER: ADDRESS}).reveal() for word in request.command][1:]


def sent(compute: Compute, method: str) -> Seen:
    (one,) = [one for one in compute.seen if one.method == method]
    compute.seen.clear()
    return one


def plain(body: dict[str, Any]) -> dict[str, Any]:
    """gcloud writes whole addresses where a part of one says the same (compute v1, Firewall.network)."""
    return body | {"network": re.sub(r"^https?://.*/compute/v1/", "", body["network"])} if "network" in body else body


@pytest.mark.parametrize("case", CASES)
def test_gcloud_sends_what_we_send(case: str, compute: Compute, folder: Path) -> None:
    network, details = CASES[case]
    of = replace(spec(**details), name=f"demo-{list(CASES).index(case)}")
    planned = access.create_requests(access.read(of.candidate), of, Text.of(PROJECT), network)
    assert planned
    ours = with_caller(planned, lambda: ADDRESS)
    for request, ready in zip(planned, ours, strict=True):
        done = run_gcloud(command(request), folder, compute.url)
        assert done.returncode == 0, done.stderr
        theirs = sent(compute, "POST")
        compute.rules.clear()
        Firewall(compute.session).ensure(ready)
        mine = sent(compute, "POST")
        assert (theirs.path, theirs.query) == (mine.path, mine.query) == (request.target, {})
        assert plain(theirs.body) == plain(mine.body)


def test_gcloud_deletes_what_we_delete(compute: Compute, folder: Path) -> None:
    of = spec()
    (made,) = with_caller(
        access.create_requests(access.read(of.candidate), of, Text.of(PROJECT), "default"), lambda: ADDRESS
    )
    (end,) = access.end_requests(access.read(of.candidate), of.name, Text.of(PROJECT), "default")
    wall = Firewall(compute.session)
    wall.ensure(made)
    compute.seen.clear()
    done = run_gcloud(command(end), folder, compute.url)
    assert done.returncode == 0, done.stderr
    theirs = sent(compute, "DELETE")
    wall.ensure(made)
    compute.seen.clear()
    assert wall.remove(end, of.token.reveal())
    mine = sent(compute, "DELETE")
    assert (theirs.path, theirs.query, theirs.body) == (mine.path, mine.query, mine.body) == (end.target, {}, {})
