"""The command line: reads arguments, calls the engine, draws what it says. No decisions and no cloud library here.

Each verb is a module of its own, loaded only when it is called; app.py has the table of them.
"""
