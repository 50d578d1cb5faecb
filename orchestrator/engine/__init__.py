"""The loop that acts: observe, decide, do one thing, record, again. prepare.py makes the wish, drive.py fulfils it."""
