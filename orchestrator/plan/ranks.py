"""Format host ranks as ranges: `0-3,7`, never a list of a thousand numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orchestrator.hosts import HostOutcome
from orchestrator.messages import count_noun

MOST_SPANS = 12  # a scattered set is cut here and counted
MOST_NAMED = 3  # failed hosts of which each is named


def format_ranks(ranks: Iterable[int]) -> str:
    """Return ranks as ascending ranges: (0, 1, 2, 5) -> "0-2,5"; "" for no rank."""
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in find_rank_spans(ranks))


def format_hosts(ranks: Iterable[int]) -> str:
    """Return `host 3` or `hosts 0-3,7`; a set with too many gaps is cut and ends in its count."""
    listed = set(ranks)
    shown = format_ranks(listed)
    if shown.count(",") >= MOST_SPANS:
        shown = ",".join(shown.split(",")[:MOST_SPANS]) + f",… ({len(listed):,} in all)"
    return f"host {shown}" if shown.isdigit() else f"hosts {shown}"


def count_hosts(count: int) -> str:
    """Return `1 host` or `4 hosts`."""
    return count_noun(count, "host")


def describe_failed_hosts(outcomes: Sequence[HostOutcome]) -> str:
    """Return `head (exit 3)` for one host, or `1 of 4 hosts (worker3: exit 3)`; hosts that succeeded are not named."""
    failed = [outcome for outcome in outcomes if not outcome.ok]
    if len(outcomes) == 1 and failed:
        return f"{label_rank(failed[0].rank)} ({failed[0].verdict})"
    named = [f"{label_rank(outcome.rank)}: {outcome.verdict}" for outcome in failed[:MOST_NAMED]]
    if len(failed) > MOST_NAMED:
        named.append(f"{len(failed) - MOST_NAMED:,} more")
    return f"{len(failed):,} of {count_hosts(len(outcomes))} ({', '.join(named)})"


def label_rank(rank: int) -> str:
    """Return the name of a host in messages: `head` or `worker3`."""
    return "head" if rank == 0 else f"worker{rank}"


def find_rank_spans(ranks: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and the last rank of each run of consecutive ranks."""
    spans: list[tuple[int, int]] = []
    for rank in sorted(set(ranks)):
        if spans and rank == spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], rank)
        else:
            spans.append((rank, rank))
    return spans
