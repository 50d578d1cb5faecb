"""What the driver "hosts" declares of itself."""

from __future__ import annotations

from orchestrator.drivers import Driver

DRIVER = Driver(name="hosts", owned=True)
