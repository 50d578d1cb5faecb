"""Decide what to do next, as a pure function over values, and preview it.

Data flow: Desired + Observed + Facts -> decide() -> Action | Wait | Done | GiveUp. No module here does I/O.
"""
