"""The cause of a failed script is its error, and the next step that it printed is a next step."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sshd import Farm

from orchestrator.remote.error_lines import find_cause, split_next_step
from orchestrator.remote.host_operations import SshHostOperations
from orchestrator.render.mounts import MountInputs, render_copy_mount

DENIED = "ERROR: (gcloud.storage.rsync) HTTPError 403: denied"
CHAIN = "During handling of the above exception, another exception occurred:"
TRACEBACK = "Traceback (most recent call last):\n"


def raised(error: str, frame: str = '  File "train.py", line 3, in main\n    raise Error("failed")\n') -> str:
    return f"{TRACEBACK}{frame}{error}\n"


@pytest.mark.parametrize(
    ("output", "cause", "step"),
    [
        ("copying\ncopy: gs://b/d is empty\n  next: gcloud storage ls gs://b/d\n", "copy: gs://b/d is empty", "gcloud"),
        (f"{DENIED}\ncopy: no gs://b\n  next: gcloud x\n", f"{DENIED} | copy: no gs://b", "gcloud"),
        ("Traceback (most recent call last):\n  x\nValueError: y\ndone\n", "ValueError: y", ""),
        ("mount: it failed\n  next: one\nmount: it failed\n  next: two\n", "mount: it failed", "two"),
        ("\x1b[31mfatal: no\x1b[0m\r", "fatal: no", ""),
        ("epoch 3\nnext: rm -rf /\n", "epoch 3 | next: rm -rf /", ""),
        ("all is well\n", "all is well", ""),
        ("", "", ""),
    ],
)
def test_the_cause_and_the_next_step_are_separated(output: str, cause: str, step: str) -> None:
    found = split_next_step(find_cause(output.encode()).lines)
    assert found[0] == cause
    assert found[1].startswith(step) and bool(found[1]) == bool(step)


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        # A source line of a traceback is no cause, though it has the word.
        (raised("ValueError: y"), "ValueError: y"),
        (raised("KeyError: 'a'") + f"\n{CHAIN}\n\n" + raised("ValueError: b"), "KeyError: 'a' | ValueError: b"),
        # An error that the program handled and printed, and the one by which it ended.
        (raised("OSError: busy") + "step 3\n" + raised("ValueError: y"), "ValueError: y"),
        (raised("ValueError: y") + "fatal: the cache is broken\n", "ValueError: y | fatal: the cache is broken"),
        # The beginning is cut off, or there is none.
        ('  File "a.py", line 3\n    foo(\n       ^\nSyntaxError: never closed\n', "SyntaxError: never closed"),
        (raised("RuntimeError: loading Net:\n\tsize mismatch for w"), "RuntimeError: loading Net: size mismatch for w"),
        (raised("torch.OutOfMemoryError: CUDA out of memory."), "torch.OutOfMemoryError: CUDA out of memory."),
        (raised("socket.timeout: timed out"), "socket.timeout: timed out"),
        # Without a message, the line that raised it is all that there is.
        (raised("AssertionError"), 'AssertionError at train.py:3: raise Error("failed")'),
        (
            raised("AssertionError", '  File "/a/data.py", line 29, in f\n    assert x\n           ^\n'),
            "AssertionError at data.py:29: assert x",
        ),
    ],
)
def test_the_cause_of_a_python_program_is_its_last_exception(output: str, cause: str) -> None:
    assert find_cause(f"start\n{output}".encode(), 1).lines == cause


@pytest.mark.parametrize(
    "report",
    [
        "make: *** [Makefile:7: train] Error 3",
        "srun: error: node7: task 0: Exited with exit code 3",
        "subprocess.CalledProcessError: Command '['python', 'x.py']' returned non-zero exit status 3.",
        "mylauncher: worker 4 was terminated by signal 9",
        "[launcher] child process 4711 exited, return code: 3",
    ],
)
def test_a_line_that_only_reports_another_process_is_no_cause(report: str) -> None:
    """Also by a launcher of which no row is known: the program's error stands before it, or its last words."""
    assert find_cause(f"start\n{raised('ValueError: y')}{report}\n".encode(), 1).lines == "ValueError: y"
    assert find_cause(f"cannot open the file\n{report}\n".encode(), 1).lines == "cannot open the file"
    assert find_cause(f"step 4\n{report}\n".encode(), 1).lines == f"step 4 | {report}"
    # Its own traceback is no cause either, and the status of a process without a known launcher is not believed.
    assert find_cause(f"start\n{raised('ValueError: y')}{raised(report)}".encode(), 1).lines == "ValueError: y"
    assert find_cause(f"step 4\n{report}\n".encode(), 1).exit_code is None


def test_only_words_near_the_end_look_like_the_error_of_a_silent_end() -> None:
    """A program that ends without words has trained for long since its last warning."""
    steps = "".join(f"step {number}: loss 2.0\n" for number in range(40))
    assert find_cause(f"warning: the extension failed to load\n{steps}".encode(), 3).lines == "step 39: loss 2.0"
    assert find_cause(f"{steps}Failed to open data\nbye\n".encode(), 3).lines == "Failed to open data"


# Printed by torchao 0.18 through logging.lastResort of Python, which shows no level, as accelerate trained on a CPU.
OPTIONAL = "Failed to load /a/torchao/_C_mxfp8.so: Could not load this library: /a/torchao/_C_mxfp8.so\n"
WARNED = "W1130 20:25:01.106000 28387 a.py:630] this will be an error in a future release.\n"
# Of Open MPI 4.1 as its plugin was missing; DLRM then trained.
COMPLAINT = "  /usr/share/pmix/help-pcompress.txt: No such file or directory.  Sorry!\n"


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        (f"{OPTIONAL}{OPTIONAL}{WARNED}{WARNED}Loading weights: 100%|###| 25/25\nepoch 0: 0.5\n", "epoch 0: 0.5"),
        (f"{OPTIONAL}{WARNED}{WARNED}op built\n/a.py:83: FutureWarning: old\n  return f(*args)\n", "op built"),
        (f"{COMPLAINT}Running on 2 ranks\nUsing CPU...\nit 1/20, loss 0.2\nit 2/20, loss 0.1\n", "it 2/20, loss 0.1"),
        # One that calls itself an error may be followed by much advice, as conda's is.
        (
            "PackagesNotFoundError: foo\nCurrent channels:\na\nTo search\nlooking\nuse it\n",
            "PackagesNotFoundError: foo",
        ),
        ("E1130 20:25:01.1 28387 a.cc:7] no device\na\nb\nc\nd\n", "E1130 20:25:01.1 28387 a.cc:7] no device"),
        # Advice after a failure.
        ("cannot read the data\n\nCheck the path\nand try again.\n", "cannot read the data"),
    ],
)
def test_what_a_program_did_without_is_no_cause_of_its_silent_end(output: str, cause: str) -> None:
    assert find_cause(output.encode(), 3).lines == cause


@pytest.mark.parametrize(
    "text",
    [
        "W1130 20:13:35.180000 25435 torch/utils/_pytree.py:630] this will be an error in a future release.",
        "WARNING:root:the extension failed to load",
        "2026-11-30 10:00:00 [WARNING] cannot find libaio",
        "/a/b.py:7: FutureWarning: this is an error in Python 3.15",
        "warning: not found in the cache",
    ],
)
def test_a_warning_is_no_error(text: str) -> None:
    assert find_cause(f"{text}\nlast words\n".encode(), 3).lines == "last words"
    assert find_cause(f"{text}\n".encode(), 3).lines == text, "nothing else was printed"


def test_last_words_are_those_of_the_program_and_not_of_a_warning() -> None:
    warned = "/a/b.py:7: UserWarning: slow\n  return func(*args)\nW1130 20:13:35.180000 25435 a.py:630] slow\n"
    assert find_cause(f"step 4\n{warned}".encode(), 3).lines == "step 4"
    assert find_cause(f"step 4\n{warned}".encode(), 137).lines == "step 4"


def test_a_process_that_was_killed_has_last_words_and_no_error() -> None:
    """SIGKILL leaves no time for an error: what looks like one is older, unless it stands at the end."""
    assert find_cause(b"Failed to load x.so\nstep 4\n", 137).lines == "step 4"
    steps = "".join(f"step {number}: loss 2.0\n" for number in range(40))
    assert find_cause(f"{raised('ValueError: y')}{steps}".encode(), 137).lines == "step 39: loss 2.0"
    assert find_cause(f"{steps}{raised('ValueError: y')}".encode(), 137).lines == "ValueError: y"


@pytest.mark.parametrize("text", ["AALLLLFailnOm", "a terror", "default", "x unfailing y"])
def test_a_part_of_a_word_is_no_error(text: str) -> None:
    assert find_cause(f"{text}\nlast words\n".encode(), 3).lines == "last words"


@pytest.mark.parametrize(
    "text",
    ["MyError at 3", "2 errors", "CUDA_ERROR_X", "FAILED (1)", "failure of a disk", "OOM-killed", "OutOfMemoryError"],
)
def test_a_line_that_looks_like_an_error(text: str) -> None:
    assert find_cause(f"{text}\nlast words\n".encode(), 3).lines == text


def test_a_long_line_keeps_its_end() -> None:
    missing = f"python: can't open file '{'/a-folder' * 30}/train.py': [Errno 2] No such file or directory"
    cause = find_cause(missing.encode(), 2).lines
    assert cause.startswith("python: can't open file '/a-folder") and len(cause) <= 200
    assert cause.endswith("/train.py': [Errno 2] No such file or directory")


def test_the_process_that_failed_first_is_to_blame_also_where_lines_are_mixed() -> None:
    first, second = raised("ValueError: rank one").splitlines(), raised("ConnectionError: peer").splitlines()
    mixed = [line for pair in zip(first, second, strict=True) for line in pair]
    ended = ["run: the process of device 1 ended with status 1", "run: the process of device 0 ended with status 1"]
    by_rank = [f"[rank{at % 2}]: {line}" for at, line in enumerate(mixed)]
    assert find_cause("\n".join([*by_rank, *ended]).encode(), 1).lines == "ValueError: rank one"


def test_a_script_that_fails_on_a_host_names_what_is_missing(shared_farm: Farm, tmp_path: Path) -> None:
    script = render_copy_mount(MountInputs(f"file://{tmp_path}/nowhere", "~/data"))
    hosts = SshHostOperations(shared_farm.addresses)
    for outcome in hosts.run_script(script.encode(), [0, 1, 2]):
        assert outcome.last_line == f"copy: there is nothing at file://{tmp_path}/nowhere"
        assert outcome.remedy == f"ls -la file://{tmp_path}/nowhere"
    (silent,) = hosts.run_script(b"echo almost; exit 4", [1])
    assert (silent.last_line, silent.remedy, silent.exit_code) == ("almost", "", 4)
    hosts.close()
