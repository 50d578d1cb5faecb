"""Signals as a terminal would have them: a runner in the background hands down an ignored Ctrl-C."""

from __future__ import annotations

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
