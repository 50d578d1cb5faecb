"""The cause and the next step in what a failed script printed."""

from __future__ import annotations

import re

_SEPARATOR = " | "  # between lines that are shown as one
_NEXT = "next: "
_MOST = 3  # error lines that are shown
_LONGEST = 200  # characters of one
_READ = 20_000  # bytes at the end of the output
# The same words as in templates/remote/job-status.sh, which reads the logs of jobs on their hosts.
LOOKS_LIKE_ERROR = (
    "error|exception|fatal|fail|panic|abort|killed|denied|refused|cannot|no space|not found|no such|out of memory|^e: "
)
_LOOKS_LIKE_ERROR = re.compile(LOOKS_LIKE_ERROR, re.IGNORECASE)
# Who speaks in orch's own scripts (templates/). A next step that another program printed is not ours to repeat as one.
_OURS = re.compile(r"(?:copy|limits|mount|run|scratch|setup|workdir): ")


def find_error_lines(output: bytes) -> str:
    """Return the last lines that look like errors, and messages of orch's scripts with next steps; "" for none."""
    found: list[str] = []
    before = ""
    for raw in re.split(r"[\r\n]", output[-_READ:].decode("utf-8", "replace")):
        line = "".join(c for c in raw if c.isprintable()).strip()
        if line.startswith(_NEXT) and before:
            found.append(before)
        if line.startswith(_NEXT) or (_LOOKS_LIKE_ERROR.search(line) and not line.startswith("Traceback")):
            found.append(line)
        before = line or before
    kept = [line[:_LONGEST] for line in dict.fromkeys(found)]
    return _SEPARATOR.join(kept[-_MOST:])


def split_next_step(lines: str) -> tuple[str, str]:
    """Return the cause, and the next step of the last message of orch's scripts; "" where there is none.

    Args:
        lines: Error lines as `find_error_lines` and job-status.sh join them.
    """
    causes: list[str] = []
    step = ""
    for line in lines.split(_SEPARATOR):
        if line.startswith(_NEXT) and causes and _OURS.match(causes[-1]):
            step = line.removeprefix(_NEXT)
        else:
            causes.append(line)
    return _SEPARATOR.join(causes), step
