"""Our scripts in a root file system like that of an image just after boot: apt held, slow mirrors, no venv."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from render_support import TEMPLATES, write_wheel
from slow_mirrors import Mirrors, serve_mirrors, write_repository
from support.image_root import UBUNTU_22, UBUNTU_24, Image, Release, image_root, missing_for_images

from orchestrator.catalog.installs import HostTool, ToolFile
from orchestrator.providers.google.startup import entries, pack_keys, render_startup
from orchestrator.render.scripts import SetupInputs, render_setup

pytestmark = [pytest.mark.full]

PACKAGE = "orch-test-package"
HELD = 6.0  # seconds for which the first upgrade of the machine holds the lock of the lists
RELEASES = (UBUNTU_22, UBUNTU_24)


@pytest.fixture(params=RELEASES, ids=[one.version for one in RELEASES])
def release(request: pytest.FixtureRequest) -> Release:
    made: Release = request.param
    reason = missing_for_images(made)
    if reason:
        pytest.skip(reason)
    return made


@pytest.fixture
def mirrors(tmp_path: Path) -> Iterator[Mirrors]:
    (tmp_path / "served/apt").mkdir(parents=True)
    with serve_mirrors(tmp_path / "served") as serving:
        yield serving


@pytest.fixture
def image(tmp_path: Path, release: Release, mirrors: Mirrors) -> Iterator[Image]:
    """A machine with one mirror that works and one that is gone, as after the end of a vendor's repository."""
    write_repository(tmp_path / "served/apt", PACKAGE)
    sources = [f"deb [trusted=yes] {mirrors.url}/{name} ./" for name in ("gone", "apt")]
    with image_root(tmp_path, release, sources) as booted:
        yield booted


def apt_script() -> str:
    functions = "".join((TEMPLATES / "run" / name).read_text() for name in ("root.sh.j2", "apt.sh.j2"))
    return f"set -euo pipefail\n{functions}\norch_apt {PACKAGE}\ncat /usr/share/{PACKAGE}/there\n"


def hold_the_lists(image: Image, mirrors: Mirrors) -> subprocess.Popen[bytes]:
    """Start an apt-get update whose mirror hangs: like apt-daily, it holds the lock of the lists while it runs."""
    image.run(f"printf 'deb [trusted=yes] {mirrors.url}/hanging ./\\n' >/etc/apt/hanging.list")
    command = "apt-get -o Dir::Etc::SourceList=/etc/apt/hanging.list -o Acquire::Retries=0 update"
    mirrors.hangs = HELD
    daily = subprocess.Popen(
        image.inside("/bin/sh", "-c", command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until = time.monotonic() + 10
    while not any(path.startswith("/hanging") for path in mirrors.seen) and time.monotonic() < until:
        time.sleep(0.05)
    return daily


def test_packages_come_while_apt_daily_holds_its_lock_and_one_mirror_is_absent(image: Image, mirrors: Mirrors) -> None:
    daily = hold_the_lists(image, mirrors)
    began = time.monotonic()
    done = image.ssh("bash -s", apt_script())
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["yes"]), done.stdout + done.stderr
    assert done.stdout.startswith("waiting up to 10 min for the lock of apt-get")
    assert time.monotonic() - began > HELD / 2
    daily.wait(timeout=30)


def test_setup_brings_its_python_over_a_slow_network(
    tmp_path: Path, image: Image, mirrors: Mirrors, release: Release
) -> None:
    """22.04 has too old a Python, 24.04 has one without venv: both get the managed one, and downloads try again."""
    archive = python_archive()
    (tmp_path / "served/python.tar.gz").write_bytes(archive)
    index = tmp_path / "served/simple/tiny"
    index.mkdir(parents=True)
    write_wheel(index, "tiny", "1.0")
    wheel = next(index.iterdir()).name
    (index / "index.html").write_text(f'<a href="{wheel}">{wheel}</a>')
    mirrors.failing = {"/simple": 2, "/python": 1}
    file = ToolFile(os.uname().machine, f"{mirrors.url}/python.tar.gz", hashlib.sha256(archive).hexdigest())
    inputs = SetupInputs(
        backend="cpu",
        packages=("tiny==1.0",),
        user_setup="python -c 'import tiny; print(tiny.version)'",
        may_install=True,
    )
    text = render_setup(inputs, interpreter=HostTool("python", "3.11.99", (file,)))
    assert text is not None
    env = {"PIP_INDEX_URL": f"{mirrors.url}/simple", "PIP_NO_CACHE_DIR": "1"}
    done = image.ssh("bash -s", text, env=env)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["1.0"]), done.stdout + done.stderr
    assert "setup: installing Python 3.11.99" in done.stdout
    assert image.run("stat -c %U /home/ubuntu/.orch/venv").strip() == "ubuntu"
    before = mirrors.seen.copy()
    assert image.ssh("bash -s", text, env=env).returncode == 0
    assert mirrors.seen == before, "a second setup downloads nothing"


def test_start_up_script_of_google_puts_our_key_in_place_of_the_image_s(
    tmp_path: Path, image: Image, mirrors: Mirrors
) -> None:
    """sshd answers first with the key that the image made, and with ours when the script has run; metadata is slow."""
    ours = tmp_path / "ours"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(ours)], check=True)
    public = ours.with_suffix(".pub").read_text().split()[1]
    instance = tmp_path / "served/computeMetadata/v1/instance/attributes"
    instance.mkdir(parents=True)
    (instance / "agent-worker-number").write_text("0")
    for name, value in zip(entries(1), pack_keys((ours.read_text(),)), strict=True):
        (instance / name).write_text(value)
    mirrors.failing = {"/computeMetadata": 1}
    assert public not in keys_of(image)
    script = render_startup(1, 1)
    env = f"ORCH_METADATA_URL={mirrors.url}/computeMetadata/v1"
    command = image.inside("/usr/bin/env", env, "bash", "-s")
    done = subprocess.run(command, input=script, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    until = time.monotonic() + 10
    while public not in keys_of(image) and time.monotonic() < until:
        time.sleep(0.1)
    assert public in keys_of(image)
    assert image.ssh("id -un").stdout == "ubuntu\n"


def keys_of(image: Image) -> str:
    """Return what ssh-keyscan sees."""
    command = ["ssh-keyscan", "-t", "ed25519", "-p", str(image.port), "127.0.0.1"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def python_archive() -> bytes:
    """Return this computer's interpreter in the form of python-build-standalone, without what setup does not need."""
    base, version = Path(sys.base_prefix), f"python{sys.version_info.major}.{sys.version_info.minor}"
    skip = {"site-packages", "test", "idlelib", "lib2to3", "__pycache__", "tkinter", "turtledemo"}
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz", compresslevel=1) as tar:
        tar.add(base / "bin" / version, f"python/bin/{version}", recursive=False)
        link = tarfile.TarInfo("python/bin/python3")
        link.type, link.linkname = tarfile.SYMTYPE, version
        tar.addfile(link)
        library = base / "lib" / version
        tar.add(
            library, f"python/lib/{version}",
            filter=lambda one: None if {*Path(one.name).parts} & skip or "/config-" in one.name else one,
        )  # fmt: skip
    return made.getvalue()
