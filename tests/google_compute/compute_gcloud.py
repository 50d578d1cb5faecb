"""The real gcloud of tests/google for many compute commands in one process.

Its flags that may be given once remember that they were given, over several commands: here they forget.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import google_gcloud
import pytest
from google_gcloud import Gcloud, gcloud_to

_LOADED = "from googlecloudsdk import gcloud_main\n"
_FORGETTING = """
from googlecloudsdk.calliope import arg_parsers
arg_parsers.StoreOnceAction.dest_is_populated = property(lambda self: False, lambda self, value: None)
"""


@contextmanager
def forgetting_gcloud(url: str, folder: Path, project: str, where: tuple[str, str]) -> Generator[Gcloud]:
    driver: str = google_gcloud._DRIVER
    assert _LOADED in driver
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(google_gcloud, "_DRIVER", driver.replace(_LOADED, _LOADED + _FORGETTING))
        with gcloud_to(url, folder, project, where) as process:
            yield process
