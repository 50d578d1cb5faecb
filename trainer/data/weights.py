"""The sources of a run's data and their weights, as `data` and `data.weights` give them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm

from trainer.config import DataConfig
from trainer.errors import ConfigError

_MOST_SOURCES = 1 << 15  # trainer/mixture.py has the source in the high bits of a position
_LARGEST_SUM = 1 << 31  # trainer/mixture.py multiplies two of them in 64 bits
_NEXT_ADDRESS = re.compile(r",\s*(gs|s3|hf|file)://")
_WEIGHT = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?")


@dataclass(frozen=True, slots=True)
class WeightedSource:
    """A source, and how many of every `sum of all weights` rows are from it."""

    source: str
    weight: int


def list_sources(config: DataConfig) -> tuple[WeightedSource, ...]:
    """Return the sources of the data: without `data.weights` one, of weight 1.

    Raises:
        ConfigError: The weights are wrong, or missing, or not as many as the sources.
    """
    if not config.weights and _NEXT_ADDRESS.search(config.source):
        raise ConfigError(
            f"data={config.source} names several sources: give the share of each, as data.weights=0.7,0.3"
        )
    if not config.weights:
        return (WeightedSource(config.source, 1),)
    # Commas divide sources only beside weights: a path may contain one.
    sources = [source.strip() for source in config.source.split(",")]
    weights = _parse_weights(config.weights)
    if len(sources) != len(weights) or len(sources) < 2:
        raise ConfigError(
            f"data.weights={config.weights} has {len(weights)} weights, data={config.source} has {len(sources)} "
            "sources: give data=A,B and data.weights=0.7,0.3, without commas inside a source"
        )
    twice = next((source for place, source in enumerate(sources) if source in sources[:place]), None)
    if twice is not None:
        raise ConfigError(
            f"data={config.source} names {twice} twice: give each source once, with the sum of its weights"
        )
    if "" in sources or len(sources) > _MOST_SOURCES:
        raise ConfigError(f"data={config.source}: a source between two commas is empty, or there are too many")
    return tuple(WeightedSource(source, weight) for source, weight in zip(sources, weights, strict=True))


def _parse_weights(text: str) -> tuple[int, ...]:
    """Return the weights as the smallest whole numbers with their ratios: 7 and 3 for `0.7,0.3`.

    Raises:
        ConfigError: One is not a number above 0, or has too many digits.
    """
    words = [word.strip() for word in text.split(",")]
    if not all(_WEIGHT.fullmatch(word) for word in words):
        raise ConfigError(f"data.weights={text}: not numbers with commas between them, such as 0.7,0.3")
    found = [Fraction(word) for word in words]
    if not min(found):
        raise ConfigError(f"data.weights={text}: each must be above 0; leave out a source that is not to be read")
    common = lcm(*(weight.denominator for weight in found))
    whole = [int(weight * common) for weight in found]
    whole = [weight // gcd(*whole) for weight in whole]
    if sum(whole) > _LARGEST_SUM:
        raise ConfigError(f"data.weights={text}: too many digits; six after the point are enough")
    return tuple(whole)
