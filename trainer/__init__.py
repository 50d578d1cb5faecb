"""The training program that runs on every host: `python -m trainer key=value ...`.

It knows its hosts only through environment variables and imports nothing of the orchestrator.
"""
