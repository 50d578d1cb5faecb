"""scripts/refresh_installs.py against a server on the loopback: what it writes, and what it refuses to write."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))

import refresh_installs  # noqa: E402  # a script, and no part of a package

DOWNLOADS = "https://github.com/GoogleCloudPlatform/gcsfuse/releases/download"
CONDAS = "https://github.com/conda-forge/miniforge/releases/download"
PYTHONS = "https://github.com/astral-sh/python-build-standalone/releases/download"
LOCK = """\
[[packages]]
name = "small"
version = "1.5"
marker = "python_version >= '3.12'"
wheels = [
    {url = "https://x/small-1.5-py3-none-any.whl", hashes = {sha256 = "0"}},
    {url = "https://x/small-1.5-cp312-cp312-win_amd64.whl", hashes = {sha256 = "1"}},
    {url = "https://x/small-1.5-cp312-cp312-musllinux_1_2_x86_64.whl", hashes = {sha256 = "2"}},
]
[[packages]]
name = "windows-only"
version = "1"
marker = "sys_platform == 'win32'"
wheels = []
"""
UV = """#!/bin/sh
while [ "$1" != --output-file ]; do shift; done
cat >"$2" <<'LOCK'
%s
LOCK
"""


class Vendors:
    """The servers of GitHub and Amazon, and a data file with older versions."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.served, self.port = folder, folder / "served", port
        self.file = folder / "installs.toml"
        shutil.copy(refresh_installs.DATA, self.file)
        self.fingerprint = self._make_key("amazon")
        self._publish_gcsfuse("3.9.0")
        self._publish_mountpoint("1.30.0", "amazon")
        self._publish_python("3.12.99+20990101")
        self._publish_miniforge("99.1.0-0")

    def refresh(self, *words: str) -> int:
        via = {refresh_installs.GITHUB: "api", refresh_installs.MOUNTPOINT: "s3", DOWNLOADS: "downloads"}
        via |= {PYTHONS: "pythons", CONDAS: "condas"}
        options = [f"--via={begin}=http://127.0.0.1:{self.port}/{place}" for begin, place in via.items()]
        return refresh_installs.main([*words, f"--file={self.file}", *options])

    def tools(self) -> dict[tuple[str, str], tuple[str, str]]:
        rows = tomllib.loads(self.file.read_text())["tool"]
        return {(row["name"], row["machine"]): (row["version"], row["sha256"]) for row in rows}

    def put(self, path: str, content: bytes) -> str:
        """Serve a file, and return its digest."""
        place = self.served / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        return hashlib.sha256(content).hexdigest()

    def sign(self, path: str, key: str) -> None:
        place = self.served / path
        self._gpg("--local-user", key, "--armor", "--output", f"{place}.asc", "--detach-sign", str(place))

    def _publish_gcsfuse(self, version: str) -> None:
        assets = []
        for arch in ("amd64", "arm64"):
            name = f"gcsfuse_{version}_{arch}.deb"
            digest = self.put(f"downloads/v{version}/{name}", f"gcsfuse for {arch}".encode())
            url = f"{DOWNLOADS}/v{version}/{name}"
            assets.append({"name": name, "browser_download_url": url, "digest": f"sha256:{digest}"})
        release = json.dumps({"tag_name": f"v{version}", "assets": assets}).encode()
        self.put("api/GoogleCloudPlatform/gcsfuse/releases/latest", release)

    def _publish_python(self, version: str) -> None:
        tag, assets = version.partition("+")[2], []
        for machine in ("x86_64", "aarch64"):
            name = f"cpython-{version}-{machine}-unknown-linux-gnu-install_only_stripped.tar.gz"
            digest = self.put(f"pythons/{tag}/{name}", f"python for {machine}".encode())
            url = f"{PYTHONS}/{tag}/{name.replace('+', '%2B')}"
            assets.append({"name": name, "browser_download_url": url, "digest": f"sha256:{digest}"})
            assets.append({**assets[-1], "name": name.replace("3.12.99", "3.13.99")})
        release = json.dumps({"tag_name": tag, "assets": assets}).encode()
        for place in ("latest", f"tags/{tag}"):
            self.put(f"api/astral-sh/python-build-standalone/releases/{place}", release)

    def _publish_miniforge(self, version: str) -> None:
        assets = []
        for machine in ("x86_64", "aarch64"):
            name = f"Miniforge3-{version}-Linux-{machine}.sh"
            digest = self.put(f"condas/{version}/{name}", f"miniforge for {machine}".encode())
            url = f"{CONDAS}/{version}/{name}"
            assets.append({"name": name, "browser_download_url": url, "digest": f"sha256:{digest}"})
        release = json.dumps({"tag_name": version, "assets": assets}).encode()
        self.put("api/conda-forge/miniforge/releases/latest", release)

    def _publish_mountpoint(self, version: str, key: str) -> None:
        release = json.dumps({"tag_name": f"mountpoint-s3-{version}"}).encode()
        self.put("api/awslabs/mountpoint-s3/releases/latest", release)
        for arch in ("x86_64", "arm64"):
            path = f"s3/{version}/{arch}/mount-s3-{version}-{arch}.tar.gz"
            self.put(path, f"mount-s3 for {arch}".encode())
            self.sign(path, key)
        self.put("s3/public_keys/KEYS", self._gpg("--armor", "--export").encode())

    def _make_key(self, name: str) -> str:
        home = self.folder / "gpg"
        home.mkdir(mode=0o700, exist_ok=True)
        self._gpg("--passphrase", "", "--quick-generate-key", f"{name}@localhost", "ed25519", "sign", "never")
        lines = self._gpg("--with-colons", "--fingerprint", f"{name}@localhost").splitlines()
        return next(line.split(":")[9] for line in lines if line.startswith("fpr:"))

    def _gpg(self, *words: str) -> str:
        home = ["gpg", "--homedir", str(self.folder / "gpg"), "--batch", "--quiet", "--yes"]
        done = subprocess.run([*home, *words], check=True, capture_output=True, text=True)
        return done.stdout

    def close(self) -> None:
        subprocess.run(["gpgconf", "--homedir", str(self.folder / "gpg"), "--kill", "all"], check=False)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def vendors(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Vendors]:
    if shutil.which("gpg") is None:
        pytest.skip("gpg is not installed here")
    folder = tmp_path_factory.mktemp("v")  # gpg's sockets need a short path
    (folder / "served").mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder / "served"))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        made = Vendors(folder, server.server_port)
        monkeypatch.setattr(refresh_installs, "AMAZON_KEYS", {made.fingerprint})
        yield made
        made.close()
        server.shutdown()


def test_new_versions_are_written_with_their_digests(vendors: Vendors) -> None:
    before = tomllib.loads(vendors.file.read_text())
    assert vendors.refresh("tools") == 0
    assert vendors.tools() == {
        ("gcsfuse", "x86_64"): ("3.9.0", hashlib.sha256(b"gcsfuse for amd64").hexdigest()),
        ("gcsfuse", "aarch64"): ("3.9.0", hashlib.sha256(b"gcsfuse for arm64").hexdigest()),
        ("mount-s3", "x86_64"): ("1.30.0", hashlib.sha256(b"mount-s3 for x86_64").hexdigest()),
        ("mount-s3", "aarch64"): ("1.30.0", hashlib.sha256(b"mount-s3 for arm64").hexdigest()),
        ("python", "x86_64"): ("3.12.99+20990101", hashlib.sha256(b"python for x86_64").hexdigest()),
        ("python", "aarch64"): ("3.12.99+20990101", hashlib.sha256(b"python for aarch64").hexdigest()),
        ("miniforge", "x86_64"): ("99.1.0-0", hashlib.sha256(b"miniforge for x86_64").hexdigest()),
        ("miniforge", "aarch64"): ("99.1.0-0", hashlib.sha256(b"miniforge for aarch64").hexdigest()),
    }
    after = tomllib.loads(vendors.file.read_text())
    assert (after["package"], after["stack"]) == (before["package"], before["stack"])
    assert all(row["source"] and row["as_of"] and row["url"].startswith("https://") for row in after["tool"])


def test_check_writes_nothing(vendors: Vendors, capsys: pytest.CaptureFixture[str]) -> None:
    before = vendors.file.read_text()
    assert vendors.refresh("tools", "--check") == 1
    assert '+ {"name": "gcsfuse", "version": "3.9.0"' in capsys.readouterr().out
    assert vendors.file.read_text() == before
    assert vendors.refresh("tools") == 0
    assert vendors.refresh("tools", "--check") == 0


@pytest.mark.parametrize("wrong", ["gcsfuse", "python", "mount-s3", "other key", "no signature"])
def test_a_file_that_its_vendor_did_not_publish_is_refused(
    vendors: Vendors, wrong: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = vendors.file.read_text()
    mountpoint = "s3/1.30.0/arm64/mount-s3-1.30.0-arm64.tar.gz"
    if wrong == "gcsfuse":
        vendors.put("downloads/v3.9.0/gcsfuse_3.9.0_arm64.deb", b"another file")
    elif wrong == "python":
        name = "cpython-3.12.99+20990101-aarch64-unknown-linux-gnu-install_only_stripped.tar.gz"
        vendors.put(f"pythons/20990101/{name}", b"another file")
    elif wrong == "mount-s3":
        vendors.put(mountpoint, b"another file")
    elif wrong == "other key":
        monkeypatch.setattr(refresh_installs, "AMAZON_KEYS", {"0" * 40})
    else:
        vendors.put(f"{mountpoint}.asc", b"no signature")
    assert vendors.refresh("tools") == 1
    assert "nothing was written: https://" in capsys.readouterr().err
    assert vendors.file.read_text() == before


def test_packages_are_those_that_hosts_need(vendors: Vendors, monkeypatch: pytest.MonkeyPatch) -> None:
    (vendors.folder / "bin").mkdir()
    uv = vendors.folder / "bin" / "uv"
    uv.write_text(UV % LOCK)
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{uv.parent}:/usr/bin:/bin")
    stacks = [row["name"] for row in tomllib.loads(vendors.file.read_text())["stack"]]
    assert vendors.refresh("packages") == 0
    assert tomllib.loads(vendors.file.read_text())["package"] == [
        {"name": "small", "version": "1.5", "marker": "python_version >= '3.12'", "stacks": stacks, "sha256": ["0"]}
    ]


def test_the_data_file_is_as_the_script_writes_it() -> None:
    text = refresh_installs.DATA.read_text()
    assert refresh_installs.write_data(tomllib.loads(text)) == text
