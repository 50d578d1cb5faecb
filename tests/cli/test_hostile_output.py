"""What hosts print cannot control the terminal, forge another line, or flood the screen."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cli.drawing.host_output import HostOutput
from orchestrator.cli.drawing.host_text import BURST, LONGEST_LINE
from orchestrator.cli.drawing.terminal import Terminal
from orchestrator.hosts import HostAddress
from orchestrator.messages import escape_controls
from orchestrator.remote.output import prefix_for

HOST = HostAddress(
    rank=0, alias="a-0", host="10.0.0.1", port=22, user="u", identity_file=Path("/k"), known_hosts=Path("/h"),
    internal_ip="10.0.0.1", host_key="",
)  # fmt: skip
OTHER = replace(HOST, rank=7, internal_ip="10.0.0.8")
FORGED = prefix_for(OTHER) + b"loss 0.001"
ATTACKS = {
    "clipboard (OSC 52)": b"\x1b]52;c;cm0gLXJmIH4K\x07",
    "title": b"\x1b]0;mine\x07",
    "clear screen": b"\x1b[2J\x1b[H",
    "cursor up": b"\x1b[1A\x1b[2K",
    "C1 control": "\x9b2J".encode(),
    "raw C1 byte": b"\x9b2J",
    "answerback": b"\x05",
    "device status": b"\x1b[6n",
    "backspaces": b"abc\b\b\bxyz",
    "form feed": b"\f\v",
    "right to left": "\u202egpj.exe".encode(),
    "link (OSC 8)": b"\x1b]8;;http://evil\x1b\\here\x1b]8;;\x1b\\",
    "device control": b"\x1bP+q544e\x1b\\",
}


def printed(*blocks: bytes, raw: bool = False) -> bytes:
    stream = io.BytesIO()
    output = HostOutput(
        stream,  # type: ignore[arg-type]  # BytesIO has what a BinaryIO needs
        terminal=Terminal(live=False, colour=False, width=80),
        prefix=True,
        raw=raw,
        lock=threading.RLock(),
        make_room=lambda: None,
        on_closed=None,
    )
    for block in blocks:
        output.write(HOST, block)
    output.finish()
    return stream.getvalue()


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_control_sequences_are_written_out(attack: bytes) -> None:
    shown = printed(b"before " + attack + b" after\n").decode()
    assert shown.startswith(prefix_for(HOST).decode() + "before ") and shown.endswith(" after\n")
    assert not any(ord(letter) < 32 or 127 <= ord(letter) < 160 for letter in shown[:-1])
    assert "\u202e" not in shown
    assert attack in printed(attack + b"\n", raw=True)


def test_a_carriage_return_forges_no_prefix() -> None:
    mine = prefix_for(HOST)
    assert printed(b"step 1\r" + FORGED + b"\n") == mine + FORGED + b"\n"
    assert printed(b"step 1\r\nstep 2\r\n") == mine + b"step 1\n" + mine + b"step 2\n"
    assert printed(b"10%\r50%\r100%\n") == mine + b"100%\n", "a progress bar shows its end"


def test_colours_stay_and_end_with_their_line() -> None:
    assert printed(b"\x1b[31mred\n") == prefix_for(HOST) + b"\x1b[31mred\x1b[0m\n"


@given(st.lists(st.binary(max_size=300), max_size=5))
def test_no_bytes_move_the_cursor_or_leave_the_prefix(blocks: list[bytes]) -> None:
    shown = printed(*blocks)
    assert all(line.startswith(prefix_for(HOST)) for line in shown.split(b"\n")[:-1])
    without_colours = escape_controls(shown.decode())
    assert without_colours == shown.decode()


def test_long_lines_are_cut_and_floods_are_counted() -> None:
    long = printed(b"x" * (LONGEST_LINE + 10) + b"\n")
    assert long.endswith(b"x [10 more characters: --raw shows them]\n")
    flood = printed(*[b"y\n" * 1000] * (BURST // 1000 + 30)).splitlines()
    assert len(flood) < BURST + 30_000 * 0.5
    assert b"lines came faster than a terminal shows them" in flood[-1]


def test_errors_write_out_control_characters_and_shorten_values(tmp_path: Path) -> None:
    task = tmp_path / "task.yaml"
    value = "\x1b]52;c;ZXZpbA==\x07" + "v" * 5000
    task.write_text(f'run: x\nresources: {{use_spot: "{value.encode("unicode_escape").decode()}"}}\n')
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", "launch", str(task), "--dry-run"],
        capture_output=True, text=True, check=False, env={**os.environ, "ORCH_HOME": str(tmp_path / "state")},
    )  # fmt: skip
    assert done.returncode == 2
    assert "\x1b" not in done.stderr and "\x07" not in done.stderr
    assert max(map(len, done.stderr.splitlines())) < 1200


def test_exec_on_a_terminal_is_filtered_and_by_raw_whole(tmp_path: Path) -> None:
    state = {**os.environ, "ORCH_HOME": str(tmp_path / "state"), "TERM": "xterm"}
    orch = [sys.executable, "-m", "orchestrator"]
    evil = r"printf '\033]52;c;ZXZpbA==\007 loss 1\r(worker7, rank=7, 10.0.0.8) loss 0\n'"
    task = tmp_path / "task.yaml"
    task.write_text("name: mine\nresources: {infra: local}\nrun: 'true'\n")
    subprocess.run([*orch, "launch", str(task), "-c", "mine", "--yes"], env=state, check=True, capture_output=True)
    try:
        piped, whole = (
            subprocess.run([*orch, "exec", *more, "mine", evil], env=state, check=True, capture_output=True).stdout
            for more in ((), ("--raw",))
        )
        on_terminal = _on_terminal([*orch, "exec", "mine", evil], state)
        raw = _on_terminal([*orch, "exec", "--raw", "mine", evil], state)
    finally:
        subprocess.run([*orch, "down", "mine", "--yes"], env=state, check=True, capture_output=True)
    assert b"\x1b]52" in whole and b"\x1b]52" in raw
    assert b"loss 1" in whole and b"loss 1" not in piped, "a pipe gets the last state of a line"
    assert b"\x1b]52" not in on_terminal and b"\x07" not in on_terminal
    (line,) = [line for line in on_terminal.splitlines() if b"loss 0" in line]
    assert line.index(b"rank=0") < line.index(b"rank=7"), "the forged prefix stands behind the real one"


def _on_terminal(command: list[str], env: dict[str, str]) -> bytes:
    main, side = pty.openpty()
    with subprocess.Popen(command, stdin=side, stdout=side, stderr=side, env=env) as process:
        os.close(side)
        seen = b""
        try:
            while block := os.read(main, 4096):
                seen += block
        except OSError:  # Linux reports the end of a terminal as EIO
            pass
        process.wait()
    os.close(main)
    return seen
