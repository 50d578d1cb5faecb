"""Copy files and folders to hosts as `cp -r` would: names are kept and, unlike in remote.sync, nothing is deleted."""

from __future__ import annotations

import mmap
import tarfile
import tempfile
from collections.abc import Callable
from shlex import quote
from typing import IO

from orchestrator.errors import UserError
from orchestrator.hosts import HostAddress
from orchestrator.remote.deadlines import TRANSFER_SECONDS, WRITE_SECONDS, Stall, beat_while
from orchestrator.remote.fleet import Fleet, FleetResult
from orchestrator.remote.scripts import shell_source, shell_text_command
from orchestrator.remote.tree import Tree

_TOP = "content"  # the name of the file or folder inside the archive

# Arguments: the destination as typed, the source's name. Standard input: a tar archive whose one top entry is
# `content`. It is unpacked beside its destination, so that an incomplete stream changes nothing.
_SCRIPT = r"""
orch_find_path "$1"
path=$orch_path
case $path in
*/ | */. | */..) path=${path%/}/$2 ;;
*) [ ! -d "$path" ] || path=$path/$2 ;;
esac
mkdir -p -- "${path%/*}/" || exit 1
new=$(mktemp -d -- "${path%/*}/.orch-cp-XXXXXX") || exit 1
trap 'rm -rf -- "$new"' EXIT
tar -x -f - -C "$new" --no-same-owner || exit 1
if [ -d "$path" ] && [ -d "$new/content" ]; then
    cp -a -- "$new/content/." "$path/" || exit 1
else
    mv -f -T -- "$new/content" "$path" || exit 1
fi
"""


def upload_tree(
    fleet: Fleet, tree: Tree, name: str, destination: str, on_progress: Callable[[int, int], None]
) -> FleetResult:
    """Copy `tree` to `destination` on all hosts of `fleet`, and return one outcome for each.

    A destination that is a folder, or ends in /, takes the tree in under `name`. `on_progress` is called with the bytes
    that are done and the bytes in total, over all hosts.

    Raises:
        UserError: A file here cannot be read.
    """
    with tempfile.TemporaryFile() as file:
        _write_archive(file, tree)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as stream:
            done = [0]
            total = len(stream) * len(fleet.hosts)

            def sent(_host: HostAddress, count: int) -> None:
                done[0] += count  # a lost update between threads would only blur the progress line
                on_progress(done[0], total)

            command = shell_text_command(f"{shell_source('path.sh')}\n{_SCRIPT}", destination, name)
            deadline = Stall(TRANSFER_SECONDS, longest=WRITE_SECONDS)
            return fleet.run(beat_while(command), stdin=stream, on_sent=sent, timeout=deadline)


def _write_archive(file: IO[bytes], tree: Tree) -> None:
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        single = tree.is_file
        if not single:
            top = tarfile.TarInfo(_TOP)
            top.type, top.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(top)
        for entry in tree.files:
            path = tree.source(entry)
            try:
                archive.add(path, _TOP if single else f"{_TOP}/{entry.path}", recursive=False)
            except OSError as error:
                raise UserError(
                    f"cannot read {path}", error.strerror or str(error), f"ls -l {quote(str(path))}"
                ) from error
    file.flush()
