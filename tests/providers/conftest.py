from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from provider_support import LocalWorld, clear, make_world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LocalWorld]:
    world = make_world(tmp_path)
    yield world
    clear(world)
