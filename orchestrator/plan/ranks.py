"""Host ranks for people: `0-3,7`, never a list of a thousand numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

MOST_SPANS = 12  # a scattered set is cut here and counted


def rank_ranges(ranks: Iterable[int]) -> str:
    """Ranks in ascending order as ranges: (0, 1, 2, 5) -> "0-2,5". No rank -> ""."""
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans(ranks))


def host_words(ranks: Iterable[int]) -> str:
    """`host 3` or `hosts 0-3,7`; a set too scattered to read ends in its count."""
    listed = set(ranks)
    shown = rank_ranges(listed)
    if shown.count(",") >= MOST_SPANS:
        shown = ",".join(shown.split(",")[:MOST_SPANS]) + f",… ({len(listed):,} in all)"
    return f"host {shown}" if shown.isdigit() else f"hosts {shown}"


def spans(ranks: Iterable[int]) -> Iterator[tuple[int, int]]:
    """First and last rank of each run of neighbours."""
    first: int | None = None
    last = 0
    for rank in sorted(set(ranks)):
        if first is None:
            first = rank
        elif rank != last + 1:
            yield first, last
            first = rank
        last = rank
    if first is not None:
        yield first, last
