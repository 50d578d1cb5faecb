"""The systemd unit, by systemd's own tools, and the container file, built and run by podman."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
import sysconfig
import time
import tomllib
from collections.abc import Iterator
from importlib.metadata import requires
from pathlib import Path

import click
import pytest
import yaml
from packaging.requirements import Requirement
from support.container_engine import IMAGE, ContainerEngine, missing_tools

from orchestrator import __version__
from orchestrator.cli.app import app

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "scripts" / "deploy" / "orch.service"
FILE = ROOT / "scripts" / "deploy" / "Containerfile"
WORST_EXPOSURE = 2.0  # of 10, as `systemd-analyze security` counts; 1.5 with systemd 252
needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")

# In place of what needs a package index. The wheel is a tar of what the container file has copied.
STUBS = {
    "apt-get": "exit 0",
    "useradd": 'echo "orch:x:10001:10001::/var/lib/orch:/bin/sh" >>/etc/passwd; echo "orch:x:10001:" >>/etc/group',
    "pip": """case "$*" in
        *--require-hashes*) for last; do :; done; grep -q sha256 "$last";;
        wheel*) [ "$(id -u)" != 0 ] && mkdir -p /build/dist &&
           tar -cf /build/dist/orch.whl -C /src orchestrator trainer templates;;
        *) mkdir -p /opt/app && tar -xf /src/dist/orch.whl -C /opt/app && cp /test/orch /usr/local/bin/orch;;
    esac""",
}
ORCH = """#!/bin/bash
export LD_LIBRARY_PATH=/opt/python/lib:/opt/lib PYTHONHOME=/opt/python PYTHONPATH=/opt/app:/opt/site
exec /opt/python/bin/NAME -m orchestrator "$@"
"""


def list_installs() -> list[str]:
    """The commands of the container file that run pip."""
    return [line for line in FILE.read_text().splitlines() if line.startswith("RUN") and "pip " in line]


def test_the_image_and_all_that_pip_fetches_for_it_are_named_by_digest() -> None:
    text = FILE.read_text()
    (base,) = re.findall(r"^ARG BASE=(.*)$", text, re.M)
    assert re.fullmatch(r"[\w./-]+@sha256:[0-9a-f]{64}", base)
    assert set(re.findall(r"^FROM (\S+)", text, re.M)) == {"${BASE}"}
    fetches = [one for one in list_installs() if "--no-index" not in one and "--no-build-isolation" not in one]
    assert len(fetches) == 2
    for one in fetches:
        assert "--require-hashes -r /src/" in one and "--only-binary :all:" in one and "--no-deps" in one


def test_nothing_is_built_as_root() -> None:
    build, run = FILE.read_text().split("FROM ${BASE}")[1:]
    before, after = build.split("USER 10002")
    assert "pip" not in before and "pip wheel" in after
    assert "pip wheel" not in run and "/src/dist/*.whl" in run


def test_the_build_tools_that_are_locked_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (required,) = map(Requirement, project["build-system"]["requires"])
    assert Requirement((ROOT / "requirements" / "build.in").read_text().strip()) == required
    locked = dict(re.findall(r"^([\w-]+)==(\S+)", (ROOT / "requirements" / "build.lock").read_text(), re.M))
    assert locked[required.name] in required.specifier
    needed = {Requirement(one).name for one in requires(required.name) or () if "python_version" not in one}
    assert needed == set(locked) - {required.name}


def test_prometheus_is_given_the_token_of_a_viewer() -> None:
    page = (ROOT / "docs" / "deploy.md").read_text()
    (scrape,) = [one for one in re.findall(r"```yaml parse\n(.*?)```", page, re.S) if "scrape_configs" in one]
    (job,) = yaml.safe_load(scrape)["scrape_configs"]
    token = job["authorization"]["credentials_file"]
    assert "service/token" not in token
    (command,) = re.findall(rf"orch (token create .*?) *>.*{re.escape(token)}", page)
    assert "--role viewer" in command


def directives(section: str) -> dict[str, str]:
    parsed = configparser.RawConfigParser(strict=False)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]  # systemd's names have capitals
    parsed.read(UNIT)
    return dict(parsed[section])


def test_the_unit_starts_a_command_that_exists_and_leaves_the_network_open() -> None:
    service = directives("Service")
    _, *words = service["ExecStart"].split()
    command = app.get_command(click.Context(app), words[0])
    assert command is not None
    command.make_context("serve", words[1:])
    for name in ("PrivateNetwork", "IPAddressDeny", "ProtectProc", "DynamicUser"):
        assert name not in service
    assert service["User"] == "orch" and service["Restart"] == "on-failure"
    assert "ORCH_HOME=/var/lib/orch" in service["Environment"] and service["StateDirectory"] == "orch"


@needs_systemd
def test_systemd_accepts_the_unit_and_finds_it_confined(tmp_path: Path) -> None:
    unit = tmp_path / "orch.service"  # with a program that exists here: systemd checks that
    unit.write_text(UNIT.read_text().replace("/opt/orch/bin/orch", "/usr/bin/true"))
    for words in (["verify"], ["security", "--offline=true", f"--threshold={WORST_EXPOSURE * 10:.0f}"]):
        done = subprocess.run(["systemd-analyze", *words, str(unit)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Unknown" not in done.stderr and str(unit) not in done.stderr


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerEngine]:
    """An engine with the image `orch`, built by the container file on an image of this computer's programs."""
    if missing := missing_tools():
        pytest.skip(f"no container engine: {', '.join(missing)} missing")
    engine = ContainerEngine(tmp_path_factory.mktemp("engine"))
    base = tmp_path_factory.mktemp("base")
    for name, script in STUBS.items():
        (base / name).write_text(f"#!/bin/sh\n{script}\n")
        (base / name).chmod(0o755)
    (base / "orch").write_text(ORCH.replace("NAME", Path(sys.executable).resolve().name))
    (base / "orch").chmod(0o755)
    (base / "Containerfile").write_text(
        f"FROM {IMAGE}\nENV PATH=/test:/usr/local/bin:/bin\nCOPY . /test/\nRUN mkdir -p /usr/local/bin /var/lib\n"
    )
    build = ("build", "--isolation", "chroot", "--network", "host", "--layers=false")  # crun cannot join a cgroup here
    engine.docker(*build, "-t", "base", str(base))
    engine.docker(*build, "--build-arg", "BASE=localhost/base", "-f", str(FILE), "-t", "orch", str(ROOT))
    try:
        yield engine
    finally:
        engine.close()


def run(*words: str, options: tuple[str, ...] = ()) -> list[str]:
    """The command that runs the image with this computer's Python and packages."""
    mounts = {
        sys.base_prefix: "/opt/python",
        sysconfig.get_path("purelib"): "/opt/site",
        "/usr/lib/x86_64-linux-gnu": "/opt/lib",
    }
    volumes = [word for source, target in mounts.items() for word in ("-v", f"{source}:{target}:ro")]
    return ["run", "--rm", "--network", "host", *volumes, *options, "orch", *words]


@pytest.mark.slow
def test_the_image_has_orch_and_runs_as_a_user_without_rights(image: ContainerEngine) -> None:
    assert image.docker(*run("--version")).split()[-1] == __version__
    who = image.docker(*run("-c", "id -u; touch /etc/x || echo refused; stat -c %a .", options=("--entrypoint", "sh")))
    assert who.split() == ["10001", "refused", "700"]


@pytest.mark.slow
def test_the_container_serves_on_loopback_and_ends_in_order(image: ContainerEngine) -> None:
    name = "orch-serve"
    image.docker(*run("serve", "--port", "0", options=("--detach", "--name", name)))
    end = time.monotonic() + 60
    while "/login#" not in (shown := image.docker("logs", name)):
        assert time.monotonic() < end, shown
        time.sleep(0.3)
    assert shown.startswith("http://127.0.0.1:")
    began = time.monotonic()
    image.docker("stop", "--time", "30", name)
    assert time.monotonic() - began < 25, "it was killed"
