"""Record which files of the checkout each Python process opens: its modules, and the data that it reads.

scripts/bootstrap makes .venv import this in every process whose environment has PYTEST_OPENED_FILES: the path of the
log, to which a line is added for each file at its first opening. An audit hook also sees processes that end by os._exit
or by a signal, and a forked process, for it keeps its parent's hook and log.
"""

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + "/"  # noqa: PTH100, PTH120  # pathlib takes 10 ms
LOG = os.environ["PYTEST_OPENED_FILES"]
SEEN: set[str] = set()


def record(event: str, arguments: tuple[object, ...]) -> None:
    """Add the path of an opened file of the checkout to the log."""
    if event != "open" or not isinstance(path := arguments[0], str):
        return
    path = path if path.startswith("/") else os.path.abspath(path)  # noqa: PTH100  # as above
    if path in SEEN or not path.startswith(ROOT) or path.startswith(ROOT + "."):
        return
    SEEN.add(path)
    if not os.path.isfile(path):  # noqa: PTH113  # a name that is relative to another folder than this process's
        return
    name = path.removeprefix(ROOT)
    if "/__pycache__/" in name:
        folder, _, file = name.rpartition("/__pycache__/")
        name = f"{folder}/{file.partition('.')[0]}.py"
    try:
        log = os.open(LOG, os.O_WRONLY | os.O_APPEND)
        os.write(log, f"{name}\n".encode())
        os.close(log)
    except OSError:
        pass  # the run has ended, or the process is another user's


sys.addaudithook(record)
