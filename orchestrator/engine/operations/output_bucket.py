"""Copies of output from the bucket of a run, where the hosts are absent and no process of this computer followed them.

They have the form of those that an engine keeps: what was cut out of the middle is a hole again.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

from orchestrator.engine.operations.output_source import find_attempt_folder
from orchestrator.engine.state.following import note_followed
from orchestrator.engine.state.kept_log import LogLimits, describe_missing, read_cut
from orchestrator.errors import StorageError
from orchestrator.private_files import make_private_folder
from orchestrator.storage.bucket import Bucket
from orchestrator.store.records import JobRecord

_NAME = re.compile(r"(\d{1,6})\.(log|cut)")


def download_output(job: JobRecord, bucket: Bucket) -> bool:
    """Download what a bucket has of the output of a job's last attempt, completely or not at all.

    Returns:
        Whether it has any.

    Raises:
        StorageError: It cannot be read, or what it has is larger than an engine keeps.
    """
    folder = find_attempt_folder(job)
    found = [
        info
        for info in bucket.list_dir(f"{job.run_id}/logs/{folder.name}/").objects
        if _NAME.fullmatch(info.path.rpartition("/")[2])
    ]
    most = LogLimits().attempt_bytes
    if sum(info.size for info in found) > 2 * most:  # many hosts share it, and each may have a little more
        what = f"{bucket.uri_of(job.run_id)} has more output than orch keeps of an attempt"
        raise StorageError(what, "", f"orch storage ls {bucket.uri_of(job.run_id)}/logs/")
    if not found:
        return False
    make_private_folder(folder.parent)
    received = Path(tempfile.mkdtemp(prefix="from-bucket-", dir=folder.parent))
    try:
        for info in found:
            bucket.download_file(info.path, received / info.path.rpartition("/")[2])
        for log in received.glob("*.log"):
            _restore_hole(log)
        note_followed(received, complete=True)
        if not folder.exists():
            received.rename(folder)
    finally:
        shutil.rmtree(received, ignore_errors=True)
    return True


def _restore_hole(log: Path) -> None:
    """Put what follows the line about missing bytes to where it was in the file on the host."""
    cut = read_cut(log)
    if cut is None:
        return
    line = describe_missing(cut.end - cut.begin)
    with log.open("r+b") as file:
        file.seek(cut.begin)
        if file.read(len(line)) != line:
            log.with_suffix(".cut").unlink()  # it belongs to other content
            return
        rest = log.with_suffix(".rest")
        with rest.open("w+b") as kept:
            shutil.copyfileobj(file, kept)
            kept.seek(0)
            os.ftruncate(file.fileno(), cut.begin)
            os.ftruncate(file.fileno(), cut.end)
            file.seek(cut.end)
            shutil.copyfileobj(kept, file)
        rest.unlink()
