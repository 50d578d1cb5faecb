"""Amounts of money are formatted in one module, so that one value reads the same everywhere."""

from __future__ import annotations

import re
from pathlib import Path

import orchestrator
from orchestrator.formatting import (
    format_amount,
    format_amount_range,
    format_dollars,
    format_microdollars,
    format_price,
    format_rate,
    format_short_amount,
)

PACKAGE = Path(orchestrator.__file__).parent
LITERAL = re.compile(r"\$\{[^{}]*(?<!:):,?\.\d?\w?\}|\$\{:,?\.\d\w\}")  # such as ${price:,.2f}, not ${NAME:-value}


def test_amounts() -> None:
    assert format_amount(1234.5) == "$1,234.50" and format_amount(0.0004, 3) == "$0.000"
    assert format_amount_range(1, 2) == "$1.00 to $2.00" and format_amount_range(7, 7, 0) == "$7"
    assert format_short_amount(99.5) == "$99.50" and format_short_amount(1999.5) == "$2,000"
    assert format_rate(0) == "$0.00/h" and format_price(0) == "free" and format_price(None) == "price not known"
    assert format_dollars(0.0123) == "$0.0123" and format_dollars(12.3) == "$12.30"
    assert format_microdollars(-1_500_000) == "-$1.50" and format_microdollars(1) == "under $0.01"


def test_no_other_module_formats_dollars() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}: {match[0]}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for match in LITERAL.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []
