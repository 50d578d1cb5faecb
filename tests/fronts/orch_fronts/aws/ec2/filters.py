"""Filters and pages of the describing calls.

Source: "List and filter using the CLI and API" (EC2 User Guide, read November 2026): values of a filter are joined by
OR, filters by AND; `*` is any characters, `?` is one, a backslash makes them plain; case matters; at most 200 values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from orch_fronts.aws.calls import AwsRefusal
from orch_fronts.aws.ec2.visit import Visit
from orch_fronts.aws.ec2.words import wrong_value

MOST_VALUES = 200
_Item = TypeVar("_Item")
Facts = Callable[[_Item], Mapping[str, Sequence[str]]]
"""What an item has under each filter's name."""


def chosen(visit: Visit, items: Sequence[_Item], facts: Facts[_Item], names: frozenset[str]) -> list[_Item]:
    """The items that all filters fit. names: of filters beside tag:*. Raises AwsRefusal."""
    filters = {str(one["Name"]): [str(value) for value in one.get("Values", ())]
               for one in visit.params.get("Filters", ())}  # fmt: skip
    if sum(map(len, filters.values())) > MOST_VALUES:
        raise AwsRefusal("FilterLimitExceeded", f"The maximum number of filter values is {MOST_VALUES}")
    for name, values in filters.items():
        if not name.startswith("tag:") and name not in names:
            raise wrong_value(f"The filter '{name}' is invalid")
        if not values:
            raise wrong_value(f"The filter '{name}' has no values")
    return [item for item in items if _fits(facts(item), filters)] if filters else list(items)


def tag_facts(tags: Mapping[str, str]) -> dict[str, Sequence[str]]:
    facts: dict[str, Sequence[str]] = {f"tag:{key}": [value] for key, value in tags.items()}
    return facts | {"tag-key": list(tags), "tag-value": list(tags.values())}


def page(visit: Visit, items: Sequence[_Item]) -> tuple[list[_Item], dict[str, str]]:
    """The page that was asked for, and the rest of the answer: the token of the next one. Raises AwsRefusal."""
    start = _start(visit)
    size = page_size(visit)
    more = {"NextToken": str(start + size)} if start + size < len(items) else {}
    return list(items[start : start + size]), more


def page_size(visit: Visit) -> int:
    """Rule page_may_be_smaller_than_asked."""
    asked = int(visit.params.get("MaxResults", 1000))
    if not 1 <= asked <= 1000:
        raise wrong_value(f"Value ( {asked} ) for parameter maxResults is invalid. Expecting a value up to 1000.")
    return min(asked, visit.cloud.scenario.page)


def tag_list(tags: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def _start(visit: Visit) -> int:
    token = str(visit.params.get("NextToken") or "0")
    if not token.isdecimal():
        raise AwsRefusal("InvalidNextToken", f"The token '{token}' is invalid.")
    return int(token)


def _fits(facts: Mapping[str, Sequence[str]], filters: Mapping[str, Sequence[str]]) -> bool:
    return all(
        any(_pattern(value).fullmatch(found) for value in values for found in facts.get(name, ()))
        for name, values in filters.items()
    )


@cache
def _pattern(text: str) -> re.Pattern[str]:
    parts: list[str] = re.findall(r"\\.|.", text, re.DOTALL)
    return re.compile("".join(_WILD.get(one) or re.escape(one[-1]) for one in parts), re.DOTALL)


_WILD: Mapping[str, str] = {"*": ".*", "?": "."}
