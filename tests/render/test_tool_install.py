"""Installing gcsfuse and Mountpoint: real downloads from a server on the loopback, which may serve another file."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import stat
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from render_support import RECORDER, program, recorded, run_script

from orchestrator.catalog.installs import HostTool, ToolFile, host_tool
from orchestrator.render.mounts import MountInputs, render_mount

# Both stand-ins mount by a line in the table of mounts; Mountpoint is asked for its version before it is installed.
MOUNTPOINT = """#!/bin/sh
[ "$1" != --version ] || exit ${NO_LIBFUSE:-0}
for target; do :; done
printf 'mountpoint-s3 %s fuse ro 0 0\\n' "$target" >>"$ORCH_PROC_MOUNTS"
"""
GCSFUSE = """#!/bin/sh
for target; do :; done
printf 'bucket %s fuse.gcsfuse rw 0 0\\n' "$target" >>"$ORCH_PROC_MOUNTS"
"""
CONTROL = "Package: gcsfuse\nVersion: 1\nArchitecture: all\nMaintainer: a test <test@localhost>\nDescription: a test\n"
PROGRAMS = (
    "bash sh mkdir ls id cat sed sha256sum cut flock timeout df tail mv rm env uname mktemp curl tr tar gzip dpkg-deb"
    " mountpoint stat ln sleep readlink"
)
KINDS = ("gcsfuse", "mount-s3")


def archive(kind: str, folder: Path) -> bytes:
    """Return what the vendor publishes: a package of Debian, or a tar file."""
    if kind == "gcsfuse":
        program(folder / "package/usr/bin/gcsfuse", GCSFUSE)
        (folder / "package/DEBIAN").mkdir(mode=0o755)
        (folder / "package/DEBIAN/control").write_text(CONTROL)
        words = ["dpkg-deb", "--build", "--root-owner-group", str(folder / "package"), str(folder / "built.deb")]
        subprocess.run(words, check=True, capture_output=True)
        return (folder / "built.deb").read_bytes()
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        member = tarfile.TarInfo("./bin/mount-s3")
        member.mode, member.size = 0o755, len(MOUNTPOINT)
        tar.addfile(member, io.BytesIO(MOUNTPOINT.encode()))
    return made.getvalue()


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, and writes the requests down."""

    def log_message(self, format: str, *args: object) -> None:
        with Path(self.directory, "requests").open("a") as record:
            record.write(f"{self.path}\n")


class Rented:
    """A rented host without the tool, and the server that has it."""

    def __init__(self, kind: str, folder: Path, port: int) -> None:
        self.kind, self.folder, self.home = kind, folder, folder / "home"
        self.bin, self.served = folder / "bin", folder / "served"
        self.right = archive(kind, folder)
        (self.served / "file").write_bytes(self.right)
        self.file = ToolFile(
            os.uname().machine, f"http://127.0.0.1:{port}/file", hashlib.sha256(self.right).hexdigest()
        )
        self.bin.mkdir()
        for name in PROGRAMS.split():
            (self.bin / name).symlink_to(shutil.which(name) or f"/usr/bin/{name}")
        for name in ("fusermount", "fusermount3", "apt-get"):
            program(self.bin / name, RECORDER)
        (folder / "mounts").touch()

    def mount(self, *, may_install: bool = True, file: ToolFile | None = None, **env: str) -> tuple[int, str]:
        """Return the status and the output of the rendered script."""
        scheme = "gs" if self.kind == "gcsfuse" else "s3"
        tool = HostTool(self.kind, "1.2.3", (file or self.file,))
        text = render_mount(MountInputs(f"{scheme}://bucket", "~/data"), may_install=may_install, tool=tool)
        env |= {
            "PATH": str(self.bin),
            "RECORD": str(self.folder / "record"),
            "ORCH_PROC_MOUNTS": str(self.folder / "mounts"),
        }
        done = run_script(text, self.home, env)
        return done.returncode, done.stdout + done.stderr

    @property
    def installed(self) -> list[str]:
        """Everything that is left below ~/.orch/tools, also of a failed install."""
        return sorted(path.name for path in self.home.glob(".orch/tools/*"))

    @property
    def apt(self) -> list[str]:
        record = self.folder / "record"
        return recorded(record) if record.exists() else []

    @property
    def requests(self) -> int:
        record = self.served / "requests"
        return len(record.read_text().splitlines()) if record.exists() else 0


@pytest.fixture(params=KINDS)
def rented(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rented]:
    if request.param == "gcsfuse" and shutil.which("dpkg-deb") is None:
        pytest.skip("a package of Debian cannot be made here")
    (tmp_path / "served").mkdir()
    handler = partial(Quiet, directory=str(tmp_path / "served"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Rented(request.param, tmp_path, server.server_port)
        server.shutdown()


def test_the_file_with_the_known_digest_is_installed_once_and_without_root(rented: Rented) -> None:
    status, out = rented.mount()
    assert (status, out) == (0, f"mount: installing {rented.kind} 1.2.3\n")
    assert rented.installed == [f"{rented.kind}-1.2.3"]
    assert rented.apt == []
    (rented.folder / "mounts").write_text("")
    assert rented.mount() == (0, "")
    assert rented.requests == 1


@pytest.mark.parametrize("how", ["changed", "longer", "empty"])
def test_another_file_is_removed_and_nothing_is_installed(rented: Rented, how: str) -> None:
    other = {
        "changed": rented.right[:-1] + bytes([rented.right[-1] ^ 1]),
        "longer": rented.right + b"\0",
        "empty": b"",
    }[how]
    (rented.served / "file").write_bytes(other)
    status, out = rented.mount(NO_LIBFUSE="1")
    assert status == 1
    assert f"{rented.kind} 1.2.3 was not installed: the file at {rented.file.url} is not the one that orch knows" in out
    assert f"SHA-256 {hashlib.sha256(other).hexdigest()}, expected {rented.file.sha256}" in out
    assert "next: " in out and "mode: COPY" in out
    assert (rented.installed, rented.apt) == ([], [])
    assert (rented.folder / "mounts").read_text() == ""


@pytest.mark.parametrize("occupied", ["file", "folder"])
def test_tool_that_cannot_be_moved_to_its_place_is_an_error_with_a_next_step(rented: Rented, occupied: str) -> None:
    place = rented.home / ".orch/tools" / f"{rented.kind}-1.2.3"
    place.parent.mkdir(parents=True)
    if occupied == "file":
        place.write_text("in the way")
    else:
        (place / "in the way").mkdir(parents=True)
    status, out = rented.mount()
    assert status == 1
    assert f"{rented.kind} 1.2.3 was not installed: {place} is no folder with it" in out
    assert f"next: on the host: rm -r {place}" in out
    assert rented.installed == [place.name]


def test_installed_tool_and_scripts_are_closed_to_other_users(rented: Rented) -> None:
    rented.home.mkdir()
    before = os.umask(0)
    try:
        assert rented.mount()[0] == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE((rented.home / ".orch").stat().st_mode) == 0o700


@pytest.mark.parametrize("unknown", [{"sha256": ""}, {"machine": "riscv64"}])
def test_without_a_digest_nothing_is_downloaded(rented: Rented, unknown: dict[str, str]) -> None:
    status, out = rented.mount(file=replace(rented.file, **unknown))
    assert status == 1
    assert f"was not installed: orch knows no SHA-256 of it for {os.uname().machine}" in out
    assert "take an image that has it, or write mode: COPY" in out
    assert (rented.installed, rented.apt, rented.requests) == ([], [], 0)


def test_missing_packages_of_the_distribution_come_from_apt(rented: Rented) -> None:
    for name in ("fusermount", "fusermount3"):
        (rented.bin / name).unlink()
    assert rented.mount(NO_LIBFUSE="1")[0] == 0
    expected = ["fuse3"] if rented.kind == "gcsfuse" else ["fuse", "libfuse2"]
    assert rented.apt[rented.apt.index("install") + 1 :] == expected
    program(rented.bin / "apt-get", "#!/bin/sh\necho 'E: no such package'\nexit 100\n")
    shutil.rmtree(rented.home)
    (rented.folder / "mounts").write_text("")
    status, out = rented.mount(NO_LIBFUSE="1")
    assert status == 1
    assert f"{rented.kind} needs the packages {' '.join(expected)}, which could not be installed" in out
    assert rented.installed == []


def test_a_server_that_does_not_answer_is_reported_with_the_network(rented: Rented) -> None:
    status, out = rented.mount(file=replace(rented.file, url="http://127.0.0.1:9/file"))
    assert status == 1
    assert "127.0.0.1:9/file does not answer" in out
    assert ("Cloud NAT" if rented.kind == "gcsfuse" else "gateway endpoint") in out
    assert (rented.installed, rented.apt) == ([], [])


def test_nothing_is_installed_on_a_machine_of_the_users_own(rented: Rented) -> None:
    status, out = rented.mount(may_install=False)
    assert status == 1
    assert f"this host has no {rented.kind}" in out
    assert (rented.installed, rented.apt, rented.requests) == ([], [], 0)


@pytest.mark.parametrize("name", KINDS)
def test_the_catalogue_has_a_digest_for_every_machine_that_is_rented(name: str) -> None:
    tool = host_tool(name)
    assert {file.machine for file in tool.files} == {"x86_64", "aarch64"}
    for file in tool.files:
        assert len(bytes.fromhex(file.sha256)) == 32
        assert file.url.startswith("https://") and tool.version in file.url
