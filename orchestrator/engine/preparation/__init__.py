"""From a task or a command's arguments to a `PreparedCommand`; nothing is sent.

`commands.py` has one function per command. `candidates.py` lists where machines can be requested, `host_inputs.py`
builds what the hosts get, `preflight.py` and `cluster_match.py` refuse what cannot work, and `notes.py` and
`bucket_notes.py` say what the plan should mention.
"""
