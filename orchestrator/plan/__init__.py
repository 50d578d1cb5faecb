"""What to do next, as a pure function over values: actions, decide(), the imagined world, the preview.

Data flow: Desired + Observed + Facts -> decide() -> Action | Wait | Done | GiveUp. No module here does I/O.
"""
