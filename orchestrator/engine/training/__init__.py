"""Questions to the bundled trainer, asked in a separate process.

`advice.py` asks for memory and time, `compilation.py` compiles the step for a TPU slice, `rank_rehearsal.py` builds all
ranks in one process, and `process.py` runs the trainer's commands.
"""
