"""What this installation keeps between commands.

`recorded.py` reads the store without a database library, `opening.py` opens it for writing, `lease.py` holds a cluster
while a command works on it, `names.py` makes names and identifiers, `keys.py` keeps SSH keys, and `kept_trees.py` keeps
copies of sent files.
"""
