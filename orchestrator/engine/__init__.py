"""Commands on clusters, from their preparation to their result.

A command is first prepared (`preparation/`): everything is read, rendered and checked, and nothing is sent. The same
value is then previewed, or fulfilled by the loop (`loop/`): observe, decide, act, record, and again.

Packages, from the bottom up; `lint-imports` checks that imports only go down this list:
    services.py, narrator.py: what the engine needs from outside, and what it reports while it works.
    state/: what this installation keeps: stored records, the lease of a cluster, SSH keys, copies of files.
    preparation/: from a task or a command's arguments to a `PreparedCommand`.
    training/: questions to the bundled trainer: memory and time, ahead-of-time compilation.
    loop/: the loop that fulfils a prepared command.
    operations/: commands that need no loop: reap, logs, refresh, profile, download a checkpoint.
    unattended/: jobs and pipelines that run without a terminal.
    rehearsal/: a task on simulated machines, with faults, and the report of it.
"""
