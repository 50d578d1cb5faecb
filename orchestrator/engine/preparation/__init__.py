"""From a task or a command's arguments to a `PreparedCommand`; nothing is sent.

`commands.py` has one function per command. `candidates.py` lists where machines can be requested, `trees.py` reads what
is sent, `host_inputs.py` renders what the hosts run, `limits.py` has what bounds a task, `preflight.py` and
`cluster_match.py` refuse what cannot work, and `notes.py` and `bucket_notes.py` say what the plan should mention.
"""
