"""Jobs and pipelines that run without a terminal.

`handover.py` puts a job on record for the unattended engine and starts it, `engine.py` is that engine, `secrets.py`
checks that it has the job's secrets, and `pipeline.py` runs several tasks one after another, attended or not.
"""
