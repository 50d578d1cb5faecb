"""The corpus of verbatim answers: its entries stand in orch_fronts/answers, where the fronts read them too."""

from orch_fronts.answers import FOLDER, Entry, load_answers

__all__ = ["FOLDER", "Entry", "load_corpus"]


def load_corpus() -> tuple[Entry, ...]:
    """Return all entries, in the order of the files."""
    return load_answers()
