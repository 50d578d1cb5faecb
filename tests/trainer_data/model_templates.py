"""Templates with the constructs of the ten families of open models that are used most, written for these tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

_FOLDER = Path(__file__).parent / "templates"
TEMPLATES: Mapping[str, str] = MappingProxyType(
    {path.stem: path.read_text(encoding="utf-8") for path in sorted(_FOLDER.glob("*.jinja"))}
)
