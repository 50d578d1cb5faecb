#!/usr/bin/env python3
"""Write orchestrator/catalog/data/installs.toml again: versions and SHA-256 digests of what orch installs on hosts.

    scripts/refresh_installs.py                    the newest tools, and what the stacks need today
    scripts/refresh_installs.py tools              only gcsfuse, Mountpoint, Python and Miniforge
    scripts/refresh_installs.py packages           only the Python packages
    scripts/refresh_installs.py --keep-versions    fetch the pinned tools again
    scripts/refresh_installs.py --check            write nothing; exit with 1 if something differs

A file of Mountpoint needs a signature of Amazon's key; one of gcsfuse or Python needs the digest that GitHub publishes.
Versions of torch and JAX are changed by hand, in the rows [[stack]]: the trainer is written for them. Everything that
these need is resolved by uv (pip install uv); only wheels for Linux on x86-64 and arm64 are taken. `--via URL=OTHER`
fetches what begins with URL from another server, such as a mirror. Read the diff before you commit it.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from packaging.markers import Marker

DATA = Path(__file__).resolve().parent.parent / "orchestrator" / "catalog" / "data" / "installs.toml"
HEAD = """\
# What orch itself installs on hosts. scripts/refresh_installs.py writes it; only rows [[stack]] are changed by hand.
# An empty sha256 means: not known, so hosts refuse to install it. A tool is one file for each machine, as `uname -m`
# names it. A stack is what the bundled trainer needs with one framework; its packages are all that pip installs for it.
"""
MACHINES = ("x86_64", "aarch64")
HOST_PYTHON = "3.12"  # all packages of the stacks have wheels for it
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
GITHUB = "https://api.github.com/repos"
MOUNTPOINT = "https://s3.amazonaws.com/mountpoint-s3-release"
AMAZON_KEYS = {"8AEFE705EBE329C0948C75A66F1C3B3AEF4B030B", "673FE4061506BB469A0EF857BE397A52B086DA5A"}
"""Fingerprints: awslabs/mountpoint-s3, doc/INSTALL.md, "Verifying the signature" (August 2026)."""

Row = dict[str, object]
Data = dict[str, list[Row]]


class Refused(Exception):
    """A download that differs from what its vendor published."""


@dataclass(frozen=True, slots=True)
class Web:
    """Downloads, some of them from other servers."""

    via: Mapping[str, str]

    def fetch(self, url: str) -> bytes:
        for begin, other in self.via.items():
            if url.startswith(begin):
                url = other + url.removeprefix(begin)
        with urllib.request.urlopen(url, timeout=300) as answer:
            return cast("bytes", answer.read())

    def release(self, repository: str, tag: str) -> dict[str, object]:
        """Return a release of GitHub; tag "" for the newest."""
        place = f"tags/{tag}" if tag else "latest"
        return cast("dict[str, object]", json.loads(self.fetch(f"{GITHUB}/{repository}/releases/{place}")))


def tool_rows(web: Web, pinned: Mapping[str, str]) -> Iterator[Row]:
    """Yield the rows of all tools; `pinned` has the versions to keep."""
    yield from gcsfuse_rows(web, pinned.get("gcsfuse", ""))
    yield from mountpoint_rows(web, pinned.get("mount-s3", ""))
    yield from python_rows(web, pinned.get("python", ""))
    yield from miniforge_rows(web, pinned.get("miniforge", ""))


def gcsfuse_rows(web: Web, version: str) -> Iterator[Row]:
    release = web.release("GoogleCloudPlatform/gcsfuse", f"v{version}" if version else "")
    version = str(release["tag_name"]).removeprefix("v")
    assets = {str(one["name"]): one for one in cast("list[dict[str, object]]", release["assets"])}
    for machine, arch in zip(MACHINES, ("amd64", "arm64"), strict=True):
        asset = assets[f"gcsfuse_{version}_{arch}.deb"]
        url = str(asset["browser_download_url"])
        digest = fetch_published(web, asset)
        yield tool_row("gcsfuse", version, machine, url, digest, "GitHub release, digest of the asset")


def mountpoint_rows(web: Web, version: str) -> Iterator[Row]:
    if not version:
        version = str(web.release("awslabs/mountpoint-s3", "")["tag_name"]).rpartition("-")[2]
    keys = web.fetch(f"{MOUNTPOINT}/public_keys/KEYS")
    for machine, arch in zip(MACHINES, ("x86_64", "arm64"), strict=True):
        url = f"{MOUNTPOINT}/{version}/{arch}/mount-s3-{version}-{arch}.tar.gz"
        file = web.fetch(url)
        if not signers(file, web.fetch(f"{url}.asc"), keys) & AMAZON_KEYS:
            raise Refused(f"{url} has no signature of a key in doc/INSTALL.md of awslabs/mountpoint-s3")
        yield tool_row(
            "mount-s3", version, machine, url, hashlib.sha256(file).hexdigest(), "its signature by Amazon's key"
        )


def python_rows(web: Web, version: str) -> Iterator[Row]:
    """Yield the rows of a finished CPython; `version` as "3.12.14+20260814", "" for the newest of HOST_PYTHON."""
    release = web.release("astral-sh/python-build-standalone", version.partition("+")[2])
    assets = {str(one["name"]): one for one in cast("list[dict[str, object]]", release["assets"])}
    for machine in MACHINES:
        end = f"-{machine}-unknown-linux-gnu-install_only_stripped.tar.gz"
        begin = f"cpython-{version or HOST_PYTHON + '.'}"
        name = next((name for name in assets if name.startswith(begin) and name.endswith(end)), "")
        if not name:
            raise Refused(f"{release['tag_name']} of python-build-standalone has no {begin}*{end}")
        found = name.removeprefix("cpython-").removesuffix(end)
        digest = fetch_published(web, assets[name])
        url = str(assets[name]["browser_download_url"])
        yield tool_row("python", found, machine, url, digest, "GitHub release, digest of the asset")


def miniforge_rows(web: Web, version: str) -> Iterator[Row]:
    release = web.release("conda-forge/miniforge", version)
    version = str(release["tag_name"])
    assets = {str(one["name"]): one for one in cast("list[dict[str, object]]", release["assets"])}
    for machine in MACHINES:
        asset = assets[f"Miniforge3-{version}-Linux-{machine}.sh"]
        url, digest = str(asset["browser_download_url"]), fetch_published(web, asset)
        yield tool_row("miniforge", version, machine, url, digest, "GitHub release, digest of the asset")


def fetch_published(web: Web, asset: Mapping[str, object]) -> str:
    """Return the SHA-256 of a file of a GitHub release, which is the one that GitHub publishes."""
    url = str(asset["browser_download_url"])
    digest = hashlib.sha256(web.fetch(url)).hexdigest()
    if asset.get("digest") != f"sha256:{digest}":
        raise Refused(f"{url} has SHA-256 {digest}, and GitHub publishes {asset.get('digest')} for it")
    return digest


def tool_row(name: str, version: str, machine: str, url: str, digest: str, source: str) -> Row:
    row = {"name": name, "version": version, "machine": machine, "url": url, "sha256": digest, "source": source}
    return {**row, "as_of": today()}


def signers(file: bytes, signature: bytes, keys: bytes) -> set[str]:
    """Return the fingerprints of the keys that made a detached signature: primary keys, valid now."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part, content in (("file", file), ("signature", signature), ("keys", keys)):
            (folder / part).write_bytes(content)
        gpg = ["gpg", "--homedir", name, "--batch", "--quiet", "--no-autostart"]
        subprocess.run([*gpg, "--import", str(folder / "keys")], check=True, capture_output=True)
        words = [*gpg, "--status-fd", "1", "--verify", str(folder / "signature"), str(folder / "file")]
        said = subprocess.run(words, check=False, capture_output=True, text=True)
    valid = re.findall(r"(?m)^\[GNUPG:\] VALIDSIG .* ([0-9A-F]{40})$", said.stdout)
    return set(valid) if said.returncode == 0 else set()


def package_rows(stacks: Sequence[Row]) -> list[Row]:
    """Return the packages of all stacks; one row for the same files in several stacks."""
    found: dict[tuple[str, str, str, tuple[str, ...]], list[str]] = {}
    for stack in stacks:
        requirements = [*cast("list[str]", stack["framework"]), *cast("list[str]", stack["libraries"])]
        for package in locked_packages(requirements):
            found.setdefault(package, []).append(str(stack["name"]))
        stack["as_of"] = today()
    return [
        {"name": name, "version": version, "marker": marker, "stacks": names, "sha256": list(digests)}
        for (name, version, marker, digests), names in sorted(found.items())
    ]


def locked_packages(requirements: Sequence[str]) -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """Yield name, version, marker and digests of everything that requirements need on a host."""
    with tempfile.TemporaryDirectory() as folder:
        request, lock = Path(folder, "requirements.in"), Path(folder, "pylock.toml")
        request.write_text("\n".join(requirements))
        words = ["uv", "pip", "compile", "--quiet", "--universal", "--python-version", PYTHONS[0]]
        words += ["--only-binary", ":all:", "--no-annotate", "--no-header", "--output-file", str(lock), str(request)]
        subprocess.run(words, check=True)
        parsed = tomllib.loads(lock.read_text())
    for package in parsed["packages"]:
        places = [place for place in host_environments() if matches(package.get("marker", ""), place)]
        wheels = [wheel for wheel in package.get("wheels", []) if fits_hosts(wheel["url"].rpartition("/")[2])]
        digests = sorted({wheel["hashes"]["sha256"] for wheel in wheels})
        if places and not digests:
            raise Refused(f"{package['name']} {package['version']} has no wheel for hosts")
        if places:
            yield package["name"], package["version"], marker_of(places), tuple(digests)


def host_environments() -> list[dict[str, str]]:
    """Return what markers can say of hosts: Linux, CPython, one of PYTHONS and of MACHINES."""
    common = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "implementation_name": "cpython"}
    common["platform_python_implementation"] = "CPython"
    return [
        {**common, "python_version": python, "python_full_version": f"{python}.0", "platform_machine": machine}
        for python in PYTHONS
        for machine in MACHINES
    ]


def matches(marker: str, place: dict[str, str]) -> bool:
    return not marker or Marker(marker).evaluate(place)


def marker_of(places: Sequence[Mapping[str, str]]) -> str:
    """Return the shortest marker that is true exactly at these places; "" for all."""
    pythons = sorted({place["python_version"] for place in places})
    machines = {place["platform_machine"] for place in places}
    if len(places) != len(pythons) * len(machines):
        raise Refused(f"no short marker for {places}")
    terms = []
    if pythons == list(PYTHONS[-len(pythons) :]) and pythons != list(PYTHONS):
        terms.append(f"python_version >= '{pythons[0]}'")
    elif pythons != list(PYTHONS):
        terms.append(" or ".join(f"python_version == '{python}'" for python in pythons))
    if len(machines) < len(MACHINES):
        terms.append(f"platform_machine == '{machines.pop()}'")
    return " and ".join(f"({term})" if " or " in term and len(terms) > 1 else term for term in terms)


def fits_hosts(wheel: str) -> bool:
    """Return whether a file is a wheel for a host: glibc, one of MACHINES, and one of PYTHONS or any."""
    pythons, abi, platforms = wheel.removesuffix(".whl").split("-")[-3:]
    machine = any("linux" in one and one.endswith(MACHINES) and "musl" not in one for one in platforms.split("."))
    exact = {f"cp{python.replace('.', '')}" for python in PYTHONS}
    python = abi == "abi3" or "py3" in pythons.split(".") or (abi in {*exact, "none"} and pythons in exact)
    return python and (machine or platforms == "any")


def write_data(data: Data) -> str:
    """Return the data file's text."""
    parts = [HEAD]
    for table in ("tool", "stack", "package"):
        parts += [
            "\n".join([f"[[{table}]]", *(f"{key} = {as_toml(row[key])}" for key in row)]) + "\n" for row in data[table]
        ]
    return "\n".join(parts)


def as_toml(value: object) -> str:
    if isinstance(value, list) and sum(map(len, map(str, value))) > 90:
        return "[\n" + "".join(f"    {json.dumps(one)},\n" for one in value) + "]"
    return json.dumps(value)


def today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def differences(old: Data, new: Data) -> list[str]:
    """Return the rows that are not in both, without their dates."""
    rows = [
        {json.dumps({**row, "as_of": "", "table": table}) for table in data for row in data[table]}
        for data in (old, new)
    ]
    return [f"- {row}" for row in sorted(rows[0] - rows[1])] + [f"+ {row}" for row in sorted(rows[1] - rows[0])]


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("all", "tools", "packages"), default="all")
    parser.add_argument("--keep-versions", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--via", action="append", default=[], metavar="URL=OTHER")
    parser.add_argument("--file", type=Path, default=DATA)
    choices = parser.parse_args(words)
    old: Data = tomllib.loads(choices.file.read_text())
    new: Data = {"tool": [], "package": [], **tomllib.loads(choices.file.read_text())}
    try:
        if choices.what in ("all", "tools"):
            pinned = {str(row["name"]): str(row["version"]) for row in old["tool"]} if choices.keep_versions else {}
            new["tool"] = list(tool_rows(Web(dict(one.split("=", 1) for one in choices.via)), pinned))
        if choices.what in ("all", "packages"):
            new["package"] = package_rows(new["stack"])
    except (Refused, OSError, subprocess.CalledProcessError) as error:
        print(f"refresh_installs: nothing was written: {error}", file=sys.stderr)
        return 1
    changed = differences(old, new)
    print("\n".join(changed) or "nothing changed")
    if not choices.check:
        choices.file.write_text(write_data(new))
    return 1 if choices.check and changed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
