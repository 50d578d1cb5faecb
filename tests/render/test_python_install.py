"""A rented host whose image has no finished Python: it downloads one, from a server on the loopback."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import sys
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from render_support import program, run_script, write_wheel
from test_tool_install import Quiet

from orchestrator.catalog.installs import HostTool, ToolFile, host_tool
from orchestrator.render.scripts import SetupInputs, render_setup

REAL = os.path.realpath(sys.executable)
OLD = "#!/bin/sh\nexit 1\n"
# This interpreter, as it would be if it were the candidate of Ubuntu 22.04.
CANDIDATE = f"""#!/bin/sh
exec {REAL} -c 'import collections, sys
kind = collections.namedtuple("kind", "major minor micro releaselevel serial")
sys.version_info = kind(3, 11, 0, "candidate", 1)
exec(sys.argv[1])' "$2"
"""


class Host:
    """A rented host, and the server that has a Python for it."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.home, self.served = folder, folder / "home", folder / "served"
        self.url = f"http://127.0.0.1:{port}/file"
        self.right = make_archive()
        (self.served / "file").write_bytes(self.right)
        for name in ("python3", "python3.12", "python3.11", "python3.13"):
            program(folder / "bin" / name, OLD)
        (folder / "index").mkdir()
        write_wheel(folder / "index", "tiny", "1.0")

    def set_up(self, *, url: str = "", machine: str = "", **env: str) -> tuple[int, str, str]:
        """Return the status and the two outputs of the rendered script."""
        file = ToolFile(machine or os.uname().machine, url or self.url, hashlib.sha256(self.right).hexdigest())
        inputs = SetupInputs(
            backend="cpu", packages=("tiny==1.0",), user_setup="python -c 'import tiny'", may_install=True
        )
        text = render_setup(inputs, interpreter=HostTool("python", "3.12.99", (file,)))
        assert text is not None
        index = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.folder / "index"), "PIP_NO_CACHE_DIR": "1"}
        done = run_script(text, self.home, {**index, **env}, path=str(self.folder / "bin"))
        return done.returncode, done.stdout, done.stderr

    @property
    def installed(self) -> list[str]:
        """Everything that is left below ~/.orch/python, also of a failed install."""
        return sorted(path.name for path in self.home.glob(".orch/python/*"))

    @property
    def requests(self) -> list[str]:
        record = self.served / "requests"
        return record.read_text().splitlines() if record.exists() else []


def make_archive() -> bytes:
    """Return an archive of the form of python-build-standalone; its interpreter starts this one."""
    made = io.BytesIO()
    text = f'#!/bin/sh\nexec {REAL} "$@"\n'.encode()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        member = tarfile.TarInfo("python/bin/python3")
        member.mode, member.size = 0o755, len(text)
        tar.addfile(member, io.BytesIO(text))
    return made.getvalue()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    (tmp_path / "served").mkdir()
    handler = partial(Quiet, directory=str(tmp_path / "served"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Host(tmp_path, server.server_port)
        server.shutdown()


@pytest.mark.parametrize("found", [OLD, CANDIDATE], ids=["older", "release candidate"])
def test_a_host_without_a_finished_python_downloads_it_once(host: Host, found: str) -> None:
    program(host.folder / "bin" / "python3.11", found)
    lines = "setup: installing tiny==1.0\nsetup: installing Python 3.12.99\n"
    assert host.set_up() == (0, lines, "")
    shutil.rmtree(host.home / ".orch/venv")
    status, out, _ = host.set_up()
    assert (status, out) == (0, "setup: installing tiny==1.0\n")
    assert (host.installed, len(host.requests)) == (["3.12.99"], 1)


def test_a_finished_python_of_the_image_is_used(host: Host) -> None:
    program(host.folder / "bin" / "python3", f'#!/bin/sh\nexec {REAL} "$@"\n')
    assert host.set_up() == (0, "setup: installing tiny==1.0\n", "")
    assert (host.installed, host.requests) == ([], [])


def test_another_file_is_removed_and_nothing_is_installed(host: Host) -> None:
    (host.served / "file").write_bytes(host.right + b"\0")
    status, _, err = host.set_up()
    assert status == 1
    assert f"Python 3.12.99 was not installed: the file at {host.url} is not the one that orch knows" in err
    assert "or set ORCH_PYTHON in envs to an interpreter" in err
    assert host.installed == []


def test_a_host_without_the_internet_takes_the_copy_that_envs_name(host: Host) -> None:
    status, _, err = host.set_up(url="http://127.0.0.1:9/file")
    assert status == 1
    assert "Python 3.12.99 was not installed: http://127.0.0.1:9/file does not answer" in err
    assert "ORCH_PYTHON_URL in envs" in err
    status, _, err = host.set_up(url="http://127.0.0.1:9/file", ORCH_PYTHON_URL=host.url)
    assert (status, err, host.installed) == (0, "", ["3.12.99"])


@pytest.mark.parametrize(("scheme", "command"), [("gs", "gcloud"), ("s3", "aws")])
def test_the_copy_may_lie_in_a_bucket(host: Host, scheme: str, command: str) -> None:
    """The vendor's command is played by a program that copies what the next-to-last word names."""
    copy = f'#!/bin/sh\necho "$@" >{host.folder}/words\nfor last; do :; done\ncp {host.served}/file "$last"\n'
    program(host.folder / "bin" / command, copy)
    assert host.set_up(ORCH_PYTHON_URL=f"{scheme}://mine/python.tar.gz")[0] == 0
    assert (
        f"cp {'--quiet' if scheme == 'gs' else '--only-show-errors'} -- {scheme}://mine/"
        in (host.folder / "words").read_text()
    )
    assert host.installed == ["3.12.99"]


def test_a_machine_without_a_digest_downloads_nothing(host: Host) -> None:
    status, _, err = host.set_up(machine="riscv64")
    assert status == 1
    assert f"orch knows no SHA-256 of it for {os.uname().machine}" in err
    assert (host.installed, host.requests) == ([], [])


def test_the_catalogue_has_a_digest_for_every_machine_that_is_rented() -> None:
    tool = host_tool("python")
    assert {file.machine for file in tool.files} == {"x86_64", "aarch64"}
    for file in tool.files:
        assert len(bytes.fromhex(file.sha256)) == 32
        assert file.url.startswith("https://") and tool.version.replace("+", "%2B") in file.url
