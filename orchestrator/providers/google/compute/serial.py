"""What the serial console of an instance shows when it does not come up: its last lines that look like errors. Pure.

instances.getSerialPortOutput of compute v1 (discovery document of 2026-11-06): port 1 is the console; a negative start
means so many of the last bytes. TPU VMs of the Cloud TPU API are no instances of the project and have no such method
(its v2 discovery document of 2026-10-01).
"""

from __future__ import annotations

import re

LAST_BYTES = 16_384
_LINES = 3
_ERROR = re.compile(
    r"error|fail|fatal|panic|cannot|could not|unable|denied|timed out|no space|not found|traceback|out of memory",
    re.IGNORECASE,
)
_HARMLESS = re.compile(r"errors=remount-ro|0 failed|fail2ban|failsafe", re.IGNORECASE)
_STAMP = re.compile(r"^(?:\[\s*\d+\.\d+\]\s*|\w{3} +\d+ [\d:]{8} \S+ )")  # of the kernel, and of syslog with the host
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")


def describe(contents: str) -> str:
    """Return the last lines that look like errors, else the very last line; "" for an empty console."""
    lines = [_STAMP.sub("", _CONTROL.sub("", line)).strip() for line in contents.splitlines()]
    lines = [line for line in lines if line]
    wrong = list(dict.fromkeys(line for line in lines if _ERROR.search(line) and not _HARMLESS.search(line)))
    shown = wrong[-_LINES:] or lines[-1:]
    return f"serial console: {' | '.join(shown)}" if shown else ""
