"""`python -m trainer network`: a real all-reduce over gloo between processes, and its floor."""

from __future__ import annotations

from trainer_ranks import Launcher

from trainer.all_reduce import AllReduceRate
from trainer.commands.network import describe
from trainer.errors import Exit


def test_two_ranks_measure_their_all_reduce(launch: Launcher) -> None:
    network = {"ORCH_NETWORK_GBPS": "100", "ORCH_NETWORK_EXPECTED": "9"}
    ranks = launch(2, before="network", environment=network).ok()
    line = next(line for line in ranks.text(0).splitlines() if line.startswith("network: "))
    assert line.startswith("network: all-reduce of 4 MiB over 2 ranks: ") and "GB/s (gloo)" in line
    assert "of one host's 100 Gbit/s" in line and line.endswith("published for two such machines: 9 GB/s")
    assert "network:" not in ranks.text(1)


def test_a_rate_below_the_floor_ends_every_rank(launch: Launcher) -> None:
    ranks = launch(2, before="network", environment={"ORCH_NETWORK_FLOOR": "100000"})
    assert ranks.wait() == [Exit.DEVICE, Exit.DEVICE], ranks.text()
    assert "is below ORCH_NETWORK_FLOOR=100000" in ranks.text(0)


def test_one_rank_has_nothing_to_measure(launch: Launcher) -> None:
    assert "one rank, nothing to measure" in launch(1, before="network").ok().text()


def test_a_floor_that_is_no_number_is_refused(launch: Launcher) -> None:
    ranks = launch(1, before="network", environment={"ORCH_NETWORK_FLOOR": "fast"})
    assert ranks.wait() == [Exit.CONFIG] and "ORCH_NETWORK_FLOOR=fast is not a number" in ranks.text()


def test_rate_in_words() -> None:
    rate = AllReduceRate(device="cuda", backend="nccl", ranks=16, mebibytes=64, gigabytes_per_second=209.04)
    assert describe(rate, {"ORCH_NETWORK_GBPS": "3200", "ORCH_NETWORK_EXPECTED": "209"}) == (
        "network: all-reduce of 64 MiB over 16 ranks: 209.0 GB/s (nccl); 52% of one host's 3,200 Gbit/s; "
        "published for two such machines: 209 GB/s"
    )
