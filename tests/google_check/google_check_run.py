"""One run through everything that orch asks of Google, so that what it asks for can be compared with its role.

A new kind of slice is a line in RUNS; a new service is a function in STEPS.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import cast

from google_check_support import PROJECT, ZONE, Project

from orchestrator.catalog.tpu import find_slice
from orchestrator.providers.google.client import open_api
from orchestrator.providers.google.compute.api import ComputeApi
from orchestrator.providers.google.compute.provider import ComputeProvider
from orchestrator.providers.google.gated import Gated, Machines
from orchestrator.providers.google.provider import TpuProvider
from orchestrator.providers.google.session import open_session
from orchestrator.providers.protocol import Finishes, Provider
from orchestrator.remote.keys import make_host_key
from orchestrator.slices import Candidate, FlexStart, Market, OnDemand, SliceKeys, SliceSpec, SliceState, Spot
from orchestrator.values import Text

INSTALLATION = "inst-0123456789abcdef"
SECONDS = 600.0  # in which a simulated slice is made, or ended


def _candidate(
    accelerator: str = "v5litepod-8", market: Market | None = None, slices: int = 1, **details: str
) -> Candidate:
    tpu = find_slice(accelerator)
    assert tpu is not None
    return Candidate(
        provider="gcp",
        accelerator=tpu.name,
        hosts=tpu.hosts * slices,
        chips_per_host=tpu.chips_per_host,
        market=market or OnDemand(),
        region="us-west4",
        zone=ZONE,
        details=(("project", PROJECT), *details.items()),
    )


RUNS = {
    "a node": _candidate(),
    "a node of two hosts": _candidate("v5litepod-16"),
    "spot": _candidate(market=Spot()),
    "two slices": _candidate(slices=2),
}


COMPUTE_RUNS = tuple(
    _candidate(accelerator, market, api="compute")
    for accelerator, market in (("v6e-8", None), ("v6e-16", None), ("v6e-16", FlexStart(4.0)))
)


def slices(project: Project, folder: Path) -> None:
    """Create, look, stop and start where that can be, list, end: each kind of slice."""
    for index, candidate in enumerate(RUNS.values()):
        provider = TpuProvider(open_api(open_session()), folder / "google", project.clock.now)
        name = f"demo-{index}"
        provider.create(make_spec(name, candidate), make_keys(candidate.hosts, folder))
        until(project, provider, name, SliceState.READY)
        if index == 0:
            provider.stop(name)
            until(project, provider, name, SliceState.STOPPED)
            provider.start(name)
            until(project, provider, name, SliceState.READY)
        assert [one.name for one in provider.owned(INSTALLATION)] == [name]
        provider.end(name)
        until(project, provider, name, SliceState.ABSENT)


def elsewhere(project: Project, folder: Path) -> None:
    """A slice whose record is on another computer is found and ended, too."""
    provider = TpuProvider(open_api(open_session()), folder / "google", project.clock.now)
    provider.create(make_spec("moved", RUNS["a node"]), make_keys(1, folder))
    until(project, provider, "moved", SliceState.READY)
    shutil.rmtree(folder / "google")
    other = TpuProvider(open_api(open_session()), folder / "other", project.clock.now)
    other.end("moved")
    until(project, other, "moved", SliceState.ABSENT)


def early(project: Project, folder: Path) -> None:
    """A create that Google accepted and does not show: its operation is asked for."""
    provider = TpuProvider(open_api(open_session()), folder / "google", project.clock.now)
    provider.create(make_spec("short", RUNS["a node"]), make_keys(1, folder))
    until(project, provider, "short", SliceState.READY)
    api = open_api(open_session())
    api.delete_node(f"projects/{PROJECT}/locations/{ZONE}/nodes/short")
    until(project, provider, "short", SliceState.ABSENT)


def ways(project: Project, folder: Path) -> None:
    """Firewall rules: made, changed because the computer moved, listed, taken away."""
    session = open_session()
    inner = TpuProvider(open_api(session), folder / "ways", project.clock.now)
    gated = Gated(cast(Machines, inner), session, folder / "gates", project.clock.now)
    here, there = (_candidate(network="own", ssh_cidr=f"203.0.113.{last}/32") for last in (1, 2))
    for candidate in (here, there):
        gated.create(make_spec("way", candidate), make_keys(1, folder))
    until(project, gated, "way", SliceState.READY)
    gated.owned(INSTALLATION)
    gated.end("way")
    until(project, gated, "way", SliceState.ABSENT)


def instances(project: Project, folder: Path) -> None:
    """Compute Engine: one host that is stopped and started, a slice, one that starts when machines are free."""
    for index, candidate in enumerate(COMPUTE_RUNS):
        provider = ComputeProvider(ComputeApi(open_session()), folder / "compute", project.clock.now)
        name = f"instances-{index}"
        provider.create(make_spec(name, candidate), make_keys(candidate.hosts, folder))
        until(project, provider, name, SliceState.READY)
        if candidate.hosts == 1:
            assert provider.diagnose_hosts(name, "", [0]) == {0: ""}, "its serial console is empty"
            provider.stop(name)
            until(project, provider, name, SliceState.STOPPED)
            provider.start(name)
            until(project, provider, name, SliceState.READY)
        assert [one.name for one in provider.owned(INSTALLATION)] == [name]
        provider.end(name)
        project.clock.advance(60)
        provider.end(name)  # what is kept beside the machines goes when these are gone
        until(project, provider, name, SliceState.ABSENT)


def waiting(project: Project, folder: Path) -> None:
    """Operations that are not done when they are first shown are asked for, wherever they belong."""
    api = ComputeApi(open_session())
    for place in ("global", f"zones/{ZONE}", "regions/us-west4"):
        assert api.operation(f"projects/{PROJECT}/{place}/operations/not-there") is None


def taken_over(project: Project, folder: Path) -> None:
    """A node that is there gets other labels."""
    provider = TpuProvider(open_api(open_session()), folder / "google", project.clock.now)
    provider.create(make_spec("marked", RUNS["a node"]), make_keys(1, folder))
    until(project, provider, "marked", SliceState.READY)
    api = open_api(open_session())
    path = f"projects/{PROJECT}/locations/{ZONE}/nodes/marked"
    node = api.node(path)
    assert node is not None
    api.update(path, dict(node.labels), dict(node.metadata))
    project.clock.advance(60)
    provider.end("marked")
    until(project, provider, "marked", SliceState.ABSENT)


STEPS: tuple[Callable[[Project, Path], None], ...] = (slices, elsewhere, early, ways, instances, waiting, taken_over)


def make_spec(name: str, candidate: Candidate) -> SliceSpec:
    token = f"5f0c91aa7be24d10a7b0c3d2e1f0{name}"
    words = {"orch-installation": INSTALLATION, "orch-cluster": "demo", "orch-intent": token}
    labels = tuple((key, Text.of(value)) for key, value in words.items())
    return SliceSpec(cluster="demo", name=name, token=Text.of(token), candidate=candidate, labels=labels)


def make_keys(hosts: int, folder: Path) -> SliceKeys:
    pairs = [make_host_key() for _ in range(hosts)]
    return SliceKeys(
        user_public=pairs[0][1],
        identity_file=str(folder / "id"),
        known_hosts=str(folder / "known_hosts"),
        host_private=tuple(private for private, _ in pairs),
        host_public=tuple(public for _, public in pairs),
    )


def until(project: Project, provider: Provider, name: str, state: SliceState) -> None:
    end = project.clock.now() + SECONDS
    observe = provider.finish if isinstance(provider, Finishes) else provider.observe
    while (view := observe(name)).state is not state:
        assert project.clock.now() < end, view
        project.clock.advance(5)
