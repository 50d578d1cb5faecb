"""A cloud in a file: load, one step, save, all under an exclusive lock. Many processes meet the same cloud.

A client that is killed in the middle of a step leaves the cloud as it was before the step: for the client that is a
request which never arrived. A client killed after the save has made its request.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.clock import Clock
from orchestrator.errors import CloudError
from orchestrator.simulator.cloud import SimulatedCloud
from orchestrator.simulator.files import exclusive, read_json, write_json
from orchestrator.simulator.scenario import Scenario
from orchestrator.simulator.state import CloudState


class Durable:
    """Access to a cloud in a file, with a lock file beside it.

    The scenario is not stored: pass the same one each time.
    """

    def __init__(self, path: Path, scenario: Scenario, clock: Clock) -> None:
        self.path = path
        self.scenario = scenario
        self._clock = clock

    @property
    def clock(self) -> Clock:
        return self._clock

    @contextmanager
    def open(self) -> Generator[SimulatedCloud]:
        """Load the cloud, yield it for one step, and save it, also when the step raises: it may have acted.

        Raises:
            CloudError: The file cannot be read or written.
        """
        try:
            with exclusive(self.path.with_suffix(".lock")):
                cloud = SimulatedCloud(self.scenario, self._clock, self._load())
                try:
                    yield cloud
                except Exception:
                    write_json(self.path, cloud.state.to_json())
                    raise
                write_json(self.path, cloud.state.to_json())
        except OSError as error:
            raise CloudError(
                f"the simulated cloud in {self.path} cannot be used", str(error), f"check the folder {self.path.parent}"
            ) from error

    def _load(self) -> CloudState | None:
        """Load the stored state, or return None when there is none yet."""
        try:
            stored = read_json(self.path)
            return None if stored is None else CloudState.from_json(stored)
        except (ValueError, KeyError, TypeError) as error:
            raise CloudError(
                f"{self.path} is not a simulated cloud of this version",
                str(error),
                f"rm {self.path}   begins a new one",
            ) from error
