"""What the driver "simulated" declares of itself: the cloud of a rehearsal, which has anything that others have."""

from __future__ import annotations

from orchestrator.drivers import Driver

DRIVER = Driver(name="simulated", offered=False, state_folders=("simulated",))
