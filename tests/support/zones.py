"""A scenario whose zones sell every type: for tests that are not about what the vendors' tables say."""

from orchestrator.simulator.scenario import ANY, Pool

EVERY_TYPE = (Pool(zone=ANY, accelerator=ANY, amount=1_000_000),)
