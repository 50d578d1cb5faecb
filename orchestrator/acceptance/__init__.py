"""Acceptance on a real cloud: the steps, their costs, how they are run and reported (docs/acceptance.md)."""
