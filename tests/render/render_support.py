"""Running a rendered script for real, and strings that try to break out of their quotes."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path

from hypothesis import strategies as st

GOLDEN = Path(__file__).parent / "golden"
TEMPLATES = Path(__file__).resolve().parents[2] / "templates"

PROGRAMS_OF_COPY = (
    "bash", "cat", "cut", "dirname", "id", "ln", "ls", "mkdir", "readlink", "rm", "sha256sum", "sleep", "stat", "touch",
    "tr", "uname",
)  # fmt: skip
"""What a copy of a bucket path needs on a host beside the cloud's own program."""

TRAINER_ROOT = ".orch/host/trainer"
"""Where scripts that are run without orch expect the trainer's folder, below the home folder."""

HOST = {"ORCH_RANK": "0", "ORCH_NUM_HOSTS": "1", "ORCH_COORDINATOR": "127.0.0.1:29500"}

# A program in place of any tool: writes down its arguments, each ended by NUL.
RECORDER = """#!/bin/sh
printf '%s\\0' "$@" >>"$RECORD"
"""

# The same, but it acts as a Python that can make environments.
FAKE_PYTHON = """#!/bin/sh
case "$1 $2" in
  '-c '*) [ "${2#*print}" = "$2" ] || echo python3.11 ;;
  '-m venv') mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
  *) printf '%s\\0' "$@" >>"$RECORD" ;;
esac
"""


def run_script(
    text: str, home: Path, env: Mapping[str, str] | None = None, *, path: str = "", timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run a script with a clean environment, as the job wrapper does. path: folders in front of PATH."""
    home.mkdir(parents=True, exist_ok=True)
    script = home / "run.sh"
    script.write_text(text, encoding="utf-8", newline="")
    clean = {"HOME": str(home), "PATH": f"{path}:/usr/bin:/bin" if path else "/usr/bin:/bin", "LANG": "C.UTF-8"}
    return subprocess.run(
        ["bash", str(script)],
        env={**clean, **(env or {})},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def program(path: Path, text: str) -> Path:
    """Write an executable file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def recorded(record: Path) -> list[str]:
    """The arguments that RECORDER wrote down."""
    return record.read_bytes().decode().split("\0")[:-1]


def write_wheel(folder: Path, name: str, version: str, *, needs: str = "", text: str = "") -> Path:
    """Write a wheel with one module of the same name, which has `version`."""
    info = f"{name}-{version}.dist-info"
    need = f"Requires-Dist: {needs}\n" if needs else ""
    files = {
        f"{name}.py": f"version = {version!r}\n{text}",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{need}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = [f"{path},sha256={_digest(content)},{len(content)}" for path, content in files.items()]
    place = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(place, "w") as wheel:
        for path, content in files.items():
            wheel.writestr(path, content)
        wheel.writestr(f"{info}/RECORD", "\n".join([*lines, f"{info}/RECORD,,"]) + "\n")
    return place


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def script_env(folder: Path) -> dict[str, str]:
    return {**HOST, "RECORD": str(folder / "record"), "CANARY": str(folder / "canary")}


_BREAKOUTS = [
    '$(touch "$CANARY")',
    '`touch "$CANARY"`',
    "'; touch \"$CANARY\"; '",
    '"; touch "$CANARY"; "',
    '\n touch "$CANARY" \n',
    '"$(touch "$CANARY")"',
    '\\$(touch "$CANARY")',
    '${x:-$(touch "$CANARY")}',
    '& touch "$CANARY" &',
    '| touch "$CANARY"',
    "{{ 7 * 7 }}",
    "{% raw %}",
    "-rf",
    "--",
    "-",
    "~",
    "*",
    "?",
    "[a-z]",
    "{a,b}",
    "!!",
    "#",
    "\\",
    "'",
    '"',
    "''",
    " ",
    "\n",
    "\r\n",
    "\t",
    "é",
    "日本",
    "\u202e",
    "\x1b[31m",
    "\x7f",
    "%s%n",
    "$HOME",
    "$'\\x41'",
    "\U0001f600",
]


def hostile(*, slash: bool = False) -> st.SearchStrategy[str]:
    """Strings that mean something to a shell. Without slash: usable as the name of a file."""
    banned = "\0" if slash else "\0/"
    anything = st.text(st.characters(codec="utf-8", exclude_characters=banned), max_size=10)
    pieces = st.lists(st.one_of(st.sampled_from(_BREAKOUTS), anything), min_size=1, max_size=4).map("".join)
    return pieces.filter(lambda text: 0 < len(os.fsencode(text)) < 200 and text.strip("./") != "")
