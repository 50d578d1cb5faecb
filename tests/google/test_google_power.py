"""Which slices can be stopped and started."""

from __future__ import annotations

import pytest
from google_bench import NODE, Bench
from google_cases import candidate, spec

from orchestrator.errors import UserError
from orchestrator.providers.protocol import Stops
from orchestrator.slices import Reservation, SliceState, Spot


def test_only_a_single_plain_host_can_be_stopped_and_started(bench: Bench) -> None:
    provider = bench.ready(spec(candidate("v5litepod-8")))
    assert isinstance(provider, Stops)
    provider.stop("demo-1")
    assert provider.observe("demo-1").state is SliceState.STOPPING
    provider.stop("demo-1")
    bench.fake.nodes[NODE]["state"] = "STOPPED"
    provider.start("demo-1")
    assert provider.observe("demo-1").state is SliceState.STARTING
    assert (bench.fake.count(":stop"), bench.fake.count(":start")) == (1, 1)


@pytest.mark.parametrize("of", [candidate(), candidate("v5litepod-4", Spot()), candidate("v6e-8", Reservation("-"))])
def test_pods_and_queued_hosts_are_not_stopped_and_the_reason_is_said(of: object, bench: Bench) -> None:
    made = spec(of)  # type: ignore[arg-type]  # pytest hands it over untyped
    provider = bench.ready(made)
    for verb in (provider.stop, provider.start):
        with pytest.raises(UserError) as caught:
            verb("demo-1")
        assert caught.value.why
    assert bench.fake.count(":stop") + bench.fake.count(":start") == 0


def test_names_with_digits_of_any_size_are_no_pod(bench: Bench) -> None:
    """v5litepod-1 and v6e-4 are single hosts though they do not end in -8 (SkyPilot takes them for pods)."""
    for number, accelerator in enumerate(("v5litepod-1", "v5litepod-4", "v6e-1", "v6e-4")):
        name = f"one-{number}"
        provider = bench.ready(spec(candidate(accelerator), name, f"token-{number}"))
        provider.stop(name)
        assert provider.observe(name).state is SliceState.STOPPING
