"""The shell scripts of templates/remote: clean by shellcheck, and sent as they are meant."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import OrchError
from orchestrator.remote.scripts import shell_command, shell_source

FOLDER = Path(__file__).resolve().parents[2] / "templates" / "remote"
SCRIPTS = sorted(path.name for path in FOLDER.glob("*.sh"))


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
@pytest.mark.parametrize("name", SCRIPTS)
def test_each_script_is_clean(name: str) -> None:
    command = ["shellcheck", "-x", "-s", "sh", name]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize("name", SCRIPTS)
def test_each_script_parses_without_its_comments(name: str, shell: str) -> None:
    done = subprocess.run([shell, "-n", "-c", shell_source(name)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "#" not in {line[:1] for line in shell_source(name).splitlines()}


@pytest.mark.parametrize("name", SCRIPTS)
def test_each_script_fits_a_command_line(name: str) -> None:
    assert len(shell_source(name)) < 16 * 1024  # an argument may have 128 KiB, an SSH packet 32


def test_a_missing_script_is_an_error_with_a_way_out() -> None:
    with pytest.raises(OrchError) as caught:
        shell_source("no-such.sh")
    assert caught.value.next_step


@given(st.lists(st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"])), max_size=4))
@settings(max_examples=50, deadline=None)
def test_any_argument_arrives_unchanged_through_any_login_shell(arguments: list[str]) -> None:
    command = shell_command("put.sh", *arguments).replace("/bin/sh -c", "/usr/bin/env -i printf '%s\\0' -c", 1)
    for shell in ("sh", "bash"):
        done = subprocess.run([shell, "-c", command], capture_output=True, check=True)
        assert done.stdout.split(b"\0")[3:-1] == [argument.encode() for argument in arguments]
