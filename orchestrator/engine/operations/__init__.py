"""Commands that do not need the loop.

`sweep.py` finds and ends orphans, `logs.py` reads logs, `refresh.py` observes a cluster now, `devices.py` lists
accelerators, `profile.py` and `traces.py` record a profile, and `checkpoints.py` downloads one checkpoint.
"""
