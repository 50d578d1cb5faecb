"""What the driver "local" declares of itself."""

from __future__ import annotations

from orchestrator.drivers import Driver

DRIVER = Driver(name="local", owned=True)
