"""The loop that fulfils a prepared command.

`drive.py` is the loop: `observe.py` reads store, provider and hosts, `plan.decide` chooses the next action, `act.py`
performs it (`slice_actions.py`, `host_actions.py`), and `wait.py` waits. `queue.py` orders the jobs that share a
cluster, `finished_jobs.py` records the jobs that ended meanwhile, `follow.py` streams logs, and `results.py` stores
what a run leaves. All of them work on one `Session`.
"""
