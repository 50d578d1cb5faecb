"""The cases, the real gcloud and the recording server of tests/google serve here too."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "google"))
