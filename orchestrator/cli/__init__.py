"""The command line: parses arguments, calls the engine and draws the results.

It takes no decisions and imports no cloud library. Each command is a separate module that loads only when it is
called; app.py has the table of commands.
"""
