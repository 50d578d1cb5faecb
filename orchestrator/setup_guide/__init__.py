"""From a few answers to a task file: the questions, what is proposed for each, and the text that is written.

`orch init` asks them on a terminal, and the service's page `/new` in a form. Both use these functions alone.
"""
